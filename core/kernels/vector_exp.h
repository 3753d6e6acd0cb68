// exp, exp2, expm1, and what follows from them: tanh and sigmoid.
#pragma once
#include "vector_number.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// e^r - 1 for |r| <= ln(2) / 2. Minimax polynomials of (e^r - 1 - r) / r^2 (Remez exchange in 40 digits,
// relative error of the whole 2^-32 and 2^-61).
template <class T>
WENGERT_INLINE T expm1_reduced_single(T r) {
  const T q = polynomial(r, 0.5f, 0x1.555556p-3f, 0x1.5554acp-5f, 0x1.11108ep-7f, 0x1.6d7758p-10f, 0x1.a1a48ap-13f);
  return madd(r * r, q, r);
}
template <class T>
WENGERT_INLINE T exp_quadratic(T r) {  // (e^r - 1 - r) / r^2
  return polynomial(r, 0.5, 0.16666666666666677, 0.041666666666666706, 0.008333333333321234, 0.0013888888888866123,
                    0.00019841269887251983, 2.4801587361984776e-05, 2.7557242968047823e-06, 2.755724152808571e-07,
                    2.5109503685246473e-08, 2.092482628713759e-09);
}
WENGERT_INLINE float expm1_reduced(float r) { return expm1_reduced_single(r); }
WENGERT_INLINE double expm1_reduced(double r) { return madd(r * r, exp_quadratic(r), r); }

template <class T>
struct ExpArgument {
  T r;          // the rest, |r| <= ln(2) / 2
  BitsOf<T> n;  // x = n ln 2 + r
};

template <class T>
WENGERT_INLINE ExpArgument<T> reduce_exp(T x) {
  using F = Format<T>;
  const T t = madd(x, static_cast<T>(1.4426950408889634), F::kRounder);
  const T n = t - F::kRounder;
  T r = madd(n, -F::kLn2High, x);
  r = madd(n, -F::kLn2Low, r);
  return {r, to_bits(t) - to_bits(F::kRounder)};
}

template <class T>
WENGERT_INLINE T exp_clamped(T x) {
  const auto [r, n] = reduce_exp(x);
  return scale_successor(expm1_reduced(r), n);
}

namespace math {

template <class T>
WENGERT_INLINE T exp(T x) {
  using F = Format<T>;
  return exp_clamped(clamp(x, F::kExpLow, F::kExpHigh));
}

WENGERT_INLINE float exp2(float x) {
  using F = Format<float>;
  const float c = clamp(x, -151.0f, 129.0f);
  const float t = c + F::kRounder;
  const float r = (c - (t - F::kRounder)) * 0x1.62e43p-1f;
  return scale_successor(expm1_reduced(r), to_bits(t) - to_bits(F::kRounder));
}
WENGERT_INLINE double exp2(double x) {
  using F = Format<double>;
  const double c = clamp(x, -1076.0, 1025.0);
  const double t = c + F::kRounder;
  const double r = (c - (t - F::kRounder)) * 0x1.62e42fefa39efp-1;
  return scale_successor(expm1_reduced(r), to_bits(t) - to_bits(F::kRounder));
}

// e^x - 1 = 2^n (e^r - 1) + (2^n - 1), halved on the way because 2^128 is no number.
template <class T>
WENGERT_INLINE T expm1(T x) {
  using F = Format<T>;
  const auto [r, n] = reduce_exp(clamp(x, F::kExpm1Low, F::kExpHigh));
  const T s = power_of_two<T>(n - 1);
  const T y = T{2} * madd(s, expm1_reduced(r), s - static_cast<T>(0.5));
  return x == T{0} ? x : y;
}

// tanh |x| = (e^2|x| - 1) / (e^2|x| + 1): one formula for the whole range, since e^2|x| - 1 is exact near 0.
template <class T>
WENGERT_INLINE T tanh(T x) {
  using F = Format<T>;
  const T a = at_most(magnitude(x), F::kTanhHigh);
  const auto [r, n] = reduce_exp(a + a);
  const T s = power_of_two<T>(n);
  const T e = madd(s, expm1_reduced(r), s - T{1});
  return with_sign_of(e / (e + T{2}), x);
}

// e^x for x <= 0 and NaN; subnormal results appear in the last product only.
template <class T>
WENGERT_INLINE T exp_not_positive(T x) {
  constexpr int kLifted = 64;
  const T low = Format<T>::kExpLow;
  const auto [r, n] = reduce_exp(x < low ? low : x);
  const T s = power_of_two<T>(n + kLifted);
  return madd(s, expm1_reduced(r), s) * power_of_two<T>(BitsOf<T>{0} - kLifted);
}

// Through e^-|x|, which cannot overflow; the left tail keeps its relative accuracy down to subnormals.
template <class T>
WENGERT_INLINE T sigmoid(T x) {
  const T e = exp_not_positive(-magnitude(x));
  return (x < T{0} ? e : T{1}) / (T{1} + e);
}

}  // namespace math

}  // namespace wengert::WENGERT_ISA_NAMESPACE
