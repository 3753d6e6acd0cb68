// LAPACK and triangular BLAS for one matrix, under one name for all four types.
//
// Everything here is column-major, as Fortran has it. Our matrices are row-major, so what LAPACK sees is the transpose;
// most factorisations of a matrix can be read off those of its transpose without moving an element, and the functions
// of linear_algebra.h are written that way.
#pragma once
#include <cblas.h>

#include <complex>
#include <cstddef>
#include <cstdint>

namespace wengert::lapack {

using c64 = std::complex<float>;
using c128 = std::complex<double>;

template <class T>
struct RealOf {
  using type = T;
};
template <class T>
struct RealOf<std::complex<T>> {
  using type = T;
};
template <class T>
using Real = typename RealOf<T>::type;
template <class T>
inline constexpr bool is_complex_v = !std::is_same_v<T, Real<T>>;

inline float conjugate(float x) { return x; }
inline double conjugate(double x) { return x; }
template <class T>
std::complex<T> conjugate(std::complex<T> x) {
  return std::conj(x);
}

// The Fortran symbols of the scipy-openblas32 wheel. Lengths of character arguments follow the others (gfortran's ABI).
extern "C" {
#define WENGERT_LAPACK(s, T)                                                                                         \
  void scipy_##s##getrf_(const int* m, const int* n, T* a, const int* lda, int* ipiv, int* info);                    \
  void scipy_##s##getri_(const int* n, T* a, const int* lda, const int* ipiv, T* work, const int* lwork, int* info); \
  void scipy_##s##potrf_(const char* uplo, const int* n, T* a, const int* lda, int* info, size_t);                   \
  void scipy_##s##geqr2_(const int* m, const int* n, T* a, const int* lda, T* tau, T* work, int* info);
WENGERT_LAPACK(s, float)
WENGERT_LAPACK(d, double)
WENGERT_LAPACK(c, c64)
WENGERT_LAPACK(z, c128)
#undef WENGERT_LAPACK

#define WENGERT_LAPACK_REAL(s, T)                                                                                      \
  void scipy_##s##gesdd_(const char* jobz, const int* m, const int* n, T* a, const int* lda, T* s_, T* u,              \
                         const int* ldu, T* vt, const int* ldvt, T* work, const int* lwork, int* iwork, int* info,     \
                         size_t);                                                                                      \
  void scipy_##s##sterf_(const int* n, T* d, T* e, int* info);                                                         \
  void scipy_##s##geev_(const char* jobvl, const char* jobvr, const int* n, T* a, const int* lda, T* wr, T* wi, T* vl, \
                        const int* ldvl, T* vr, const int* ldvr, T* work, const int* lwork, int* info, size_t,         \
                        size_t);                                                                                       \
  void scipy_##s##sytrd_(const char* uplo, const int* n, T* a, const int* lda, T* d, T* e, T* tau, T* work,            \
                         const int* lwork, int* info, size_t);                                                         \
  void scipy_##s##laed2_(int* k, const int* n, const int* n1, T* d, T* q, const int* ldq, int* indxq, T* rho, T* z,    \
                         T* dlambda, T* w, T* q2, int* indx, int* indxc, int* indxp, int* coltyp, int* info);          \
  void scipy_##s##laed4_(const int* n, const int* i, const T* d, const T* z, T* delta, const T* rho, T* lambda,        \
                         int* info);
WENGERT_LAPACK_REAL(s, float)
WENGERT_LAPACK_REAL(d, double)
#undef WENGERT_LAPACK_REAL

