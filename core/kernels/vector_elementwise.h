// One functor per line of elementwise.def; vector_map.h has the loops that run them.
#pragma once
#include <concepts>

#include "vector_complex.h"
#include "vector_gamma.h"
#include "vector_pow.h"
#include "vector_special.h"
#include "vector_types.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// A functor `op::name` has overloads `apply` for the types that it supports; the table is null for the
// others. `modular`: the same for signed and unsigned integers, which then share one loop. `in_range`,
// `apply_far`: `apply` is right for elements in range only, the others get the slower `apply_far`.
namespace op {

template <Integer T, class U>
WENGERT_INLINE T wrap(U u) {
  return static_cast<T>(u);
}

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

#define WENGERT_LIBM_BINARY(name) \
  struct name {                   \
    template <Float T>            \
    static T apply(T a, T b) {    \
      return libm::name(a, b);    \
    }                             \
  };
WENGERT_LIBM_BINARY(atan2)
WENGERT_LIBM_BINARY(hypot)
#undef WENGERT_LIBM_BINARY

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

// The product of a tangent with a coefficient, with strong zero: nothing flows where the tangent is 0,
// whatever the coefficient.
struct scale {
  static constexpr bool modular = true;
  template <Integer T>
  WENGERT_INLINE static T apply(T t, T c) {
    return mul::apply(t, c);
  }
  template <Float T>
  WENGERT_INLINE static T apply(T t, T c) {
    return t == T{0} ? T{0} : t * c;
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> t, Complex<T> c) {
    const Complex<T> y = complex::mul(t, c);
    const bool zero = complex::is_zero(t);
    return {zero ? T{0} : y.re, zero ? T{0} : y.im};
  }
};

// Where both are tangents of their own: nothing flows where either is 0.
struct strong_product {
  static constexpr bool modular = true;
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T b) {
    return mul::apply(a, b);
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a, T b) {
    return a == T{0} || b == T{0} ? T{0} : a * b;
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a, Complex<T> b) {
    const Complex<T> y = complex::mul(a, b);
    const bool zero = complex::is_zero(a) || complex::is_zero(b);
    return {zero ? T{0} : y.re, zero ? T{0} : y.im};
  }
};

struct unscale {
  template <Float T>
  WENGERT_INLINE static T apply(T t, T c) {
    return t == T{0} ? T{0} : t / c;
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> t, Complex<T> c) {
    const Complex<T> y = complex::div(t, c);
    const bool zero = complex::is_zero(t);
    return {zero ? T{0} : y.re, zero ? T{0} : y.im};
  }
};

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

struct conj {
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a) {
    return {a.re, -a.im};
  }
};

struct real {
  template <class T>
  WENGERT_INLINE static T apply(Complex<T> a) {
    return a.re;
  }
};

struct imag {
  template <class T>
  WENGERT_INLINE static T apply(Complex<T> a) {
    return a.im;
  }
};

struct make_complex {
  template <Float T>
  WENGERT_INLINE static Complex<T> apply(T re, T im) {
    return {re, im};
  }
};

