// What elementary functions are made of: the layout of floating numbers, fused products, polynomials. Everything is in
// the namespace of the instruction set it is compiled for, calls no std:: template and is inlined: a copy built for a
// newer machine can never be linked into the code of an older one.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "vector_library.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// The layout of a floating type, and the constants that its algorithms need.
template <class T>
struct Format;

template <>
struct Format<float> {
  using Bits = uint32_t;
  static constexpr int kMantissa = 23;
  static constexpr Bits kBias = 127;
  static constexpr float kInf = libm::kInfinityFloat;
  static constexpr float kNaN = libm::kNaNFloat;
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
  static constexpr double kInf = libm::kInfinity;
  static constexpr double kNaN = libm::kNaN;
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

// a * b + c, fused where the instruction set has it: the only place where products and sums are contracted.
WENGERT_INLINE float madd(float a, float b, float c) { return kFused ? libm::fma(a, b, c) : a * b + c; }
WENGERT_INLINE double madd(double a, double b, double c) { return kFused ? libm::fma(a, b, c) : a * b + c; }

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

}  // namespace wengert::WENGERT_ISA_NAMESPACE