#define WENGERT_LAPACK_COMPLEX(s, T, R)                                                                           \
  void scipy_##s##gesdd_(const char* jobz, const int* m, const int* n, T* a, const int* lda, R* s_, T* u,         \
                         const int* ldu, T* vt, const int* ldvt, T* work, const int* lwork, R* rwork, int* iwork, \
                         int* info, size_t);                                                                      \
  void scipy_##s##geev_(const char* jobvl, const char* jobvr, const int* n, T* a, const int* lda, T* w, T* vl,    \
                        const int* ldvl, T* vr, const int* ldvr, T* work, const int* lwork, R* rwork, int* info,  \
                        size_t, size_t);                                                                          \
  void scipy_##s##hetrd_(const char* uplo, const int* n, T* a, const int* lda, R* d, R* e, T* tau, T* work,       \
                         const int* lwork, int* info, size_t);
WENGERT_LAPACK_COMPLEX(c, c64, float)
WENGERT_LAPACK_COMPLEX(z, c128, double)
#undef WENGERT_LAPACK_COMPLEX
}

// One overload per type: getrf(float*), getrf(double*), …
#define WENGERT_OVERLOADS(s, T)                                                 \
  inline int getrf(int m, int n, T* a, int lda, int* ipiv) {                    \
    int info = 0;                                                               \
    scipy_##s##getrf_(&m, &n, a, &lda, ipiv, &info);                            \
    return info;                                                                \
  }                                                                             \
  inline int getri(int n, T* a, int lda, const int* ipiv, T* work, int lwork) { \
    int info = 0;                                                               \
    scipy_##s##getri_(&n, a, &lda, ipiv, work, &lwork, &info);                  \
    return info;                                                                \
  }                                                                             \
  inline int potrf(char uplo, int n, T* a, int lda) {                           \
    int info = 0;                                                               \
    scipy_##s##potrf_(&uplo, &n, a, &lda, &info, 1);                            \
    return info;                                                                \
  }                                                                             \
  inline int geqr2(int m, int n, T* a, int lda, T* tau, T* work) {              \
    int info = 0;                                                               \
    scipy_##s##geqr2_(&m, &n, a, &lda, tau, work, &info);                       \
    return info;                                                                \
  }
WENGERT_OVERLOADS(s, float)
WENGERT_OVERLOADS(d, double)
WENGERT_OVERLOADS(c, c64)
WENGERT_OVERLOADS(z, c128)
#undef WENGERT_OVERLOADS

#define WENGERT_OVERLOADS_REAL(s, T)                                                                                  \
  inline int gesdd(char jobz, int m, int n, T* a, int lda, T* sv, T* u, int ldu, T* vt, int ldvt, T* work, int lwork, \
                   T*, int* iwork) {                                                                                  \
    int info = 0;                                                                                                     \
    scipy_##s##gesdd_(&jobz, &m, &n, a, &lda, sv, u, &ldu, vt, &ldvt, work, &lwork, iwork, &info, 1);                 \
    return info;                                                                                                      \
  }                                                                                                                   \
  inline int sterf(int n, T* d, T* e) {                                                                               \
    int info = 0;                                                                                                     \
    scipy_##s##sterf_(&n, d, e, &info);                                                                               \
    return info;                                                                                                      \
  }                                                                                                                   \
  inline int hetrd(int n, T* a, int lda, T* d, T* e, T* tau, T* work, int lwork) {                                    \
    int info = 0;                                                                                                     \
    const char uplo = 'L';                                                                                            \
    scipy_##s##sytrd_(&uplo, &n, a, &lda, d, e, tau, work, &lwork, &info, 1);                                         \
    return info;                                                                                                      \
  }                                                                                                                   \
  inline int laed2(int* k, int n, int n1, T* d, T* q, int ldq, int* indxq, T* rho, T* z, T* dlambda, T* w, T* q2,     \
                   int* indx, int* indxc, int* indxp, int* coltyp) {                                                  \
    int info = 0;                                                                                                     \
    scipy_##s##laed2_(k, &n, &n1, d, q, &ldq, indxq, rho, z, dlambda, w, q2, indx, indxc, indxp, coltyp, &info);      \
    return info;                                                                                                      \
  }                                                                                                                   \
  inline int laed4(int n, int i, const T* d, const T* z, T* delta, T rho, T* lambda) {                                \
    int info = 0;                                                                                                     \
    scipy_##s##laed4_(&n, &i, d, z, delta, &rho, lambda, &info);                                                      \
    return info;                                                                                                      \
  }