// Comparisons with a NaN are false: one in x stays, a bound that is one does not bound.
struct clip {
  template <Real T>
  WENGERT_INLINE static T apply(T a, T low, T high) {
    const T raised = a < low ? low : a;
    return raised > high ? high : raised;
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

struct square {
  static constexpr bool modular = true;
  template <class T>
  WENGERT_INLINE static auto apply(T a) -> decltype(mul::apply(a, a)) {
    return mul::apply(a, a);
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

struct sqrt {
  template <Float T>
  WENGERT_INLINE static T apply(T a) {
    return libm::sqrt(a);
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a) {
    return complex::sqrt_near(a);
  }
  template <class T>
  WENGERT_INLINE static bool in_range(Complex<T> a) {
    return complex::squares_fit(a);
  }
  template <class T>
  static Complex<T> apply_far(Complex<T> a) {
    return complex::sqrt(a);
  }
};

struct rsqrt {
  template <Float T>
  WENGERT_INLINE static T apply(T a) {
    return T{1} / libm::sqrt(a);
  }
  template <class T>
  static Complex<T> apply(Complex<T> a) {
    return complex::reciprocal(complex::sqrt(a));
  }
};

struct exp {
  template <Float T>
  WENGERT_INLINE static T apply(T a) {
    return math::exp(a);
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a) {
    const T size = math::exp(a.re);
    return {size * math::cos(a.im), size * math::sin(a.im)};
  }
  template <class T>
  WENGERT_INLINE static bool in_range(Complex<T> a) {  // NaN is not: zeros beside it are kept
    constexpr T kLargest = sizeof(T) == 4 ? T{87} : T{708};
    return (magnitude(a.re) <= kLargest) & (magnitude(a.im) <= kTrigLimit<T>);
  }
  template <class T>
  static Complex<T> apply_far(Complex<T> a) {
    return complex::exp(a);
  }
};

// Functions of a vector formula from math:: (or of a scalar one from libm::), with a complex function beside
// them.
#define WENGERT_FUNCTION(name, real, complex_expression) \
  struct name {                                          \
    template <Float T>                                   \
    WENGERT_INLINE static T apply(T a) {                 \
      return real(a);                                    \
    }                                                    \
    template <class T>                                   \
    static Complex<T> apply(Complex<T> a) {              \
      return complex_expression;                         \
    }                                                    \
  };
WENGERT_FUNCTION(expm1, math::expm1, complex::expm1(a))
WENGERT_FUNCTION(log, math::log, complex::log(a))
WENGERT_FUNCTION(log2, math::log2, complex::mul(complex::log(a), static_cast<T>(1.44269504088896340736)))
WENGERT_FUNCTION(log10, math::log10, complex::mul(complex::log(a), static_cast<T>(0.43429448190325182765)))
WENGERT_FUNCTION(log1p, math::log1p, complex::log1p(a))
WENGERT_FUNCTION(tanh, math::tanh, complex::tanh_of(a))
WENGERT_FUNCTION(sigmoid, math::sigmoid, complex::sigmoid(a))
WENGERT_FUNCTION(asin, libm::asin, complex::asin(a))
WENGERT_FUNCTION(acos, libm::acos, complex::acos(a))
WENGERT_FUNCTION(atan, libm::atan, complex::atan(a))
WENGERT_FUNCTION(sinh, libm::sinh, complex::sinh(a))
WENGERT_FUNCTION(cosh, libm::cosh, complex::cosh(a))
WENGERT_FUNCTION(asinh, libm::asinh, complex::asinh(a))
WENGERT_FUNCTION(acosh, libm::acosh, complex::acosh(a))
WENGERT_FUNCTION(atanh, libm::atanh, complex::atanh(a))
#undef WENGERT_FUNCTION

#define WENGERT_PERIODIC(name)                                      \
  struct name {                                                     \
    template <Float T>                                              \
    WENGERT_INLINE static T apply(T a) {                            \
      return math::name(a);                                         \
    }                                                               \
    template <Float T>                                              \
    WENGERT_INLINE static bool in_range(T a) {                      \
      return !(magnitude(a) > kTrigLimit<T>); /* NaN is in range */ \
    }                                                               \
    template <Float T>                                              \
    static T apply_far(T a) {                                       \
      return libm::name(a);                                         \
    }                                                               \
    template <class T>                                              \
    static Complex<T> apply(Complex<T> a) {                         \
      return complex::name(a);                                      \
    }                                                               \
  };
WENGERT_PERIODIC(sin)
WENGERT_PERIODIC(cos)
WENGERT_PERIODIC(tan)
#undef WENGERT_PERIODIC

#define WENGERT_REAL_FUNCTION(name, float_expression, double_expression)       \
  struct name {                                                                \
    WENGERT_INLINE static float apply(float a) { return float_expression; }    \
    WENGERT_INLINE static double apply(double a) { return double_expression; } \
  };
WENGERT_REAL_FUNCTION(exp2, math::exp2(a), math::exp2(a))
WENGERT_REAL_FUNCTION(erf, math::erf(a), math::erf(a))
WENGERT_REAL_FUNCTION(erfc, math::erfc(a), math::erfc(a))
WENGERT_REAL_FUNCTION(gelu, math::gelu(a), math::gelu(a))
WENGERT_REAL_FUNCTION(gelu_slope, math::gelu_slope(a), math::gelu_slope(a))
#undef WENGERT_REAL_FUNCTION

struct erfinv {
  template <Float T>
  WENGERT_INLINE static T apply(T a) {
    return math::erfinv(a);
  }
  template <std::same_as<double> T>
  WENGERT_INLINE static bool in_range(T a) {
    return !(magnitude(a) > math::kErfinvLimit);  // NaN is
  }
  template <std::same_as<double> T>
  static T apply_far(T a) {
    return math::erfinv_far(a);
  }
};

#define WENGERT_GAMMA_FUNCTION(name, left)     \
  struct name {                                \
    template <Float T>                         \
    WENGERT_INLINE static T apply(T a) {       \
      return math::name(a);                    \
    }                                          \
    template <Float T>                         \
    WENGERT_INLINE static bool in_range(T a) { \
      return !(a <= T{0}); /* NaN is */        \
    }                                          \
    template <Float T>                         \
    static T apply_far(T a) {                  \
      return static_cast<T>(left(a));          \
    }                                          \
  };
WENGERT_GAMMA_FUNCTION(lgamma, libm::lgamma)
WENGERT_GAMMA_FUNCTION(digamma, math::digamma_left)
WENGERT_GAMMA_FUNCTION(trigamma, math::trigamma_left)
#undef WENGERT_GAMMA_FUNCTION

struct betaln {
  static double apply(double a, double b) { return math::betaln(a, b); }
  static float apply(float a, float b) { return static_cast<float>(math::betaln(a, b)); }
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

// Told apart by the table, which maps them on the size of an element.
struct where {};
struct copy {};

}  // namespace op

}  // namespace wengert::WENGERT_ISA_NAMESPACE
