// Singular values and eigenvalues.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "../threads.h"
#include "linear_algebra.h"
#include "reflectors.h"
#include "tridiagonal.h"

namespace wengert {

namespace {

int to_int(int64_t n) { return static_cast<int>(n); }

// Room for what LAPACK asked for.
template <class T, class U>
void make_room(std::vector<T>& memory, U asked) {
  memory.resize(std::max<int64_t>(1, static_cast<int64_t>(std::real(asked))));
}

template <class T>
int size_of(const std::vector<T>& memory) {
  return static_cast<int>(memory.size());
}

template <class T>
void transpose_in_place(int64_t n, T* a) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) std::swap(a[i * n + j], a[j * n + i]);
  }
}

}  // namespace

// LAPACK reads aᵀ = vhᵀ diag(s) uᵀ: its left vectors are our vh, and its right ones our u, each as row-major memory.
template <class T>
int svd(int64_t m, int64_t n, bool full, T* a, T* u, Real<T>* s, T* vh, Workspace<T>& w) {
  const int64_t k = std::min(m, n);
  if (k == 0) {
    if (u) {
      for (int64_t i = 0; i < (full ? m * m : 0); ++i) u[i] = T(i / m == i % m ? 1 : 0);
      for (int64_t i = 0; i < (full ? n * n : 0); ++i) vh[i] = T(i / n == i % n ? 1 : 0);
    }
    return 0;
  }
  const char job = u ? (full ? 'A' : 'S') : 'N';
  const int rows = to_int(n), columns = to_int(m), ldvt = to_int(full ? m : k);
  if (w.main.empty()) {
    T asked;
    if (lapack::is_complex_v<T>) {  // LAPACK does not say; its documentation does
      w.real.resize(std::max(5 * k * k + 5 * k, 2 * std::max(m, n) * k + 2 * k * k + k));
    }
    w.integers.resize(8 * k);
    lapack::gesdd(job, rows, columns, a, rows, s, vh, rows, u, ldvt, &asked, -1, w.real.data(), w.integers.data());
    make_room(w.main, asked);
  }
  return lapack::gesdd(job, rows, columns, a, rows, s, vh, rows, u, ldvt, w.main.data(), size_of(w.main), w.real.data(),
                       w.integers.data());
}

template <class T>
int pseudo_inverse(int64_t m, int64_t n, Real<T> cutoff, T* a, T* y, Real<T>* s, Workspace<T>& w) {
  const int64_t k = std::min(m, n);
  if (k == 0) {
    std::fill_n(y, m * n, T(0));
    return 0;
  }
  w.more.resize((m + n) * k);
  T *u = w.more.data(), *vh = u + m * k;
  if (const int info = svd(m, n, false, a, u, s, vh, w)) return info;
  for (int64_t i = 0; i < k; ++i) {
    const Real<T> inverse = s[i] > cutoff * s[0] ? 1 / s[i] : 0;
    for (int64_t j = 0; j < n; ++j) vh[i * n + j] *= inverse;
  }
  lapack::gemm(CblasConjTrans, CblasConjTrans, to_int(n), to_int(m), to_int(k), vh, to_int(n), u, to_int(k), T(0), y,
               to_int(m));
  return 0;
}

namespace {

// A power of 2 that brings a to where squares neither overflow nor underflow, and the exponent that undoes it.
template <class T>
int bring_into_range(int64_t size, T* a) {
  using R = Real<T>;
  constexpr R least = std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon();
  R largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    largest = std::max({largest, std::abs(std::real(a[i])), std::abs(std::imag(a[i]))});
  }
  if (largest == 0 || (largest > std::sqrt(least) && largest < 1 / std::sqrt(least))) return 0;
  int exponent = 0;
  std::frexp(largest, &exponent);
  for (int64_t i = 0; i < size; ++i) {
    if constexpr (lapack::is_complex_v<T>) {
      a[i] = {std::ldexp(a[i].real(), -exponent), std::ldexp(a[i].imag(), -exponent)};
    } else {
      a[i] = std::ldexp(a[i], -exponent);
    }
  }
  return exponent;
}

// a := conj(q zᵀ), in tiles of vectors: z has real vectors as rows, `order` says which, and q is the product of the
// reflectors that tridiagonal_form left in a and tau.
template <class T>
void transform_back(int64_t n, const Real<T>* z, const int* order, T* a, const T* tau) {
  Reflectors<T> h(n - 1, n - 1);
  parallel_for(h.blocks(), [&](int64_t block) { h.set(block, a + 1, n, tau); });
  const int64_t step = vectors_per_tile(n);
  parallel_for((n + step - 1) / step, [&](int64_t tile) {
    const int64_t begin = tile * step, rows = std::min(n, begin + step) - begin;
    const std::unique_ptr<T[]> vectors(new T[rows * n]);
    for (int64_t i = 0; i < rows; ++i) std::copy_n(z + order[begin + i] * n, n, vectors.get() + i * n);
    for (int64_t block = h.blocks() - 1; block >= 0; --block) h.apply(block, false, rows, vectors.get() + 1, n);
    if constexpr (lapack::is_complex_v<T>) {
      for (int64_t i = 0; i < rows * n; ++i) vectors[i] = std::conj(vectors[i]);
    }
    transpose(rows, n, vectors.get(), n, a + begin, n);
  });
}

}  // namespace

