// Elimination: LU, inverses, determinants, Cholesky, triangular systems.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "linear_algebra.h"
#include "linear_algebra_small.h"

namespace wengert {

namespace {

int to_int(int64_t n) { return static_cast<int>(n); }  // the shape rules refuse larger matrices

template <class T>
void swap_rows(T* b, int64_t i, int64_t j, int64_t k) {
  if (i != j) std::swap_ranges(b + i * k, b + (i + 1) * k, b + j * k);
}

// One column is a vector: trsv has less overhead than trsm.
template <class T>
void solve_left(CBLAS_UPLO uplo, bool adjoint, bool unit, int64_t n, int64_t k, const T* a, T* b) {
  if (n <= small::kLargest && k <= small::kLargestSide) {
    return small::solve_left(uplo == CblasUpper, adjoint, unit, n, k, a, b);
  }
  const auto trans = adjoint ? CblasConjTrans : CblasNoTrans;
  const auto diag = unit ? CblasUnit : CblasNonUnit;
  if (k == 1) return lapack::trsv(uplo, trans, diag, to_int(n), a, to_int(n), b);
  lapack::trsm(CblasLeft, uplo, trans, diag, to_int(n), to_int(k), a, to_int(n), b, to_int(k));
}

template <class T>
bool is_well_conditioned(int64_t n, const T* factors) {
  Real<T> low = std::numeric_limits<Real<T>>::infinity(), high = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Real<T> d = std::abs(factors[i * (n + 1)]);
    low = std::min(low, d);
    high = std::max(high, d);
  }
  return low > std::sqrt(std::numeric_limits<Real<T>>::epsilon()) * high;
}

template <class T>
T signed_product(int64_t n, const T* factors, const int* pivots) {
  T product = 1;
  for (int64_t i = 0; i < n; ++i) product *= pivots[i] == i + 1 ? factors[i * (n + 1)] : -factors[i * (n + 1)];
  return product;
}

}  // namespace

// LAPACK reads aᵀ and finds aᵀ = P L U, so a = Uᵀ Lᵀ Pᵀ; in row-major memory Uᵀ is the lower triangle.
template <class T>
int factor(int64_t n, T* a, int* pivots) {
  if (n <= small::kLargest) return small::factor(n, a, pivots);
  return lapack::getrf(to_int(n), to_int(n), a, std::max(1, to_int(n)), pivots);
}

template <class T>
void solve_factored(int64_t n, int64_t k, const T* factors, const int* pivots, bool adjoint, T* b) {
  if (n == 0 || k == 0) return;
  if (!adjoint) {
    solve_left(CblasLower, false, false, n, k, factors, b);
    solve_left(CblasUpper, false, true, n, k, factors, b);
    for (int64_t i = n - 1; i >= 0; --i) swap_rows(b, i, pivots[i] - 1, k);
    return;
  }
  for (int64_t i = 0; i < n; ++i) swap_rows(b, i, pivots[i] - 1, k);
  solve_left(CblasUpper, true, true, n, k, factors, b);
  solve_left(CblasLower, true, false, n, k, factors, b);
}

template <class T>
int invert(int64_t n, T* a, Workspace<T>& w) {
  if (n == 0) return 0;
  w.integers.resize(n);
  if (const int info = factor(n, a, w.integers.data())) return info;
  if (w.main.empty()) {
    T asked;
    lapack::getri(to_int(n), a, to_int(n), w.integers.data(), &asked, -1);
    w.main.resize(std::max(to_int(n), static_cast<int>(std::real(asked))));
  }
  return lapack::getri(to_int(n), a, to_int(n), w.integers.data(), w.main.data(), to_int(w.main.size()));
}

template <class T>
Determinant<T> determinant(int64_t n, T* a) {
  std::vector<int> pivots(n);
  factor(n, a, pivots.data());
  Determinant<T> d{1, 0, signed_product(n, a, pivots.data())};
  for (int64_t i = 0; i < n; ++i) {
    const T x = a[i * (n + 1)];
    const Real<T> size = std::abs(x);
    d.log += std::log(size);
    d.sign *= size == 0 ? T(0) : (pivots[i] == i + 1 ? x : -x) / size;
  }
  return d;
}

