// Arithmetic, order and rounding. One functor per line of elementwise.def.
#pragma once
#include "vector_complex.h"
#include "vector_pow.h"
#include "vector_types.h"

namespace wengert::WENGERT_ISA_NAMESPACE::op {

struct add {
  static constexpr bool modular = true;
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T b) {
    return wrap<T>(Unsigned<T>(a) + Unsigned<T>(b));
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a, T b) {
    return a + b;
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a, Complex<T> b) {
    return {a.re + b.re, a.im + b.im};
  }
};
struct sub {
  static constexpr bool modular = true;
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T b) {
    return wrap<T>(Unsigned<T>(a) - Unsigned<T>(b));
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a, T b) {
    return a - b;
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a, Complex<T> b) {
    return {a.re - b.re, a.im - b.im};
  }
};

struct neg {
  static constexpr bool modular = true;
  template <Integer T>
  WENGERT_INLINE static T apply(T a) {
    return wrap<T>(Unsigned<T>{0} - Unsigned<T>(a));
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a) {
    return -a;
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a) {
    return {-a.re, -a.im};
  }
};

struct mul {
  static constexpr bool modular = true;
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T b) {
    return wrap<T>(Unsigned<T>(a) * Unsigned<T>(b));
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a, T b) {
    return a * b;
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a, Complex<T> b) {
    return complex::mul(a, b);
  }
};
struct div {
  template <Float T>
  WENGERT_INLINE static T apply(T a, T b) {
    return a / b;
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a, Complex<T> b) {
    return complex::div(a, b);
  }
};
// Python's remainder: it has the sign of the divisor.
template <Float T>
inline T python_remainder(T a, T b) {
  const T r = libm::fmod(a, b);
  if (b == T{0}) return r;
  if (r == T{0}) return libm::copysign(T{0}, b);
  return (b < T{0}) != (r < T{0}) ? r + b : r;
}
struct floor_divide {
  template <Integer T>
  static T apply(T a, T b) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return wrap<T>(Unsigned<T>{0} - Unsigned<T>(a));
      return wrap<T>(a / b - (a % b != 0 && (a < 0) != (b < 0)));
    } else {
      return wrap<T>(a / b);
    }
  }
  // From the exact remainder, so that floor_divide(a, b) * b + remainder(a, b) is a. Infinite operands have none: the
  // quotient is rounded, as the array API standard has it (NumPy gives NaN for inf // 2 and -1 for 1 // -inf).
  template <Float T>
  static T apply(T a, T b) {
    const bool finite = magnitude(a) < Format<T>::kInf && magnitude(b) < Format<T>::kInf;
    if (b == T{0} || !finite) return libm::floor(a / b);
    const T r = libm::fmod(a, b);
    T quotient = (a - r) / b;
    if (r != T{0} && (b < T{0}) != (r < T{0})) quotient -= T{1};
    if (quotient == T{0}) return libm::copysign(T{0}, a / b);
    const T whole = libm::floor(quotient);
    return quotient - whole > static_cast<T>(0.5) ? whole + T{1} : whole;
  }
};
struct remainder {
  template <Integer T>
  static T apply(T a, T b) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
      const T r = wrap<T>(a % b);
      return r != 0 && (r < 0) != (b < 0) ? wrap<T>(r + b) : r;
    } else {
      return wrap<T>(a % b);
    }
  }
  template <Float T>
  static T apply(T a, T b) {
    return python_remainder(a, b);
  }
};
struct pow {
  template <Integer T>
  static T apply(T a, T b) {
    if constexpr (std::is_signed_v<T>) {
      if (b < 0) return a == 1 ? T{1} : a == -1 ? wrap<T>(b & 1 ? -1 : 1) : T{0};
    }
    Unsigned<T> y = 1, base = static_cast<Unsigned<T>>(a);
    for (auto n = static_cast<std::make_unsigned_t<T>>(b); n != 0; n = wrap<decltype(n)>(n >> 1), base *= base) {
      if (n & 1) y *= base;
    }
    return wrap<T>(y);
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a, T b) {
    return math::pow(a, b);
  }
  template <class T>
  static Complex<T> apply(Complex<T> a, Complex<T> b) {
    return complex::pow(a, b);
  }
};
// A NaN in either operand is the result.
struct maximum {
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T b) {
    return a > b ? a : b;
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a, T b) {
    const T larger = a > b ? a : b;  // b if either is NaN
    return a != a ? a : larger;
  }
};
struct minimum {
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T b) {
    return a < b ? a : b;
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a, T b) {
    const T smaller = a < b ? a : b;
    return a != a ? a : smaller;
  }
};

