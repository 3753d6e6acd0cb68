// The order of numbers, as unsigned keys.
#pragma once
#include <bit>
#include <type_traits>

#include "number.h"

namespace wengert {

// Numbers as unsigned keys of the same order. Zeros of both signs are one key, as they are equal; NaN is the last.
template <class T>
struct Order {
  using Bits = std::conditional_t<sizeof(T) == 1, uint8_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>>;
  using Key = uint32_t;
};
template <class T>
  requires(sizeof(T) == 8)
struct Order<T> {
  using Bits = uint64_t;
  using Key = uint64_t;
};

template <class T>
inline constexpr bool kFloating = std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;

template <class T>
inline constexpr typename Order<T>::Bits kSignBit =
    static_cast<typename Order<T>::Bits>(typename Order<T>::Bits{1} << (sizeof(T) * 8 - 1));

// The bits of infinity; what has larger ones, but for the sign, is NaN.
template <class T>
inline constexpr typename Order<T>::Bits kInfinity = 0;
template <>
inline constexpr uint16_t kInfinity<Half> = 0x7c00;
template <>
inline constexpr uint16_t kInfinity<BFloat> = 0x7f80;
template <>
inline constexpr uint32_t kInfinity<float> = 0x7f800000u;
template <>
inline constexpr uint64_t kInfinity<double> = 0x7ff0000000000000u;

template <class T>
inline bool is_nan(T x) {
  using B = typename Order<T>::Bits;
  if constexpr (!kFloating<T>) return false;
  return static_cast<B>(std::bit_cast<B>(x) & static_cast<B>(~kSignBit<T>)) > kInfinity<T>;
}

template <class T>
inline typename Order<T>::Key key_of(T x) {
  using B = typename Order<T>::Bits;
  const B b = std::bit_cast<B>(x);
  if constexpr (kFloating<T>) {
    const B magnitude = static_cast<B>(b & static_cast<B>(~kSignBit<T>));
    const B key = static_cast<B>((b & kSignBit<T>) != 0 ? kSignBit<T> - magnitude : kSignBit<T> + magnitude);
    return magnitude > kInfinity<T> ? static_cast<B>(~B{0}) : key;
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<B>(b ^ kSignBit<T>);
  } else {
    return b;
  }
}

template <class T>
inline T value_of(typename Order<T>::Key key) {
  using B = typename Order<T>::Bits;
  const B k = static_cast<B>(key);
  if constexpr (kFloating<T>) {
    return std::bit_cast<T>(k >= kSignBit<T> ? static_cast<B>(k - kSignBit<T>)
                                             : static_cast<B>(kSignBit<T> | (kSignBit<T> - k)));
  } else if constexpr (std::is_signed_v<T>) {
    return std::bit_cast<T>(static_cast<B>(k ^ kSignBit<T>));
  } else {
    return std::bit_cast<T>(k);
  }
}

// What is put in order: n elements, `step` apart.
struct Line {
  int64_t n, step;
  bool descending;
};

}  // namespace wengert
