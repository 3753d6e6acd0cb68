// Linear algebra on one packed, row-major matrix. LAPACK sees its transpose; the comments say how the answer is read
// off. Instances: float, double, complex<float>, complex<double>. Results of LAPACK's `info` are returned: 0 is
// success.
#pragma once
#include <cstdint>
#include <vector>

#include "lapack.h"

namespace wengert {

template <class T>
using Real = lapack::Real<T>;

// What LAPACK needs beside its operands. The sizes are asked for once: one workspace serves matrices of one shape.
template <class T>
struct Workspace {
  std::vector<T> main, more;
  std::vector<Real<T>> real;
  std::vector<int> integers;
};

// ------------------------------------------------------------------------------- elimination
// (linear_algebra_solve.cpp)

// In place, a = low · up · Pᵀ: low (with its diagonal) and up (unit diagonal) share the memory, P swaps row i with row
// pivots[i] - 1, for i from 0. Not 0 if low has a zero on its diagonal.
template <class T>
int factor(int64_t n, T* a, int* pivots);

// b[n × k] := a⁻¹ b, or a⁻ᴴ b, from the factors of a.
template <class T>
void solve_factored(int64_t n, int64_t k, const T* factors, const int* pivots, bool adjoint, T* b);

// a := a⁻¹. Not 0 if singular, and then a is not defined.
template <class T>
int invert(int64_t n, T* a, Workspace<T>& w);

template <class T>
struct Determinant {
  T sign;  // of absolute value 1, or 0
  Real<T> log;
  T value;
};
template <class T>
Determinant<T> determinant(int64_t n, T* a);  // destroys a

// a := the matrix of cofactors, ∂det/∂aᵢⱼ; well defined for singular matrices too.
template <class T>
int cofactors(int64_t n, T* a);

// low (m × k, unit diagonal), up (k × n) and the permutation of rows, a[permutation] = low · up; k = min(m, n).
// `scratch` has m · n elements.
template <class T>
void factor_rows(int64_t m, int64_t n, const T* a, int64_t* permutation, T* low, T* up, T* scratch);

// The lower triangle of a := its Cholesky factor, the rest := 0. Not 0 if not positive definite.
template <class T>
int cholesky(int64_t n, T* a);

// b[m × n] := op(a)⁻¹ b, or b op(a)⁻¹ if `right`; op is the adjoint if `adjoint`.
struct Triangle {
  bool upper, adjoint, unit, right;
};
template <class T>
void solve_triangular(Triangle t, int64_t m, int64_t n, const T* a, T* b);

// ------------------------------------------------------------------------------------------ orthogonal

// a[m × n] = q · r; q is m × k and r is k × n, where k is min(m, n), or m if complete (reflectors.cpp).
template <class T>
int qr(int64_t m, int64_t n, bool complete, const T* a, T* q, T* r);

// a[m × n] = u · diag(s) · vh. u and vh may be null (values alone), or are m × k and k × n (full: m × m, n × n).
// Destroys a.
template <class T>
int svd(int64_t m, int64_t n, bool full, T* a, T* u, Real<T>* s, T* vh, Workspace<T>& w);

// a = v · diag(values) · vᴴ for a Hermitian a, values ascending. a := v if `vectors`, destroyed otherwise.
template <class T>
int eigh(int64_t n, bool vectors, T* a, Real<T>* values, Workspace<T>& w);

// a · v = v · diag(values); v may be null. Destroys a.
template <class T>
int eig(int64_t n, T* a, std::complex<Real<T>>* values, std::complex<Real<T>>* v, Workspace<T>& w);

// y[n × m] := the pseudo-inverse of a[m × n], in which singular values up to cutoff · the largest are taken for zeros;
// s := all of them, descending. Destroys a.
template <class T>
int pseudo_inverse(int64_t m, int64_t n, Real<T> cutoff, T* a, T* y, Real<T>* s, Workspace<T>& w);

// ------------------------------------------------------------------------------------------ functions (matrix_exp.cpp)

// y := exp(a), and y_dot := d/dt exp(a + t·a_dot) at t = 0 unless a_dot is null.
template <class T>
void matrix_exp(int64_t n, const T* a, const T* a_dot, T* y, T* y_dot);

}  // namespace wengert
