// Comparisons, logic, bits, and what kind of number it is. One functor per line of elementwise.def.
#pragma once
#include "vector_complex.h"
#include "vector_types.h"

namespace wengert::WENGERT_ISA_NAMESPACE::op {

struct equal {
  static constexpr bool modular = true;
  template <Real T>
  WENGERT_INLINE static bool apply(T a, T b) {
    return a == b;
  }
  template <class T>
  WENGERT_INLINE static bool apply(Complex<T> a, Complex<T> b) {
    return (a.re == b.re) & (a.im == b.im);
  }
};
struct not_equal {
  static constexpr bool modular = true;
  template <Real T>
  WENGERT_INLINE static bool apply(T a, T b) {
    return a != b;
  }
  template <class T>
  WENGERT_INLINE static bool apply(Complex<T> a, Complex<T> b) {
    return (a.re != b.re) | (a.im != b.im);
  }
};
#define WENGERT_COMPARISON(name, symbol)         \
  struct name {                                  \
    template <Real T>                            \
    WENGERT_INLINE static bool apply(T a, T b) { \
      return a symbol b;                         \
    }                                            \
  };
WENGERT_COMPARISON(less, <)
WENGERT_COMPARISON(less_equal, <=)
WENGERT_COMPARISON(greater, >)
WENGERT_COMPARISON(greater_equal, >=)
#undef WENGERT_COMPARISON
struct logical_and {
  WENGERT_INLINE static bool apply(uint8_t a, uint8_t b) { return (a & b) != 0; }
};
struct logical_or {
  WENGERT_INLINE static bool apply(uint8_t a, uint8_t b) { return (a | b) != 0; }
};
struct logical_xor {
  WENGERT_INLINE static bool apply(uint8_t a, uint8_t b) { return a != b; }
};
struct logical_not {
  WENGERT_INLINE static bool apply(uint8_t a) { return a == 0; }
};
struct bitwise_and {
  static constexpr bool modular = true;
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T b) {
    return wrap<T>(a & b);
  }
};
struct bitwise_or {
  static constexpr bool modular = true;
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T b) {
    return wrap<T>(a | b);
  }
};
struct bitwise_xor {
  static constexpr bool modular = true;
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T b) {
    return wrap<T>(a ^ b);
  }
};
struct bitwise_invert {  // of bool: logical_not
  static constexpr bool modular = true;
  template <Integer T>
  WENGERT_INLINE static T apply(T a) {
    return wrap<T>(~a);
  }
};
// A shift by the width or more, or by a negative count, shifts everything out.
struct bitwise_left_shift {
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T b) {
    constexpr Unsigned<T> kWidth = sizeof(T) * 8;
    const auto count = static_cast<Unsigned<T>>(b);  // a negative count becomes huge
    const T shifted = wrap<T>(static_cast<Unsigned<T>>(a) << (count & (kWidth - 1)));
    return count < kWidth ? shifted : T{0};
  }
};
struct bitwise_right_shift {
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T b) {
    constexpr Unsigned<T> kWidth = sizeof(T) * 8;
    const auto count = static_cast<Unsigned<T>>(b);
    const T shifted = wrap<T>(a >> (count < kWidth ? count : kWidth - 1));
    return std::is_signed_v<T> || count < kWidth ? shifted : T{0};
  }
};

// What kind of number it is; every integer is finite.
#define WENGERT_TEST(name, integer_result, float_expression, either) \
  struct name {                                                      \
    template <Integer T>                                             \
    WENGERT_INLINE static bool apply(T) {                            \
      return integer_result;                                         \
    }                                                                \
    template <Float T>                                               \
    WENGERT_INLINE static bool apply(T a) {                          \
      return float_expression;                                       \
    }                                                                \
    template <class T>                                               \
    WENGERT_INLINE static bool apply(Complex<T> a) {                 \
      return apply(a.re) either apply(a.im);                         \
    }                                                                \
  };
WENGERT_TEST(isnan, false, a != a, |)
WENGERT_TEST(isinf, false, magnitude(a) == Format<T>::kInf, |)
WENGERT_TEST(isfinite, true, magnitude(a) < Format<T>::kInf, &)
WENGERT_TEST(signbit, false, (to_bits(a) >> (sizeof(T) * 8 - 1)) != 0, |)
#undef WENGERT_TEST

}  // namespace wengert::WENGERT_ISA_NAMESPACE::op
