// Orthogonal factorisations: QR, singular values, eigenvalues.
#include <algorithm>
#include <memory>

#include "linear_algebra.h"

namespace wengert {

namespace {

int to_int(int64_t n) { return static_cast<int>(n); }

// Scratch of the size that LAPACK asked for.
template <class T>
struct Work {
  int size;
  std::unique_ptr<T[]> memory;
  explicit Work(T asked, int least = 1)
      : size(std::max(least, static_cast<int>(std::real(asked)))), memory(new T[size]) {}
  operator T*() const { return memory.get(); }
};

template <class T>
void transpose(int64_t n, T* a) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) std::swap(a[i * n + j], a[j * n + i]);
  }
}

}  // namespace

// LAPACK reads aᵀ = L Q, so a = Qᵀ Lᵀ; both transposes are what row-major memory holds.
template <class T>
int qr(int64_t m, int64_t n, bool complete, T* a, T* q, T* r) {
  const int64_t k = std::min(m, n), columns = complete ? m : k;
  if (k > 0) {
    std::unique_ptr<T[]> tau(new T[k]);
    T asked;
    lapack::gelqf(to_int(n), to_int(m), a, to_int(n), tau.get(), &asked, -1);
    Work<T> work(asked);
    if (const int info = lapack::gelqf(to_int(n), to_int(m), a, to_int(n), tau.get(), work, work.size)) return info;
    for (int64_t i = 0; i < m; ++i) {
      std::copy_n(a + i * n, k, q + i * columns);
      std::fill(q + i * columns + k, q + (i + 1) * columns, T(0));
    }
    const int c = to_int(columns), rows = to_int(m), reflectors = to_int(k);
    lapack::unglq(c, rows, reflectors, q, c, tau.get(), &asked, -1);
    Work<T> more(asked);
    if (const int info = lapack::unglq(c, rows, reflectors, q, c, tau.get(), more, more.size)) return info;
  } else {
    for (int64_t i = 0; i < m * columns; ++i) q[i] = T(i / columns == i % columns ? 1 : 0);
  }
  for (int64_t i = 0; i < columns; ++i) {
    for (int64_t j = 0; j < n; ++j) r[i * n + j] = i < k && j >= i ? a[i * n + j] : T(0);
  }
  return 0;
}

// LAPACK reads aᵀ = vhᵀ diag(s) uᵀ: its left vectors are our vh, and its right ones our u, each as row-major memory.
template <class T>
int svd(int64_t m, int64_t n, bool full, T* a, T* u, Real<T>* s, T* vh) {
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
  // LAPACK asks too little for its real workspace in no case if it gets this much.
  const int64_t real_size =
      lapack::is_complex_v<T> ? std::max(5 * k * k + 5 * k, 2 * std::max(m, n) * k + 2 * k * k + k) : 0;
  std::unique_ptr<Real<T>[]> rwork(new Real<T>[real_size]);
  std::unique_ptr<int[]> iwork(new int[8 * k]);
  T asked;
  lapack::gesdd(job, rows, columns, a, rows, s, vh, rows, u, ldvt, &asked, -1, rwork.get(), iwork.get());
  Work<T> work(asked);
  return lapack::gesdd(job, rows, columns, a, rows, s, vh, rows, u, ldvt, work, work.size, rwork.get(), iwork.get());
}

template <class T>
int pseudo_inverse(int64_t m, int64_t n, Real<T> cutoff, T* a, T* y) {
  const int64_t k = std::min(m, n);
  if (k == 0) {
    std::fill_n(y, m * n, T(0));
    return 0;
  }
  std::unique_ptr<T[]> vectors(new T[(m + n) * k]);
  std::unique_ptr<Real<T>[]> s(new Real<T>[k]);
  T *u = vectors.get(), *vh = u + m * k;
  if (const int info = svd(m, n, false, a, u, s.get(), vh)) return info;
  for (int64_t i = 0; i < k; ++i) {
    const Real<T> inverse = s[i] > cutoff * s[0] ? 1 / s[i] : 0;
    for (int64_t j = 0; j < n; ++j) vh[i * n + j] *= inverse;
  }
  lapack::gemm(CblasConjTrans, CblasConjTrans, to_int(n), to_int(m), to_int(k), vh, to_int(n), u, to_int(k), T(0), y,
               to_int(m));
  return 0;
}

