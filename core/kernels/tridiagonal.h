// Tridiagonal form of Hermitian matrices, and its eigenvectors.
#pragma once
#include <cstdint>

#include "lapack.h"

namespace wengert {

// For a Hermitian matrix whose lower triangle LAPACK would read in a, and whose elements' squares are in range (both
// triangles must be set): the diagonal d[n] of its tridiagonal form, the elements e[n − 1] beside it, and the
// reflectors that lead there, in a and tau[n − 1] as LAPACK's hetrd leaves them (tridiagonal_form.cpp).
template <class T>
int tridiagonal_form(int64_t n, T* a, lapack::Real<T>* d, lapack::Real<T>* e, T* tau);

// With the diagonal d[n] and the elements e[n − 1] beside it: d := the eigenvalues, z[n × n] := the eigenvectors as
// rows, and order[n] := the numbers of the rows by ascending eigenvalue. Destroys e. Not 0 if it did not converge.
// Instances: float, double (tridiagonal.cpp).
template <class R>
int tridiagonal_eigenvectors(int64_t n, R* d, R* e, R* z, int* order);

}  // namespace wengert
