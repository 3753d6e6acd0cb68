// log, log2, log10, log1p.
#pragma once
#include "vector_number.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// The method and the coefficients are fdlibm's (e_log.c, e_logf.c): with x = 2^k (1 + f) and s = f / (2 + f),
// log(1 + f) = f - (f^2/2 - s (f^2/2 + R(s^2))).

WENGERT_INLINE float log_remainder(float z) {
  return z * polynomial(z, 0xaaaaaa.0p-24f, 0xccce13.0p-25f, 0x91e9ee.0p-25f, 0xf89e26.0p-26f);
}
WENGERT_INLINE double log_remainder(double z) {
  return z * polynomial(z, 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
                        2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
                        1.479819860511658591e-01);
}

template <class T>
struct LogArgument {
  T k;          // x = 2^k (1 + f)
  T f;          // sqrt(1/2) - 1 <= f < sqrt(2) - 1
  BitsOf<T> n;  // k as an integer
};

// For positive normal numbers.
template <class T>
WENGERT_INLINE LogArgument<T> reduce_log(T x) {
  using F = Format<T>;
  constexpr BitsOf<T> kFraction = (BitsOf<T>{1} << F::kMantissa) - 1;
  const BitsOf<T> b = to_bits(x) + (to_bits(T{1}) - F::kSqrtHalf);
  const BitsOf<T> n = (b >> F::kMantissa) - F::kBias;
  return {integer_to_float<T>(n), from_bits<T>((b & kFraction) + F::kSqrtHalf) - T{1}, n};
}

// For positive numbers, subnormal ones too.
template <class T>
WENGERT_INLINE LogArgument<T> reduce_log_of_any(T x) {
  using F = Format<T>;
  const BitsOf<T> subnormal = mask<T>(x < F::kMinNormal);
  const T lift = from_bits<T>(to_bits(T{1}) + (subnormal & (to_bits(F::kLift) - to_bits(T{1}))));
  LogArgument<T> a = reduce_log(x * lift);
  a.k -= from_bits<T>(subnormal & to_bits(F::kLiftExponent));
  return a;
}

// k log(2) + log(1 + f), summed from the small to the large. In single precision without a division: a
// minimax polynomial of (log(1 + f) - f + f^2/2) / f^3 (Remez exchange in 40 digits, relative error of the
// whole 2^-27).
WENGERT_INLINE float log_of_parts(float k, float f) {
  const float z = f * f;
  const float p = polynomial(f, 0x1.55554ap-2f, -0x1.00022p-2f, 0x1.99a596p-3f, -0x1.54788ap-3f, 0x1.226e4ap-3f,
                             -0x1.0ce07ep-3f, 0x1.07d0eep-3f, -0x1.41edfap-4f);
  const float rest = madd(z * f, p, madd(z, -0.5f, k * Format<float>::kLn2Low));
  return madd(k, Format<float>::kLn2High, rest + f);
}
WENGERT_INLINE double log_of_parts(double k, double f) {
  const double s = f / (2.0 + f);
  const double half_square = 0.5 * f * f;
  const double rest = madd(k, Format<double>::kLn2Low, s * (half_square + log_remainder(s * s)));
  return madd(k, Format<double>::kLn2High, f - (half_square - rest));
}

template <class T>
WENGERT_INLINE T log_special(T x, T y) {
  using F = Format<T>;
  y = x < F::kInf ? y : x;  // infinity and NaN
  y = x == T{0} ? -F::kInf : y;
  return x < T{0} ? F::kNaN : y;
}

// k log(2) + log(1 + f) in another base: the product with 1/log(base) is done in two parts (fdlibm's
// e_log10.c).
template <class T>
WENGERT_INLINE T log_in_base(T f, T inverse_high, T inverse_low, T base, T base_rest) {
  const T s = f / (T{2} + f);
  const T half_square = static_cast<T>(0.5) * f * f;
  const T high = from_bits<T>(to_bits(f - half_square) & Format<T>::kUpperHalf);
  const T low = (f - high) - half_square + s * (half_square + log_remainder(s * s));
  const T product = high * inverse_high;
  const T rest = base_rest + (low + high) * inverse_low + low * inverse_high;
  const T sum = base + product;
  return (rest + ((base - sum) + product)) + sum;
}

namespace math {

template <class T>
WENGERT_INLINE T log(T x) {
  const auto a = reduce_log_of_any(x);
  return log_special(x, log_of_parts(a.k, a.f));
}

template <class T>
WENGERT_INLINE T log2(T x) {
  using F = Format<T>;
  const auto a = reduce_log_of_any(x);
  return log_special(x, log_in_base(a.f, F::kLog2High, F::kLog2Low, a.k, T{0}));
}

template <class T>
WENGERT_INLINE T log10(T x) {
  using F = Format<T>;
  const auto a = reduce_log_of_any(x);
  const T y = log_in_base(a.f, F::kLog10High, F::kLog10Low, a.k * F::kLog10Of2High, a.k * F::kLog10Of2Low);
  return log_special(x, y);
}

// log of u = 1 + x, where what the rounding of u lost is put back into the fraction.
template <class T>
WENGERT_INLINE T log1p(T x) {
  const T u = T{1} + x;
  const T lost = x >= T{1} ? T{1} - (u - x) : x - (u - T{1});
  const auto a = reduce_log(u);
  // 2^-k; from k = 126 on the loss is below every digit and any tiny factor will do.
  const T scale = power_of_two<T>(a.k > static_cast<T>(100) ? BitsOf<T>{0} - 100 : BitsOf<T>{0} - a.n);
  const T f = madd(lost, scale, a.f);
  return x == T{0} ? x : log_special(u, log_of_parts(a.k, f));
}

}  // namespace math

}  // namespace wengert::WENGERT_ISA_NAMESPACE
