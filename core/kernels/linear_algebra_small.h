// Elimination on matrices so small that a call of BLAS or LAPACK costs more than the work.
#pragma once
#include <cmath>
#include <cstdint>
#include <utility>

#include "lapack.h"

namespace wengert::small {

inline constexpr int64_t kLargest = 16;      // rows
inline constexpr int64_t kLargestSide = 32;  // columns of the right side

// Without the C library's care for infinite parts.
template <class R>
std::complex<R> multiply(std::complex<R> a, std::complex<R> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}
inline float multiply(float a, float b) { return a * b; }
inline double multiply(double a, double b) { return a * b; }

inline float size_of(float x) { return std::abs(x); }
inline double size_of(double x) { return std::abs(x); }
template <class R>
R size_of(std::complex<R> x) {
  return std::abs(x.real()) + std::abs(x.imag());
}

// y -= c x
template <class T>
inline void subtract(int64_t n, T c, const T* x, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] -= multiply(c, x[i]);
}

// What LAPACK's getrf does with the transposed matrix: columns are pivoted, pivots count from 1, and the first zero
// pivot is reported, counted from 1.
template <class T>
int factor(int64_t n, T* a, int* pivots) {
  int failed = 0;
  for (int64_t j = 0; j < n; ++j) {
    T* row = a + j * n;
    int64_t p = j;
    for (int64_t i = j + 1; i < n; ++i) p = size_of(row[i]) > size_of(row[p]) ? i : p;
    pivots[j] = static_cast<int>(p) + 1;
    if (row[p] == T(0)) {
      if (failed == 0) failed = static_cast<int>(j) + 1;
      continue;
    }
    if (p != j) {
      for (int64_t i = 0; i < n; ++i) std::swap(a[i * n + j], a[i * n + p]);
    }
    for (int64_t i = j + 1; i < n; ++i) row[i] /= row[j];
    for (int64_t i = j + 1; i < n; ++i) subtract(n - j - 1, a[i * n + j], row + j + 1, a + i * n + j + 1);
  }
  return failed;
}

// b[n × k] := op(a)⁻¹ b; op is the adjoint if `adjoint`, and a diagonal of 1 is not read if `unit`.
template <class T>
void solve_left(bool upper, bool adjoint, bool unit, int64_t n, int64_t k, const T* a, T* b) {
  const bool forward = upper == adjoint;  // op(a) is a lower triangle
  const auto element = [&](int64_t i, int64_t j) { return adjoint ? lapack::conjugate(a[j * n + i]) : a[i * n + j]; };
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = forward ? step : n - 1 - step;
    T* row = b + i * k;
    for (int64_t j = forward ? 0 : i + 1; j < (forward ? i : n); ++j) subtract(k, element(i, j), b + j * k, row);
    if (unit) continue;
    const T diagonal = element(i, i);
    for (int64_t c = 0; c < k; ++c) row[c] /= diagonal;
  }
}

}  // namespace wengert::small