// C = det(a) a⁻ᵀ where that is accurate; else from a = u diag(s) vh, by C = det(u) det(vh) · conj(u diag(∏ⱼ≠ᵢ sⱼ) vh),
// which divides by nothing.
template <class T>
int cofactors(int64_t n, T* a) {
  if (n == 0) return 0;
  const int64_t size = n * n;
  std::unique_ptr<T[]> scratch(new T[3 * size]);
  T *copy = scratch.get(), *u = copy + size, *vh = u + size;
  std::copy_n(a, size, copy);
  std::vector<int> pivots(n);
  factor(n, copy, pivots.data());
  if (is_well_conditioned(n, copy)) {
    const T d = signed_product(n, copy, pivots.data());
    Workspace<T> w;
    if (const int info = invert(n, a, w)) return info;
    for (int64_t i = 0; i < n; ++i) {
      a[i * (n + 1)] *= d;
      for (int64_t j = 0; j < i; ++j) {
        const T x = a[i * n + j];
        a[i * n + j] = d * a[j * n + i];
        a[j * n + i] = d * x;
      }
    }
    return 0;
  }
  std::vector<Real<T>> s(n), others(n, 1);
  Workspace<T> w;
  if (const int info = svd(n, n, false, a, u, s.data(), vh, w)) return info;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) others[i] *= j == i ? 1 : s[j];
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      T sum = 0;
      for (int64_t k = 0; k < n; ++k) sum += u[i * n + k] * (others[k] * vh[k * n + j]);
      a[i * n + j] = lapack::conjugate(sum);
    }
  }
  T sign = 1;
  for (T* q : {u, vh}) {
    factor(n, q, pivots.data());
    sign *= signed_product(n, q, pivots.data());
  }
  for (int64_t i = 0; i < size; ++i) a[i] *= sign;
  return 0;
}

// Rows of a are to be pivoted, so LAPACK must see a itself.
template <class T>
void factor_rows(int64_t m, int64_t n, const T* a, int64_t* permutation, T* low, T* up, T* scratch) {
  const int64_t k = std::min(m, n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) scratch[j * m + i] = a[i * n + j];
  }
  std::vector<int> pivots(k);
  if (k > 0) lapack::getrf(to_int(m), to_int(n), scratch, to_int(m), pivots.data());
  for (int64_t i = 0; i < m; ++i) permutation[i] = i;
  for (int64_t i = 0; i < k; ++i) std::swap(permutation[i], permutation[pivots[i] - 1]);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < k; ++j) low[i * k + j] = j < i ? scratch[j * m + i] : T(i == j ? 1 : 0);
  }
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < n; ++j) up[i * n + j] = j >= i ? scratch[j * m + i] : T(0);
  }
}

// LAPACK reads conj(a) = RᴴR from its upper triangle, our lower one; then a = Rᵀ conj(R), and Rᵀ stands where it
// should.
template <class T>
int cholesky(int64_t n, T* a) {
  if (n == 0) return 0;
  if (const int info = lapack::potrf('U', to_int(n), a, to_int(n))) return info;
  for (int64_t i = 0; i < n; ++i) std::fill(a + i * n + i + 1, a + (i + 1) * n, T(0));
  return 0;
}

template <class T>
void solve_triangular(Triangle t, int64_t m, int64_t n, const T* a, T* b) {
  if (m == 0 || n == 0) return;
  const auto uplo = t.upper ? CblasUpper : CblasLower;
  if (!t.right) return solve_left(uplo, t.adjoint, t.unit, m, n, a, b);
  lapack::trsm(CblasRight, uplo, t.adjoint ? CblasConjTrans : CblasNoTrans, t.unit ? CblasUnit : CblasNonUnit,
               to_int(m), to_int(n), a, to_int(n), b, to_int(n));
}

#define WENGERT_INSTANCES(T)                                                      \
  template int factor(int64_t, T*, int*);                                         \
  template void solve_factored(int64_t, int64_t, const T*, const int*, bool, T*); \
  template int invert(int64_t, T*, Workspace<T>&);                                \
  template Determinant<T> determinant(int64_t, T*);                               \
  template int cofactors(int64_t, T*);                                            \
  template void factor_rows(int64_t, int64_t, const T*, int64_t*, T*, T*, T*);    \
  template int cholesky(int64_t, T*);                                             \
  template void solve_triangular(Triangle, int64_t, int64_t, const T*, T*);
WENGERT_INSTANCES(float)
WENGERT_INSTANCES(double)
WENGERT_INSTANCES(lapack::c64)
WENGERT_INSTANCES(lapack::c128)
#undef WENGERT_INSTANCES

}  // namespace wengert