// LAPACK reads aᵀ = conj(a), whose vectors are conj(v): transposed and conjugated, they are v.
template <class T>
int eigh(int64_t n, bool vectors, T* a, Real<T>* w) {
  if (n == 0) return 0;
  const char job = vectors ? 'V' : 'N';
  T asked;
  Real<T> asked_real = 0;
  int asked_int;
  lapack::heevd(job, to_int(n), a, to_int(n), w, &asked, -1, &asked_real, -1, &asked_int, -1);
  Work<T> work(asked);
  Work<Real<T>> rwork(asked_real);
  Work<int> iwork(asked_int);
  const int info =
      lapack::heevd(job, to_int(n), a, to_int(n), w, work, work.size, rwork, rwork.size, iwork, iwork.size);
  if (info || !vectors) return info;
  transpose(n, a);
  if constexpr (lapack::is_complex_v<T>) std::transform(a, a + n * n, a, [](T x) { return std::conj(x); });
  return 0;
}

namespace {

using lapack::c128;
using lapack::c64;

#define WENGERT_GEEV_COMPLEX(s, R)                                                                                     \
  int geev(int n, std::complex<R>* a, std::complex<R>* w, std::complex<R>* v) {                                        \
    const char left = 'N', right = v ? 'V' : 'N';                                                                      \
    std::unique_ptr<R[]> rwork(new R[2 * n]);                                                                          \
    std::complex<R> asked;                                                                                             \
    int info = 0, size = -1;                                                                                           \
    lapack::scipy_##s##geev_(&left, &right, &n, a, &n, w, nullptr, &n, v, &n, &asked, &size, rwork.get(), &info, 1,    \
                             1);                                                                                       \
    Work<std::complex<R>> work(asked);                                                                                 \
    lapack::scipy_##s##geev_(&left, &right, &n, a, &n, w, nullptr, &n, v, &n, work, &work.size, rwork.get(), &info, 1, \
                             1);                                                                                       \
    return info;                                                                                                       \
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
  int geev(int n, R* a, std::complex<R>* w, std::complex<R>* v) {                                                    \
    const char left = 'N', right = v ? 'V' : 'N';                                                                    \
    const int64_t vectors = v ? static_cast<int64_t>(n) * n : 0;                                                     \
    std::unique_ptr<R[]> scratch(new R[2 * n + vectors]);                                                            \
    R *re = scratch.get(), *im = re + n, *packed = im + n, asked;                                                    \
    int info = 0, size = -1;                                                                                         \
    lapack::scipy_##s##geev_(&left, &right, &n, a, &n, re, im, nullptr, &n, packed, &n, &asked, &size, &info, 1, 1); \
    Work<R> work(asked);                                                                                             \
    lapack::scipy_##s##geev_(&left, &right, &n, a, &n, re, im, nullptr, &n, packed, &n, work, &work.size, &info, 1,  \
                             1);                                                                                     \
    for (int i = 0; i < n; ++i) w[i] = {re[i], im[i]};                                                               \
    if (v && info == 0) unpack_pairs<R>(n, im, packed, v);                                                           \
    return info;                                                                                                     \
  }
WENGERT_GEEV_REAL(s, float)
WENGERT_GEEV_REAL(d, double)
#undef WENGERT_GEEV_REAL

}  // namespace

// Here LAPACK must see a itself: eigenvalues of the transpose come in another order.
template <class T>
int eig(int64_t n, T* a, std::complex<Real<T>>* w, std::complex<Real<T>>* v) {
  if (n == 0) return 0;
  transpose(n, a);
  const int info = geev(to_int(n), a, w, v);
  if (info == 0 && v) transpose(n, v);
  return info;
}

#define WENGERT_INSTANCES(T)                                      \
  template int qr(int64_t, int64_t, bool, T*, T*, T*);            \
  template int svd(int64_t, int64_t, bool, T*, T*, Real<T>*, T*); \
  template int eigh(int64_t, bool, T*, Real<T>*);                 \
  template int pseudo_inverse(int64_t, int64_t, Real<T>, T*, T*); \
  template int eig(int64_t, T*, std::complex<Real<T>>*, std::complex<Real<T>>*);
WENGERT_INSTANCES(float)
WENGERT_INSTANCES(double)
WENGERT_INSTANCES(c64)
WENGERT_INSTANCES(c128)
#undef WENGERT_INSTANCES

}  // namespace wengert
