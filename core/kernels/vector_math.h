// Elementary functions as branch-free arithmetic that the compiler turns into vector code. A lane and a
// scalar tail run the same operations, so a result depends on its own element only. Everything is in the
// namespace of the instruction set it is compiled for, calls no std:: template and is inlined: a copy built
// for a newer machine can never be linked into the code of an older one.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#define WENGERT_INLINE [[gnu::always_inline]] inline

namespace wengert::WENGERT_ISA_NAMESPACE {

// The C library, overloaded by type.
namespace libm {
#define WENGERT_LIBM(name)                                              \
  WENGERT_INLINE float name(float x) { return __builtin_##name##f(x); } \
  WENGERT_INLINE double name(double x) { return __builtin_##name(x); }
#define WENGERT_LIBM2(name)                                                         \
  WENGERT_INLINE float name(float x, float y) { return __builtin_##name##f(x, y); } \
  WENGERT_INLINE double name(double x, double y) { return __builtin_##name(x, y); }
WENGERT_LIBM(fabs)
WENGERT_LIBM(floor)
WENGERT_LIBM(ceil)
WENGERT_LIBM(trunc)
WENGERT_LIBM(rint)
WENGERT_LIBM(sqrt)
WENGERT_LIBM(exp)
WENGERT_LIBM(log)
WENGERT_LIBM(log1p)
WENGERT_LIBM(sin)
WENGERT_LIBM(cos)
WENGERT_LIBM(tan)
WENGERT_LIBM(asin)
WENGERT_LIBM(acos)
WENGERT_LIBM(atan)
WENGERT_LIBM(sinh)
WENGERT_LIBM(cosh)
WENGERT_LIBM(asinh)
WENGERT_LIBM(acosh)
WENGERT_LIBM(atanh)
WENGERT_LIBM(erf)
WENGERT_LIBM(erfc)
WENGERT_LIBM2(pow)
WENGERT_LIBM2(atan2)
WENGERT_LIBM2(hypot)
WENGERT_LIBM2(fmod)
WENGERT_LIBM2(copysign)
#undef WENGERT_LIBM
#undef WENGERT_LIBM2
// The reentrant form: plain lgamma writes the global `signgam`.
inline float lgamma(float x) {
  int sign;
  return __builtin_lgammaf_r(x, &sign);
}
inline double lgamma(double x) {
  int sign;
  return __builtin_lgamma_r(x, &sign);
}
}  // namespace libm

// The layout of a floating type, and the constants that its algorithms need.
template <class T>
struct Format;

template <>
struct Format<float> {
  using Bits = uint32_t;
  static constexpr int kMantissa = 23;
  static constexpr Bits kBias = 127;
  static constexpr float kInf = __builtin_inff();
  static constexpr float kNaN = __builtin_nanf("");
  static constexpr float kMinNormal = 0x1p-126f;
  static constexpr float kLift = 0x1p25f, kLiftExponent = 25.0f;  // makes a subnormal number normal
  // Adding it leaves the nearest integer in the low bits of the sum.
  static constexpr float kRounder = 0x1.8p23f;
  // Beyond these exp is 0 and infinity.
  static constexpr float kExpLow = -104.0f, kExpHigh = 89.0f;
  static constexpr float kExpm1Low = -20.0f;
  static constexpr float kTanhHigh = 10.0f;  // tanh rounds to 1
  // ln 2 and others in two parts; the product of the high part with an exponent is exact.
  static constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;
  static constexpr float kLog2High = 0x1.714p0f, kLog2Low = 0x1.47652cp-12f;     // 1/ln 2
  static constexpr float kLog10High = 0x1.bcap-2f, kLog10Low = 0x1.7b1526p-14f;  // 1/ln 10
  static constexpr float kLog10Of2High = 0x1.344p-2f, kLog10Of2Low = 0x1.3509f8p-18f;
  static constexpr Bits kSqrtHalf = 0x3f3504f3u;
  static constexpr Bits kUpperHalf = 0xfffff000u;  // mask of a value whose square is exact
};

template <>
struct Format<double> {
  using Bits = uint64_t;
  static constexpr int kMantissa = 52;
  static constexpr Bits kBias = 1023;
  static constexpr double kInf = __builtin_inf();
  static constexpr double kNaN = __builtin_nan("");
  static constexpr double kMinNormal = 0x1p-1022;
  static constexpr double kLift = 0x1p54, kLiftExponent = 54.0;
  static constexpr double kRounder = 0x1.8p52;
  static constexpr double kExpLow = -746.0, kExpHigh = 710.0;
  static constexpr double kExpm1Low = -40.0;
  static constexpr double kTanhHigh = 22.0;
  static constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  static constexpr double kLog2High = 0x1.7154764p0, kLog2Low = 0x1.2b82fe1777d10p-28;
  static constexpr double kLog10High = 0x1.bcb7b14p-2, kLog10Low = 0x1.26e50e32a6ab7p-30;
  static constexpr double kLog10Of2High = 0x1.34413509f6p-2, kLog10Of2Low = 0x1.9fef311f12b36p-42;
  static constexpr Bits kSqrtHalf = 0x3fe6a09e667f3bcdu;
  static constexpr Bits kUpperHalf = 0xfffffffff8000000u;
};

template <class T>
using BitsOf = typename Format<T>::Bits;

template <class T>
WENGERT_INLINE BitsOf<T> to_bits(T x) {
  return std::bit_cast<BitsOf<T>>(x);
}

template <class T>
WENGERT_INLINE T from_bits(BitsOf<T> b) {
  return std::bit_cast<T>(b);
}

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
inline constexpr bool kFused = true;
#else
inline constexpr bool kFused = false;
#endif

// a * b + c, fused where the instruction set has it: the only place where products and sums are contracted.
WENGERT_INLINE float madd(float a, float b, float c) { return kFused ? __builtin_fmaf(a, b, c) : a * b + c; }
WENGERT_INLINE double madd(double a, double b, double c) { return kFused ? __builtin_fma(a, b, c) : a * b + c; }

// x^Exponent, from the powers that are there.
template <int Exponent, class T>
WENGERT_INLINE T power_of(T x, T x2, T x4, T x8) {
  return Exponent == 1 ? x : Exponent == 2 ? x2 : Exponent == 4 ? x4 : Exponent == 8 ? x8 : x8 * x8;
}

// c[Begin] + c[Begin + 1] x + ..., `Length` terms of it, by Estrin's scheme. Three quarters b0, b1, b2 are joined as
// b0 + p (b1 + p b2): no deeper than b0 + p b1 + p^2 b2, and nobody needs the product p^2.
template <int Begin, int Length, class T, int N>
WENGERT_INLINE T estrin(const T (&c)[N], T x, T x2, T x4, T x8) {
  constexpr int kHalf = Length / 2, kQuarter = Length / 4;
  if constexpr (Length == 1) {
    return c[Begin];
  } else if constexpr (Begin + kHalf >= N) {
    return estrin<Begin, kHalf>(c, x, x2, x4, x8);
  } else if constexpr (kQuarter > 0 && Begin + kHalf + kQuarter >= N) {
    const T p = power_of<kQuarter>(x, x2, x4, x8);
    const T upper = madd(p, estrin<Begin + kHalf, kQuarter>(c, x, x2, x4, x8),
                         estrin<Begin + kQuarter, kQuarter>(c, x, x2, x4, x8));
    return madd(p, upper, estrin<Begin, kQuarter>(c, x, x2, x4, x8));
  } else {
    return madd(power_of<kHalf>(x, x2, x4, x8), estrin<Begin + kHalf, kHalf>(c, x, x2, x4, x8),
                estrin<Begin, kHalf>(c, x, x2, x4, x8));
  }
}

// c0 + c1 x + c2 x^2 + ... in a tree: Horner's chain waits for each product, and the loops here are bound by
// latency.
template <class T, class... C>
WENGERT_INLINE T polynomial(T x, C... coefficients) {
  static_assert(sizeof...(C) <= 32);
  const T c[] = {coefficients...};
  const T x2 = x * x, x4 = x2 * x2;
  return estrin<0, 32>(c, x, x2, x4, x4 * x4);
}

// NaN passes through: it compares false.
template <class T>
WENGERT_INLINE T at_most(T x, T high) {
  return x > high ? high : x;
}
// Both comparisons are of x itself: two selects. Of a chain the compiler makes a tangle of masks.
template <class T>
WENGERT_INLINE T clamp(T x, T low, T high) {
  const T y = x < low ? low : x;
  return x > high ? high : y;
}

template <class T>
WENGERT_INLINE T with_sign_of(T magnitude, T sign) {
  constexpr BitsOf<T> kSign = BitsOf<T>{1} << (sizeof(T) * 8 - 1);
  return from_bits<T>((to_bits(magnitude) & ~kSign) | (to_bits(sign) & kSign));
}

// All ones where the condition holds. For `x & mask` instead of `condition ? x : 0`, of which the compiler
// may make two paths, both of them computed.
template <class T>
WENGERT_INLINE BitsOf<T> mask(bool condition) {
  return BitsOf<T>{0} - static_cast<BitsOf<T>>(condition);
}

template <class T>
WENGERT_INLINE T magnitude(T x) {
  constexpr BitsOf<T> kSign = BitsOf<T>{1} << (sizeof(T) * 8 - 1);
  return from_bits<T>(to_bits(x) & ~kSign);
}

// A small integer, kept modulo 2^bits, as a floating number (there is no 64-bit conversion before AVX-512).
template <class T>
WENGERT_INLINE T integer_to_float(BitsOf<T> n) {
  return from_bits<T>(n + to_bits(Format<T>::kRounder)) - Format<T>::kRounder;
}

// 2^n for exponents of normal numbers, n modulo 2^bits.
template <class T>
WENGERT_INLINE T power_of_two(BitsOf<T> n) {
  return from_bits<T>((n + Format<T>::kBias) << Format<T>::kMantissa);
}

// (1 + y) 2^n. The power is applied in two steps, so that a subnormal result is rounded once and 2^128 may
// appear.
template <class T>
WENGERT_INLINE T scale_successor(T y, BitsOf<T> n) {
  constexpr BitsOf<T> kOffset = 2048;  // keeps the shifted value positive: no arithmetic 64-bit shift in AVX2
  const BitsOf<T> half = ((n + 2 * kOffset) >> 1) - kOffset;
  const T s = power_of_two<T>(half);
  return madd(s, y, s) * power_of_two<T>(n - half);
}

// exp
// ----------------------------------------------------------------------------------------------------------

// e^r - 1 for |r| <= ln(2) / 2. Minimax polynomials of (e^r - 1 - r) / r^2 (Remez exchange in 40 digits,
// relative error of the whole 2^-32 and 2^-61).
WENGERT_INLINE float expm1_reduced(float r) {
  const float q = polynomial(r, 0.5f, 0x1.555556p-3f, 0x1.5554acp-5f, 0x1.11108ep-7f, 0x1.6d7758p-10f, 0x1.a1a48ap-13f);
  return madd(r * r, q, r);
}
WENGERT_INLINE double exp_quadratic(double r) {  // (e^r - 1 - r) / r^2
  return polynomial(r, 0.5, 0.16666666666666677, 0.041666666666666706, 0.008333333333321234, 0.0013888888888866123,
                    0.00019841269887251983, 2.4801587361984776e-05, 2.7557242968047823e-06, 2.755724152808571e-07,
                    2.5109503685246473e-08, 2.092482628713759e-09);
}
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

// log
// ----------------------------------------------------------------------------------------------------------
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

// sin, cos, tan
// ------------------------------------------------------------------------------------------------ x = q pi/2
// + r, |r| <= pi/4, by Cody and Waite's subtraction of pi/2 in parts. Beyond kTrigLimit the caller takes the
// C library for that element. Constants and polynomials: fdlibm (e_rem_pio2.c, k_sin.c, k_cos.c) and
// FreeBSD's msun (e_rem_pio2f.c); single-precision polynomials: Cephes (sinf.c).

template <class T>
inline constexpr T kTrigLimit = 0x1p20;
template <>
inline constexpr float kTrigLimit<float> = 0x1p28f;

template <class T>
struct TrigArgument {
  T r, tail;    // r + tail, the tail below half a unit of r
  BitsOf<T> q;  // the quadrant modulo 4 in the low bits
};

// Reduced in double: that is exact enough up to 2^28 and cheaper than more parts in float.
WENGERT_INLINE TrigArgument<float> reduce_trig(float x) {
  constexpr double kRounder = Format<double>::kRounder;
  const double wide = x;
  const double t = madd(wide, 6.36619772367581382433e-01, kRounder);
  const double n = t - kRounder;
  const double r = madd(n, -1.58932547735281966916e-08, madd(n, -1.57079631090164184570e+00, wide));
  return {static_cast<float>(r), 0.0f, static_cast<uint32_t>(to_bits(t))};
}
WENGERT_INLINE TrigArgument<double> reduce_trig(double x) {
  constexpr double kRounder = Format<double>::kRounder;
  const double t = madd(x, 6.36619772367581382433e-01, kRounder);
  const double n = t - kRounder;
  const double first = madd(n, -1.57079632673412561417e+00, x);  // exact: 33 bits times 20
  const double second = n * 6.07710050630396597660e-11;          // exact as well
  const double r = first - second;
  const double rest = n * 2.02226624879595063154e-21 - ((first - r) - second);
  const double sum = r - rest;
  return {sum, (r - sum) - rest, to_bits(t)};
}

WENGERT_INLINE float sin_reduced(const TrigArgument<float>& a) {
  const float z = a.r * a.r;
  const float p = polynomial(z, -1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f);
  return madd(z * a.r, p, a.r);
}
WENGERT_INLINE float cos_reduced(const TrigArgument<float>& a) {
  const float z = a.r * a.r;
  const float p = polynomial(z, 4.166664568298827e-2f, -1.388731625493765e-3f, 2.443315711809948e-5f);
  return madd(z * z, p, madd(z, -0.5f, 1.0f));
}
WENGERT_INLINE double sin_reduced(const TrigArgument<double>& a) {
  const double z = a.r * a.r, v = z * a.r;
  const double p = polynomial(z, 8.33333333332248946124e-03, -1.98412698298579493134e-04, 2.75573137070700676789e-06,
                              -2.50507602534068634195e-08, 1.58969099521155010221e-10);
  return a.r - ((z * (0.5 * a.tail - v * p) - a.tail) - v * -1.66666666666666324348e-01);
}
WENGERT_INLINE double cos_reduced(const TrigArgument<double>& a) {
  const double z = a.r * a.r;
  const double p = polynomial(z, 4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
                              -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11);
  const double half = 0.5 * z, w = 1.0 - half;
  return w + (((1.0 - w) - half) + (z * (z * p) - a.r * a.tail));
}

// sin of the reduced argument `quadrant` quarter turns further on.
template <class T>
WENGERT_INLINE T sin_of_quadrant(const TrigArgument<T>& a, BitsOf<T> quadrant) {
  const BitsOf<T> q = a.q + quadrant;
  const T y = (q & 1) != 0 ? cos_reduced(a) : sin_reduced(a);
  return from_bits<T>(to_bits(y) ^ ((q & 2) << (sizeof(T) * 8 - 2)));
}

namespace math {

template <class T>
WENGERT_INLINE T sin(T x) {
  const T y = sin_of_quadrant(reduce_trig(x), 0);
  return x == T{0} ? x : y;
}

template <class T>
WENGERT_INLINE T cos(T x) {
  return sin_of_quadrant(reduce_trig(x), 1);
}

template <class T>
WENGERT_INLINE T tan(T x) {
  const auto a = reduce_trig(x);
  const T s = sin_reduced(a), c = cos_reduced(a);
  const bool odd = (a.q & 1) != 0;
  const T y = (odd ? -c : s) / (odd ? s : c);
  return x == T{0} ? x : y;
}

// erf
// ----------------------------------------------------------------------------------------------------------

// Below 0.93 x + x P(x^2), above 1 - exp(|x| Q(|x|)), where |x| Q is log erfc. Minimax polynomials by Remez
// exchange in 40 digits, of erf(x)/x - 1 (relative error 2^-31) and of log(erfc(x))/x on [0.92, 4] (error in
// erf 2^-30).
WENGERT_INLINE float erf(float x) {
  const float a = magnitude(x), z = x * x;
  const float small = polynomial(z, 0x1.06eba8p-3f, -0x1.812742p-2f, 0x1.ce2e0ap-4f, -0x1.b80e9p-6f, 0x1.54c7f6p-8f,
                                 -0x1.aa3f3p-11f, 0x1.5cd4b6p-14f);
  const float t = at_most(a, 4.0f);
  const float large = polynomial(t, -0x1.20ef5ap0f, -0x1.453088p-1f, -0x1.b340fcp-4f, 0x1.85b2fap-6f, -0x1.dee7fap-9f,
                                 0x1.5578bcp-12f, -0x1.829fbep-17f);
  const auto [r, n] = reduce_exp(t * large);
  const float s = power_of_two<float>(n);
  const float tail = -madd(s, expm1_reduced(r), s - 1.0f);
  return a < 0.93f ? madd(x, small, x) : with_sign_of(tail, x);
}

// e^(x^2) erfc(x) (1 + 2x) as a polynomial in t = (x - 4) / (x + 4), which maps [0, inf] to [-1, 1] (the change of
// variable is Schonfelder's, "Chebyshev expansions for the error and related functions", 1978; coefficients by
// interpolation in 60 digits, relative error 2^-28 and 2^-54).
WENGERT_INLINE float erfc_factor(float t) {
  return polynomial(t, 1.23299511863f, -0.139621084315f, 0.0153796836533f, 0.0680961320542f, -0.101039950848f,
                    0.0937404437928f, -0.0663232595359f, 0.0371399168957f, -0.0162222745564f, 0.00508280915434f,
                    -0.000716339471889f, -0.000248632297448f, 0.000116607996582f);
}
WENGERT_INLINE double erfc_factor(double t) {
  return polynomial(t, 1.23299511862555254, -0.139621116840562487, 0.015379652102610162, 0.0680970542546862078,
                    -0.101039066035852937, 0.093732834998651721, -0.0663303658205036706, 0.0371675155318431963,
                    -0.0161977339799242584, 0.00503197003254869501, -0.00075777371418388841, -0.00019925700412184814,
                    0.000150623117851620695, -0.000024398117942079951, -0.0000112251403544496569,
                    5.70723957369325743e-6, 2.98059605532276886e-7, -8.2180206548130448e-7, 7.11191242801042348e-8,
                    1.06834429267445865e-7, -1.6357383982124768e-8, -1.25448254038555187e-8, 1.57121536383190637e-9,
                    9.65540822548286374e-10);
}

// For x >= 0. What the rounding of x^2 lost is found from halves whose products are exact, and put back.
template <class T>
WENGERT_INLINE T erfc_positive(T x) {
  using F = Format<T>;
  const T c = at_most(x, static_cast<T>(sizeof(T) == 4 ? 10.5 : 28.0));  // erfc is 0 there
  const T square = c * c, high = from_bits<T>(to_bits(c) & F::kUpperHalf), low = c - high;
  const T lost = ((high * high - square) + T{2} * high * low) + low * low;
  const T y = exp(-square) * (erfc_factor((c - T{4}) / (c + T{4})) / madd(T{2}, c, T{1}));
  return madd(-lost, y, y);
}

template <class T>
WENGERT_INLINE T erfc(T x) {
  const T y = erfc_positive(magnitude(x));
  return x < T{0} ? T{2} - y : y;
}

// erf(x)/x - 1 of z = x^2, for |x| <= 1 (Chebyshev interpolation in 50 digits, error 2^-62).
WENGERT_INLINE double erf_near_zero(double z) {
  return polynomial(z, 0.128379167095512574, -0.376126389031837481, 0.112837916709548787, -0.0268661706450767932,
                    0.00522397762481801447, -0.000854832698083378991, 0.000120553311116427109,
                    -0.0000149255952668311816, 1.6461000484121368e-6, -1.6350312701054695e-7, 1.46597752740474358e-8,
                    -1.13728488567916737e-9, 5.9571761477489114e-11);
}

// Above 1, 1 - erfc without what x^2 lost in rounding, which does not count beside the 1.
WENGERT_INLINE double erf(double x) {
  const double a = magnitude(x), c = at_most(a, 6.0), z = c * c;  // erf rounds to 1 there
  const auto [r, n] = reduce_exp(-z);
  const double s = power_of_two<double>(n);
  const double rest = madd(s, expm1_reduced(r), s) * (erfc_factor((c - 4.0) / (c + 4.0)) / madd(2.0, c, 1.0));
  return a < 1.0 ? madd(x, erf_near_zero(z), x) : with_sign_of(1.0 - rest, x);
}

// GELU and its slope are made of Phi(-a) = e^(-a^2/2) R(a), where a = |x| and R is Mills' ratio. The exponential is
// lifted by 2^100 and R by 2^-100, so that a subnormal result in the tail is rounded once, in the product of the two.
inline constexpr int kTailLift = 100;

// |x|, as far as the tail is a number: the smaller of two numbers by their bits, NaN taken for the limit. Of a select
// the compiler makes selects of all that follows from it.
template <class T>
WENGERT_INLINE T tail_argument(T x) {
  using Signed = std::make_signed_t<BitsOf<T>>;
  constexpr Signed kEnd = std::bit_cast<Signed>(static_cast<T>(sizeof(T) == 4 ? 15.0 : 39.0));
  const Signed over = std::bit_cast<Signed>(magnitude(x)) - kEnd;
  return std::bit_cast<T>(kEnd + (over & (over >> (8 * sizeof(T) - 1))));
}

// 2 (e^(d/2) - 1) for |d| <= ln 2. In single precision a term less than expm1_reduced has (minimax, 2^-28 of e^(d/2)).
WENGERT_INLINE float twice_expm1_of_half(float d) {
  return madd(d * d, polynomial(d, 0x1.fffffcp-3f, 0x1.555494p-5f, 0x1.5558bep-8f, 0x1.123856p-11f, 0x1.6a3d12p-15f),
              d);
}
WENGERT_INLINE double twice_expm1_of_half(double d) { return 2.0 * expm1_reduced(0.5 * d); }

// 2^100 e^(-a^2/2) with -a^2 = 2 n ln 2 + d, in which the fused product keeps what the rounding of a^2 would lose. The
// rounder holds the lift, and n goes straight into the exponent: no NaN comes here.
template <class T>
WENGERT_INLINE T lifted_gaussian(T a) {
  using F = Format<T>;
  constexpr T kRounder = F::kRounder + (kTailLift - 1);
  const T t = madd(a * static_cast<T>(-0.72134752044448170368), a, kRounder);
  const T n = t - kRounder;
  const T d = madd(n, T{-2} * F::kLn2Low, madd(-a, a, n * (T{-2} * F::kLn2High)));
  return from_bits<T>(to_bits(T{2} + twice_expm1_of_half(d)) + (to_bits(t) << F::kMantissa));
}

// 2^-100 R(a) (a + k), a polynomial in t = (a - k)/(a + k) (minimax on [0, 14.5], relative error 2^-28), times `scale`.
inline constexpr float kMillsCentre = 4.25f;
WENGERT_INLINE float mills_polynomial(float t, float scale) {
  return polynomial(t, scale * 0x1.84e44ap-101f, scale * -0x1.401104p-101f, scale * 0x1.ac43d4p-102f,
                    scale * -0x1.c39d64p-103f, scale * 0x1.5d4712p-104f, scale * -0x1.3d53acp-106f,
                    scale * -0x1.8bad4ap-111f, scale * 0x1.1e6d7cp-109f, scale * -0x1.77cd78p-112f,
                    scale * -0x1.e4255ep-113f);
}
WENGERT_INLINE float mills_ratio(float a) {
  const float u = 1.0f / (a + kMillsCentre);
  return u * mills_polynomial(madd(a + a, u, -1.0f), 1.0f);
}
WENGERT_INLINE double mills_ratio(double a) {
  const double c = a * 0.70710678118654752440;
  return 0x1p-101 * (erfc_factor((c - 4.0) / (c + 4.0)) / madd(2.0, c, 1.0));
}

// x Phi(x) = max(x, 0) - |x| Phi(-|x|): the left tail keeps its digits. In single precision a R(a) is half of
// v = 2a/(a + k) times a polynomial in t = v - 1.
WENGERT_INLINE float gelu(float x) {
  const float a = tail_argument(x), v = (a + a) / (a + kMillsCentre);
  return madd(v * lifted_gaussian(a), mills_polynomial(v - 1.0f, -0.5f), x < 0.0f ? 0.0f : x);
}
WENGERT_INLINE double gelu(double x) {
  const double a = tail_argument(x);
  return madd(-a * lifted_gaussian(a), mills_ratio(a), x < 0.0 ? 0.0 : x);
}

// Phi(x) + x phi(x)
template <class T>
WENGERT_INLINE T gelu_slope(T x) {
  constexpr T kPeak = static_cast<T>(0.39894228040143267794 * 0x1p-100);  // of the density
  const T a = tail_argument(x), left = lifted_gaussian(a) * madd(a, -kPeak, mills_ratio(a));
  const T y = x > T{0} ? T{1} - left : left;
  return from_bits<T>(to_bits(y) | mask<T>(x != x));
}

// erfinv(x)/x to single precision, as a polynomial in w = -log(1 - x^2), or its root in the tails, up to w = 17 (Giles,
// "Approximating the erfinv function", 2010).
template <class T>
WENGERT_INLINE T erfinv_factor(T w) {
  const T middle =
      polynomial(w - T{2.5f}, T{1.50140941f}, T{0.246640727f}, T{-0.00417768164f}, T{-0.00125372503f},
                 T{0.00021858087f}, T{-4.39150654e-06f}, T{-3.5233877e-06f}, T{3.43273939e-07f}, T{2.81022636e-08f});
  const T tail =
      polynomial(libm::sqrt(w) - T{3}, T{2.83297682f}, T{1.00167406f}, T{0.00943887047f}, T{-0.0076224613f},
                 T{0.00573950773f}, T{-0.00367342844f}, T{0.00134934322f}, T{0.000100950558f}, T{-0.000200214257f});
  return w < T{5} ? middle : tail;
}

// The logarithm's argument is normal wherever there is a result.
WENGERT_INLINE float erfinv(float x) {
  const auto [k, f, n] = reduce_log((1.0f - x) * (1.0f + x));
  const float w = -log_of_parts(k, f);
  const float a = magnitude(x), end = a == 1.0f ? with_sign_of(Format<float>::kInf, x) : Format<float>::kNaN;
  return a < 1.0f ? x * erfinv_factor(w) : end;
}

// For |y| <= kErfinvLimit: the estimate in single precision, then one step of Halley's on erf or on erfc, whichever
// keeps its digits; it cubes the error.
inline constexpr double kErfinvLimit = 0.9999;
WENGERT_INLINE double erfinv(double y) {
  const double a = magnitude(y);
  const auto [k, f, n] = reduce_log((1.0 - a) * (1.0 + a));
  const double x = a * erfinv_factor(-log_of_parts(k, f)), z = x * x;
  const double near = madd(x, erf_near_zero(z), x) - a, far = (1.0 - a) - erfc_positive(x);
  const double step = (a < 0.5 ? near : far) / (1.12837916709551257390 * exp(-z));
  return with_sign_of(x - step / madd(x, step, 1.0), y);
}

// Beyond, Wichura's AS 241 for the normal quantile, with the argument given as erf's, then one Newton step.
inline double erfinv_far(double y) {
  const double a = magnitude(y);
  if (!(a < 1.0)) return a == 1.0 ? with_sign_of(Format<double>::kInf, y) : Format<double>::kNaN;
  constexpr double kSqrtHalf = 0.70710678118654752440;
  double x;
  double r = libm::sqrt(-libm::log(0.5 * (1.0 - a)));
  if (r <= 5.0) {
    r -= 1.6;
    x = polynomial(r, 1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
                   3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
                   2.27238449892691845833e-2, 7.74545014278341407640e-4) /
        polynomial(r, 1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
                   1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
                   1.05075007164441684324e-9);
  } else {
    r -= 5.0;
    x = polynomial(r, 6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
                   2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                   2.71155556874348757815e-5, 2.01033439929228813265e-7) /
        polynomial(r, 1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
                   7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
                   2.04426310338993978564e-15);
  }
  x *= kSqrtHalf;
  const double slope = 1.12837916709551257390 * libm::exp(-x * x);
  x -= ((1.0 - a) - libm::erfc(x)) / slope;
  return with_sign_of(x, y);
}

}  // namespace math

}  // namespace wengert::WENGERT_ISA_NAMESPACE