WENGERT_OVERLOADS_REAL(s, float)
WENGERT_OVERLOADS_REAL(d, double)
#undef WENGERT_OVERLOADS_REAL

#define WENGERT_OVERLOADS_COMPLEX(s, T, R)                                                                            \
  inline int gesdd(char jobz, int m, int n, T* a, int lda, R* sv, T* u, int ldu, T* vt, int ldvt, T* work, int lwork, \
                   R* rwork, int* iwork) {                                                                            \
    int info = 0;                                                                                                     \
    scipy_##s##gesdd_(&jobz, &m, &n, a, &lda, sv, u, &ldu, vt, &ldvt, work, &lwork, rwork, iwork, &info, 1);          \
    return info;                                                                                                      \
  }                                                                                                                   \
  inline int hetrd(int n, T* a, int lda, R* d, R* e, T* tau, T* work, int lwork) {                                    \
    int info = 0;                                                                                                     \
    const char uplo = 'L';                                                                                            \
    scipy_##s##hetrd_(&uplo, &n, a, &lda, d, e, tau, work, &lwork, &info, 1);                                         \
    return info;                                                                                                      \
  }
WENGERT_OVERLOADS_COMPLEX(c, c64, float)
WENGERT_OVERLOADS_COMPLEX(z, c128, double)
#undef WENGERT_OVERLOADS_COMPLEX

// Row-major c = op(a) op(b).
#define WENGERT_GEMM(s, T, scalar)                                                                               \
  inline void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const T* a, int lda, const T* b, \
                   int ldb, T beta, T* c, int ldc) {                                                             \
    const T one = 1;                                                                                             \
    scipy_cblas_##s##gemm(CblasRowMajor, ta, tb, m, n, k, scalar one, a, lda, b, ldb, scalar beta, c, ldc);      \
  }
WENGERT_GEMM(s, float, )
WENGERT_GEMM(d, double, )
WENGERT_GEMM(c, c64, &)
WENGERT_GEMM(z, c128, &)
#undef WENGERT_GEMM

// Row-major BLAS, with alpha = 1: b := op(a)⁻¹ b or b op(a)⁻¹.
inline void trsm(CBLAS_SIDE side, CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, int m, int n, const float* a,
                 int lda, float* b, int ldb) {
  scipy_cblas_strsm(CblasRowMajor, side, uplo, trans, diag, m, n, 1, a, lda, b, ldb);
}
inline void trsm(CBLAS_SIDE side, CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, int m, int n,
                 const double* a, int lda, double* b, int ldb) {
  scipy_cblas_dtrsm(CblasRowMajor, side, uplo, trans, diag, m, n, 1, a, lda, b, ldb);
}
inline void trsm(CBLAS_SIDE side, CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, int m, int n, const c64* a,
                 int lda, c64* b, int ldb) {
  const c64 one = 1;
  scipy_cblas_ctrsm(CblasRowMajor, side, uplo, trans, diag, m, n, &one, a, lda, b, ldb);
}
inline void trsm(CBLAS_SIDE side, CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, int m, int n, const c128* a,
                 int lda, c128* b, int ldb) {
  const c128 one = 1;
  scipy_cblas_ztrsm(CblasRowMajor, side, uplo, trans, diag, m, n, &one, a, lda, b, ldb);
}

#define WENGERT_TRSV(s, T)                                                                                      \
  inline void trsv(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, int n, const T* a, int lda, T* x) { \
    scipy_cblas_##s##trsv(CblasRowMajor, uplo, trans, diag, n, a, lda, x, 1);                                   \
  }
WENGERT_TRSV(s, float)
WENGERT_TRSV(d, double)
WENGERT_TRSV(c, c64)
WENGERT_TRSV(z, c128)
#undef WENGERT_TRSV

}  // namespace wengert::lapack
