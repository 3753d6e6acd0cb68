// Roots, transcendental and special functions. One functor per line of elementwise.def.
#pragma once
#include <concepts>

#include "vector_complex.h"
#include "vector_gamma.h"
#include "vector_special.h"
#include "vector_types.h"

namespace wengert::WENGERT_ISA_NAMESPACE::op {

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
    WENGERT_INLINE static bool is_near(T a) {                       \
      return is_reduced(a);                                         \
    }                                                               \
    template <Float T>                                              \
    WENGERT_INLINE static T apply_near(T a) {                       \
      return math::name(a, as_reduced(a));                          \
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

#define WENGERT_REAL_FUNCTION(name)      \
  struct name {                          \
    template <Float T>                   \
    WENGERT_INLINE static T apply(T a) { \
      return math::name(a);              \
    }                                    \
  };
WENGERT_REAL_FUNCTION(erf)
WENGERT_REAL_FUNCTION(erfc)
WENGERT_REAL_FUNCTION(erfcx)
WENGERT_REAL_FUNCTION(ndtr)
WENGERT_REAL_FUNCTION(gelu)
WENGERT_REAL_FUNCTION(gelu_slope)
WENGERT_REAL_FUNCTION(i0e)
#undef WENGERT_REAL_FUNCTION
struct exp2 {
  template <Float T>
  WENGERT_INLINE static T apply(T a) {
    return math::exp2(a);
  }
  template <class T>
  static Complex<T> apply(Complex<T> a) {
    return complex::exp2(a);
  }
};
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
  WENGERT_INLINE static double apply(double a, double b) { return math::betaln(a, b); }
  WENGERT_INLINE static float apply(float a, float b) { return static_cast<float>(math::betaln(a, b)); }
  template <Float T>
  WENGERT_INLINE static bool in_range(T a, T b) {
    return (a > T{0}) & (b > T{0}) & (a < Format<T>::kInf) & (b < Format<T>::kInf);
  }
  template <Float T>
  static T apply_far(T a, T b) {
    return static_cast<T>(math::betaln_far(a, b));
  }
};

}  // namespace wengert::WENGERT_ISA_NAMESPACE::op