// LAPACK reads aᵀ = conj(a) = q t qᴴ with a real tridiagonal t = zᵀ diag(values) z, so v = conj(q zᵀ).
template <class T>
int eigh(int64_t n, bool vectors, T* a, Real<T>* values, Workspace<T>& w) {
  if (n == 0) return 0;
  const int exponent = bring_into_range(n * n, a);
  w.more.resize(n);
  w.real.resize(2 * n + (vectors ? n * n : 0));
  w.integers.resize(n);
  T* tau = w.more.data();
  Real<T>*d = w.real.data(), *e = d + n, *z = e + n;
  int* order = w.integers.data();
  if (const int info = tridiagonal_form(n, a, d, e, tau)) return info;
  if (vectors) {
    if (const int info = tridiagonal_eigenvectors(n, d, e, z, order)) return info;
    transform_back(n, z, order, a, tau);
  } else {
    if (const int info = lapack::sterf(to_int(n), d, e)) return info;
    std::iota(order, order + n, 0);
  }
  for (int64_t i = 0; i < n; ++i) values[i] = std::ldexp(d[order[i]], exponent);
  return 0;
}

namespace {

using lapack::c128;
using lapack::c64;

#define WENGERT_GEEV_COMPLEX(s, R)                                                                                  \
  int geev(int n, std::complex<R>* a, std::complex<R>* values, std::complex<R>* v, Workspace<std::complex<R>>& w) { \
    const char left = 'N', right = v ? 'V' : 'N';                                                                   \
    int info = 0, size = -1;                                                                                        \
    if (w.main.empty()) {                                                                                           \
      std::complex<R> asked;                                                                                        \
      w.real.resize(2 * n);                                                                                         \
      lapack::scipy_##s##geev_(&left, &right, &n, a, &n, values, nullptr, &n, v, &n, &asked, &size, w.real.data(),  \
                               &info, 1, 1);                                                                        \
      make_room(w.main, asked);                                                                                     \
    }                                                                                                               \
    size = size_of(w.main);                                                                                         \
    lapack::scipy_##s##geev_(&left, &right, &n, a, &n, values, nullptr, &n, v, &n, w.main.data(), &size,            \
                             w.real.data(), &info, 1, 1);                                                           \
    return info;                                                                                                    \
  }
WENGERT_GEEV_COMPLEX(c, float)
WENGERT_GEEV_COMPLEX(z, double)
#undef WENGERT_GEEV_COMPLEX

// The real routine packs a pair of conjugate vectors into two real columns.
template <class R>
void unpack_pairs(int64_t n, const R* im, const R* packed, std::complex<R>* v) {
  for (int64_t j = 0; j < n; ++j) {
    const R* x = packed + j * n;
    if (im[j] == 0) {
      for (int64_t i = 0; i < n; ++i) v[j * n + i] = x[i];
      continue;
    }
    const R* y = x + n;
    for (int64_t i = 0; i < n; ++i) {
      v[j * n + i] = {x[i], y[i]};
      v[(j + 1) * n + i] = {x[i], -y[i]};
    }
    ++j;
  }
}

#define WENGERT_GEEV_REAL(s, R)                                                                                      \
  int geev(int n, R* a, std::complex<R>* values, std::complex<R>* v, Workspace<R>& w) {                              \
    const char left = 'N', right = v ? 'V' : 'N';                                                                    \
    int info = 0, size = -1;                                                                                         \
    if (w.main.empty()) {                                                                                            \
      R asked;                                                                                                       \
      w.more.resize(2 * n + (v ? static_cast<size_t>(n) * n : 0));                                                   \
      R* re = w.more.data();                                                                                         \
      lapack::scipy_##s##geev_(&left, &right, &n, a, &n, re, re + n, nullptr, &n, re + 2 * n, &n, &asked, &size,     \
                               &info, 1, 1);                                                                         \
      make_room(w.main, asked);                                                                                      \
    }                                                                                                                \
    R *re = w.more.data(), *im = re + n, *packed = im + n;                                                           \
    size = size_of(w.main);                                                                                          \
    lapack::scipy_##s##geev_(&left, &right, &n, a, &n, re, im, nullptr, &n, packed, &n, w.main.data(), &size, &info, \
                             1, 1);                                                                                  \
    for (int i = 0; i < n; ++i) values[i] = {re[i], im[i]};                                                          \
    if (v && info == 0) unpack_pairs<R>(n, im, packed, v);                                                           \
    return info;                                                                                                     \
  }
WENGERT_GEEV_REAL(s, float)
WENGERT_GEEV_REAL(d, double)
#undef WENGERT_GEEV_REAL

}  // namespace

// Here LAPACK must see a itself: eigenvalues of the transpose come in another order.
template <class T>
int eig(int64_t n, T* a, std::complex<Real<T>>* values, std::complex<Real<T>>* v, Workspace<T>& w) {
  if (n == 0) return 0;
  transpose_in_place(n, a);
  const int info = geev(to_int(n), a, values, v, w);
  if (info == 0 && v) transpose_in_place(n, v);
  return info;
}

#define WENGERT_INSTANCES(T)                                                               \
  template int svd(int64_t, int64_t, bool, T*, T*, Real<T>*, T*, Workspace<T>&);           \
  template int eigh(int64_t, bool, T*, Real<T>*, Workspace<T>&);                           \
  template int pseudo_inverse(int64_t, int64_t, Real<T>, T*, T*, Real<T>*, Workspace<T>&); \
  template int eig(int64_t, T*, std::complex<Real<T>>*, std::complex<Real<T>>*, Workspace<T>&);
WENGERT_INSTANCES(float)
WENGERT_INSTANCES(double)
WENGERT_INSTANCES(c64)
WENGERT_INSTANCES(c128)
#undef WENGERT_INSTANCES

}  // namespace wengert