struct copysign {
  template <Float T>
  WENGERT_INLINE static T apply(T a, T b) {
    return with_sign_of(a, b);
  }
};
// On the bit patterns, so that 16-bit types step on their own grid.
template <class Bits>
WENGERT_INLINE Bits next_bits(Bits a, bool zero, bool away_from_zero, bool down) {
  constexpr int kSignShift = static_cast<int>(sizeof(Bits) * 8 - 1);
  const Bits smallest = static_cast<Bits>((static_cast<Bits>(down) << kSignShift) | 1);
  return zero ? smallest : static_cast<Bits>(away_from_zero ? a + 1 : a - 1);
}
struct nextafter {
  template <Float T>
  WENGERT_INLINE static T apply(T a, T b) {
    const bool down = b < a;
    const T next = from_bits<T>(next_bits<BitsOf<T>>(to_bits(a), a == T{0}, (a < T{0}) == down, down));
    const T moved = a == b ? b : next;
    return (a != a) | (b != b) ? a + b : moved;
  }
  template <HalfNumber H>
  WENGERT_INLINE static H apply(H a, H b) {
    const float x = widen(a), y = widen(b);
    if (x != x || y != y) return narrow<H>(x + y);
    if (x == y) return b;
    const bool down = y < x;
    return {next_bits<uint16_t>(a.bits, x == 0.0f, (x < 0.0f) == down, down)};
  }
};

struct square {
  static constexpr bool modular = true;
  template <class T>
  WENGERT_INLINE static auto apply(T a) -> decltype(mul::apply(a, a)) {
    return mul::apply(a, a);
  }
};

struct reciprocal {
  template <Float T>
  WENGERT_INLINE static T apply(T a) {
    return T{1} / a;
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a) {
    return complex::reciprocal(a);
  }
};

// Comparisons with a NaN are false: one in x stays, a bound that is one does not bound.
// A NaN in any operand is the result.
struct clip {
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T low, T high) {
    const T raised = a < low ? low : a;
    return raised > high ? high : raised;
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a, T low, T high) {
    const T raised = (a < low) | (low != low) ? low : a;
    return (raised > high) | (high != high) ? high : raised;
  }
};
struct relu {
  template <Integer T>
  WENGERT_INLINE static T apply(T a) {
    return a < T{0} ? T{0} : a;
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a) {
    return a < T{0} ? T{0} : a;  // NaN stays
  }
};
struct hard_swish {
  template <Float T>
  WENGERT_INLINE static T apply(T a) {
    const T between = a * (a + T{3}) / T{6};
    const T right = a >= T{3} ? a : between;
    return a <= T{-3} ? T{0} : right;
  }
};
struct hard_swish_slope {
  template <Float T>
  WENGERT_INLINE static T apply(T a) {
    const T between = a / T{3} + static_cast<T>(0.5);
    const T right = a >= T{3} ? T{1} : between;
    return a <= T{-3} ? T{0} : right;
  }
};
struct abs {
  template <Integer T>
  WENGERT_INLINE static T apply(T a) {
    return a < T{0} ? neg::apply(a) : a;
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a) {
    return magnitude(a);
  }
  template <class T>
  WENGERT_INLINE static T apply(Complex<T> a) {
    return complex::abs(a);
  }
};
struct sign {
  template <Integer T>
  WENGERT_INLINE static T apply(T a) {
    return wrap<T>((a > T{0}) - (a < T{0}));
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a) {
    const T nonzero = a > T{0} ? T{1} : a < T{0} ? T{-1} : a;  // NaN stays
    return a == T{0} ? T{0} : nonzero;
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a) {
    return complex::sign(a);
  }
};

#define WENGERT_ROUNDING(name, function) \
  struct name {                          \
    template <Integer T>                 \
    WENGERT_INLINE static T apply(T a) { \
      return a;                          \
    }                                    \
    template <Float T>                   \
    WENGERT_INLINE static T apply(T a) { \
      return libm::function(a);          \
    }                                    \
  };
WENGERT_ROUNDING(floor, floor)
WENGERT_ROUNDING(ceil, ceil)
WENGERT_ROUNDING(trunc, trunc)
#undef WENGERT_ROUNDING
struct round {  // half to even, each part of a complex number
  template <Integer T>
  WENGERT_INLINE static T apply(T a) {
    return a;
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a) {
    return libm::rint(a);
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a) {
    return {libm::rint(a.re), libm::rint(a.im)};
  }
};

}  // namespace wengert::WENGERT_ISA_NAMESPACE::op
