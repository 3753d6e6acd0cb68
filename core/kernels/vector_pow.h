// a^b = e^(b log a), branch-free as the functions of vector_math.h. In single precision through double; in double
// precision the logarithm has about 2^-66 of relative error, in two parts, so that 700 times it still leaves the last
// bit of the result: errors are below one unit in the last place (0.85 was the worst found, for bases near 1 and large
// exponents; 0.9 where the result is subnormal), and an exact power is exact. Without fused multiplication the C
// library is faster.
#pragma once
#include "vector_math.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// high + low, the low part below a unit in the last place of the high one.
struct Pair {
  double high, low;
};

// |a| >= |b|, or a = 0.
WENGERT_INLINE Pair sum_of_ordered(double a, double b) {
  const double s = a + b;
  return {s, b - (s - a)};
}

WENGERT_INLINE Pair exact_product(double a, double b) {
  const double p = a * b;
  return {p, libm::fma(a, b, -p)};
}

// log of a positive number: with q = f / (2 + f), log(1 + f) = 2q + 2/3 q^3 + q^5 P(q^2). P is a minimax polynomial
// (Chebyshev fit in 40 digits, relative error of the whole 2^-70).
WENGERT_INLINE Pair log_in_pair(double x) {
  const auto [k, f, n] = reduce_log_of_any(x);
  const double t = 2.0 + f, t_low = f - (t - 2.0), inverse = 1.0 / t;
  const double q = f * inverse;
  const Pair back = exact_product(q, t);
  const double q_low = (((f - back.high) - back.low) - q * t_low) * inverse;

  const Pair square = exact_product(q, q);
  const double z = square.high, z_low = madd(2.0 * q, q_low, square.low);
  const double p = polynomial(z, 0.4, 0.28571428571429364, 0.22222222221655885, 0.18181818335392802, 0.1538459496251843,
                              0.1333480469384731, 0.11706236339491206, 0.11723178623876518);
  constexpr double kTwoThirds = 2.0 / 3.0, kTwoThirdsLow = 3.700743415417188e-17;
  const Pair factor = sum_of_ordered(kTwoThirds, madd(z, p, kTwoThirdsLow));
  const Pair cube = exact_product(q, z);
  const double cube_low = madd(q, z_low, madd(q_low, z, cube.low));
  const Pair rest = exact_product(cube.high, factor.high);
  const double rest_low = madd(cube.high, factor.low, madd(cube_low, factor.high, rest.low));

  // Every sum has its larger term first, or a zero (k = 0).
  const Pair first = sum_of_ordered(k * Format<double>::kLn2High, 2.0 * q);
  const Pair second = sum_of_ordered(first.high, rest.high);
  const double low = madd(k, Format<double>::kLn2Low, madd(2.0, q_low, rest_low));
  return sum_of_ordered(second.high, (first.low + second.low) + low);
}

// e^(high + low). 1 + r is kept exactly, so that there is one rounding of the size of the result.
WENGERT_INLINE double exp_of_pair(Pair x) {
  using F = Format<double>;
  const double c = clamp(x.high, F::kExpLow, F::kExpHigh);
  const double t = madd(c, 1.4426950408889634, F::kRounder), n = t - F::kRounder;
  const double high = madd(n, -F::kLn2High, c);  // exact
  const double low = madd(n, -F::kLn2Low, c == x.high ? x.low : 0.0), r = high + low;
  const Pair successor = sum_of_ordered(1.0, high);
  const double y = successor.high + (successor.low + madd(r * r, exp_quadratic(r), low));
  return scale_successor(y - 1.0, to_bits(t) - to_bits(F::kRounder));
}

// a^b for a > 0 and |b| <= 2^64; any finite number for a = 0 and infinity.
WENGERT_INLINE double power_of_positive(double a, double b) {
  const Pair l = log_in_pair(a), product = exact_product(b, l.high);
  return exp_of_pair({product.high, madd(b, l.low, product.low)});
}

// As above, with polynomials of a relative error of 2^-43 (log) and 2^-38 (exp).
WENGERT_INLINE float power_of_positive(float a, float b) {
  const auto [k, f, unused] = reduce_log(static_cast<double>(a));  // subnormal numbers are normal in double
  const double q = f / (2.0 + f), z = q * q;
  const double g = polynomial(z, 0.6666666666737545, 0.39999998796848674, 0.2857175463573276, 0.22191394493175057,
                              0.19362776836747533);
  const double log = madd(k, 0x1.62e42fefa39efp-1, madd(q * z, g, q + q));
  const auto [r, n] = reduce_exp(clamp(static_cast<double>(b) * log, -104.0, 89.0));
  const double e = polynomial(r, 0.5, 0.16666666719028936, 0.04166666671901226, 0.00833329846980059,
                              0.001388885403566671, 0.00019899285575896282, 2.4859589834589056e-05);
  const double s = power_of_two<double>(n);
  return static_cast<float>(madd(s, madd(r * r, e, r), s));
}

// From 2^mantissa on every number is whole.
template <class T>
WENGERT_INLINE bool is_whole(T x) {
  constexpr T kWhole = static_cast<T>(BitsOf<T>{1} << Format<T>::kMantissa);
  const T a = magnitude(x);
  return (a >= kWhole) | ((a + kWhole) - kWhole == a);
}

namespace math {

// C's pow (annex F.9.4.4): a^0 and 1^b are 1 even for NaN, and infinity is an even exponent.
template <class T>
WENGERT_INLINE T pow(T a, T b) {
  if constexpr (!kFused) return libm::pow(a, b);
  using F = Format<T>;
  constexpr int kSignShift = sizeof(T) * 8 - 1;
  const T base = magnitude(a);
  // Beyond 2^64 every power but that of 1 is 0 or infinite; an infinite exponent would make NaN of 1.
  T y = power_of_positive(base, clamp(b, static_cast<T>(-0x1p64), static_cast<T>(0x1p64)));
  const bool zero = base == T{0}, endless = base == F::kInf;
  y = zero | endless ? (zero != (b < T{0}) ? T{0} : F::kInf) : y;

  const bool whole = is_whole(b), odd = whole & !is_whole(b * static_cast<T>(0.5));
  const BitsOf<T> sign = (to_bits(a) >> kSignShift << kSignShift) & mask<T>(odd);
  y = from_bits<T>(to_bits(y) ^ sign);
  y = (a < T{0}) & !endless & !whole ? F::kNaN : y;
  y = (a != a) | (b != b) ? a + b : y;
  return (b == T{0}) | (a == T{1}) ? T{1} : y;
}

}  // namespace math

}  // namespace wengert::WENGERT_ISA_NAMESPACE
