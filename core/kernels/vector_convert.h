// Conversions of one element between all dtypes. Floating to integer saturates and takes NaN to 0; complex to real
// drops the imaginary part; anything to bool asks whether it is nonzero; integers wrap.
#pragma once
#include "vector_types.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

template <Integer To, Float From>
WENGERT_INLINE To saturate(From x) {
  // The limits as powers of two, exact in every floating type: values below 2^bits truncate to a valid
  // integer.
  constexpr int kBits = static_cast<int>(sizeof(To) * 8) - std::is_signed_v<To>;
  constexpr To kMax = std::is_signed_v<To> ? static_cast<To>((uint64_t{1} << kBits) - 1) : static_cast<To>(-1);
  constexpr From kHigh = static_cast<From>(uint64_t{1} << (kBits - 1)) * From{2};
  constexpr From kLow = std::is_signed_v<To> ? -kHigh : From{0};
  const bool high = x >= kHigh;
  From inside = high | (x != x) ? From{0} : x;
  inside = inside < kLow ? kLow : inside;
  const To converted = static_cast<To>(inside);
  return high ? kMax : converted;
}

// To float so that a second rounding, to 16 bits, gives what one rounding from double gives: an inexact
// result is truncated and made odd, which no halfway case is (round to odd).
WENGERT_INLINE float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = nearest;
  const uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const uint32_t truncated = magnitude(back) > magnitude(x) ? bits - 1 : bits;
  return std::bit_cast<float>((back == x) | (x != x) ? bits : truncated | 1);
}

// One element. Bool is told from UInt8 by the dtype; 16-bit floating types pass through float.
template <DType From, DType To>
WENGERT_INLINE Storage<To> convert(Storage<From> x) {
  using S = Storage<From>;
  using T = Storage<To>;
  if constexpr (HalfNumber<S>) {
    return convert<DType::Float32, To>(widen(x));
  } else if constexpr (ComplexNumber<S>) {
    if constexpr (To == DType::Bool) {
      return static_cast<uint8_t>((x.re != 0) | (x.im != 0));
    } else if constexpr (ComplexNumber<T>) {
      using R = decltype(T::re);
      return {static_cast<R>(x.re), static_cast<R>(x.im)};
    } else {
      return convert<real_of(From), To>(x.re);
    }
  } else if constexpr (To == DType::Bool) {
    return static_cast<uint8_t>(x != S{0});
  } else if constexpr (ComplexNumber<T>) {
    using R = decltype(T::re);
    return {static_cast<R>(x), R{0}};
  } else if constexpr (HalfNumber<T>) {
    if constexpr (sizeof(S) >= 4 && !std::is_same_v<S, float>) {
      // Integers beyond 2^53 are rounded to double first.
      return narrow<T>(round_to_odd(static_cast<double>(x)));
    } else {
      return narrow<T>(static_cast<float>(x));
    }
  } else if constexpr (Float<S> && Integer<T>) {
    return saturate<T>(x);
  } else {
    return static_cast<T>(x);
  }
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
