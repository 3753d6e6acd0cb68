// Eigenvectors of symmetric tridiagonal matrices by divide and conquer.
#pragma once
#include <cstdint>

namespace wengert {

// With the diagonal d[n] and the elements e[n − 1] beside it: d := the eigenvalues, z[n × n] := the eigenvectors as
// rows, and order[n] := the numbers of the rows by ascending eigenvalue. Destroys e. Not 0 if it did not converge.
// Instances: float, double.
template <class R>
int tridiagonal_eigenvectors(int64_t n, R* d, R* e, R* z, int* order);

}  // namespace wengert
