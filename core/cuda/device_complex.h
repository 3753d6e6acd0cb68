// Functions of complex numbers on a GPU, where there is no C library for them: in double, by Kahan's formulas ("Branch
// cuts for complex elementary functions, or much ado about nothing's sign bit", 1987), with the values that C99's annex
// G gives at infinity.
#pragma once
#include "vector_types.h"

namespace wengert::WENGERT_ISA_NAMESPACE::complex {

using Wide = Complex<double>;

inline bool finite(double x) { return magnitude(x) < Format<double>::kInf; }
inline bool infinite(double x) { return magnitude(x) == Format<double>::kInf; }

inline Wide exp(Wide z) {
  constexpr double kLargest = 709.0;
  if (z.im == 0.0) return {libm::exp(z.re), z.im};
  if (!finite(z.im) && infinite(z.re)) {
    return z.re < 0.0 ? Wide{0.0, libm::copysign(0.0, z.im)} : Wide{z.re, Format<double>::kNaN};
  }
  const double c = libm::cos(z.im), s = libm::sin(z.im);
  if (z.re > kLargest && finite(z.re)) {
    const double first = libm::exp(z.re - kLargest), second = libm::exp(kLargest);
    return {first * c * second, first * s * second};
  }
  const double size = libm::exp(z.re);
  return {size * c, size * s};
}

// log |z|. Near 1 the sum of the squares less 1 is found without cancellation.
inline double log_of_length(Wide z) {
  const double x = magnitude(z.re), y = magnitude(z.im), larger = x > y ? x : y, smaller = x > y ? y : x;
  if (infinite(larger) || infinite(smaller)) return Format<double>::kInf;
  if (larger > 0x1p1000) return libm::log(libm::hypot(larger * 0x1p-100, smaller * 0x1p-100)) + 69.31471805599453;
  if (larger < 0x1p-900) return libm::log(libm::hypot(larger * 0x1p200, smaller * 0x1p200)) - 138.62943611198907;
  const double length = libm::hypot(larger, smaller);
  if (length < 0.7 || length > 1.5) return libm::log(length);
  const double a = larger * larger, a_low = libm::fma(larger, larger, -a);
  const double b = smaller * smaller, b_low = libm::fma(smaller, smaller, -b);
  const double first = a - 1.0, sum = first + b, lost = b - (sum - first);
  return 0.5 * libm::log1p(sum + (lost + (a_low + b_low)));
}

inline Wide log(Wide z) { return {log_of_length(z), libm::atan2(z.im, z.re)}; }

inline Wide sqrt(Wide z) {
  if (infinite(z.im)) return {Format<double>::kInf, z.im};
  if (infinite(z.re)) {
    const double other = z.im != z.im ? z.im : 0.0;
    return z.re > 0.0 ? Wide{z.re, libm::copysign(other, z.im)} : Wide{other, libm::copysign(z.re, z.im)};
  }
  if (z.re == 0.0 && z.im == 0.0) return {0.0, z.im};
  const double x = magnitude(z.re), y = magnitude(z.im), larger = x > y ? x : y;
  const double scale = larger > 0x1p1000 ? 0x1p-100 : larger < 0x1p-900 ? 0x1p200 : 1.0;
  const double back = larger > 0x1p1000 ? 0x1p50 : larger < 0x1p-900 ? 0x1p-100 : 1.0;
  const double t = libm::sqrt(0.5 * (libm::hypot(x * scale, y * scale) + x * scale));
  const double other = y * scale / (2.0 * t);
  return z.re >= 0.0 ? Wide{t * back, libm::copysign(other * back, z.im)}
                     : Wide{other * back, libm::copysign(t * back, z.im)};
}

// The hyperbolic functions of the real part, without overflow before the product does: e^|x|/2 in two factors.
inline Wide sinh(Wide z) {
  if (z.im == 0.0) return {libm::sinh(z.re), z.im};
  if (!finite(z.im) && (z.re == 0.0 || infinite(z.re))) return {z.re, Format<double>::kNaN};
  const double c = libm::cos(z.im), s = libm::sin(z.im);
  if (magnitude(z.re) > 700.0 && finite(z.re)) {
    const double half = libm::exp(0.5 * magnitude(z.re));
    return {libm::copysign(0.5 * half, z.re) * c * half, 0.5 * half * s * half};
  }
  return {libm::sinh(z.re) * c, libm::cosh(z.re) * s};
}
inline Wide cosh(Wide z) {
  if (z.im == 0.0) return {libm::cosh(z.re), z.re != z.re ? z.im : libm::copysign(1.0, z.re) * z.im};
  if (!finite(z.im) && z.re == 0.0) return {Format<double>::kNaN, z.re};
  if (!finite(z.im) && infinite(z.re)) return {Format<double>::kInf, Format<double>::kNaN};
  const double c = libm::cos(z.im), s = libm::sin(z.im);
  if (magnitude(z.re) > 700.0 && finite(z.re)) {
    const double half = libm::exp(0.5 * magnitude(z.re));
    return {0.5 * half * c * half, libm::copysign(0.5 * half, z.re) * s * half};
  }
  return {libm::cosh(z.re) * c, libm::sinh(z.re) * s};
}
inline Wide tanh(Wide z) {
  if (z.im == 0.0) return {math::tanh(z.re), z.im};
  if (infinite(z.re)) {
    const double sign = finite(z.im) ? libm::sin(2.0 * z.im) : z.im;
    return {libm::copysign(1.0, z.re), libm::copysign(0.0, sign)};
  }
  if (!finite(z.im)) return {z.re == 0.0 ? z.re : Format<double>::kNaN, Format<double>::kNaN};
  if (magnitude(z.re) > 22.0) {
    const double rest = libm::exp(-magnitude(z.re));
    return {libm::copysign(1.0, z.re), 4.0 * libm::sin(z.im) * libm::cos(z.im) * rest * rest};
  }
  const double t = libm::tan(z.im), beta = 1.0 + t * t, s = libm::sinh(z.re), rho = libm::sqrt(1.0 + s * s);
  const double denominator = 1.0 + beta * s * s;
  return {beta * rho * s / denominator, t / denominator};
}

// i z, and −i z: trigonometric functions are hyperbolic ones turned by a quarter.
inline Wide turned(Wide z) { return {-z.im, z.re}; }
inline Wide turned_back(Wide z) { return {z.im, -z.re}; }
inline Wide sin(Wide z) { return turned_back(sinh(turned(z))); }
inline Wide cos(Wide z) { return cosh(turned(z)); }
inline Wide tan(Wide z) { return turned_back(tanh(turned(z))); }

// The angle of an infinite number, by which of its parts are infinite.
inline double direction(double y, double x) {
  return libm::atan2(infinite(y) ? libm::copysign(1.0, y) : libm::copysign(0.0, y),
                     infinite(x) ? libm::copysign(1.0, x) : libm::copysign(0.0, x));
}
inline Wide asin(Wide z) {
  if (infinite(z.re) || infinite(z.im)) {
    return {direction(z.re, magnitude(z.im)), libm::copysign(Format<double>::kInf, z.im)};
  }
  const Wide minus = sqrt(Wide{1.0 - z.re, -z.im}), plus = sqrt(Wide{1.0 + z.re, z.im});
  return {libm::atan2(z.re, minus.re * plus.re - minus.im * plus.im),
          libm::asinh(minus.re * plus.im - minus.im * plus.re)};
}
inline Wide acos(Wide z) {
  if (infinite(z.re) || infinite(z.im)) {
    return {direction(magnitude(z.im), z.re), libm::copysign(Format<double>::kInf, -z.im)};
  }
  const Wide minus = sqrt(Wide{1.0 - z.re, -z.im}), plus = sqrt(Wide{1.0 + z.re, z.im});
  return {2.0 * libm::atan2(minus.re, plus.re), libm::asinh(plus.re * minus.im - plus.im * minus.re)};
}
inline Wide acosh(Wide z) {
  if (infinite(z.re) || infinite(z.im)) return {Format<double>::kInf, direction(z.im, z.re)};
  const Wide minus = sqrt(Wide{z.re - 1.0, z.im}), plus = sqrt(Wide{z.re + 1.0, z.im});
  return {libm::asinh(minus.re * plus.re + minus.im * plus.im), 2.0 * libm::atan2(minus.im, plus.re)};
}
inline Wide atanh(Wide z) {
  if (z.im == 0.0 && magnitude(z.re) <= 1.0) return {libm::atanh(z.re), z.im};
  const double x = z.re, y = z.im, length = libm::hypot(x, y);
  if (length > 0x1p60) {  // 1 / z
    const double re = infinite(length) ? libm::copysign(0.0, x) : x / length / length;
    return {re, libm::copysign(1.57079632679489661923, y)};
  }
  return {0.25 * libm::log1p(4.0 * x / ((1.0 - x) * (1.0 - x) + y * y)),
          0.5 * libm::atan2(2.0 * y, (1.0 - x) * (1.0 + x) - y * y)};
}
inline Wide asinh(Wide z) { return turned_back(asin(turned(z))); }
inline Wide atan(Wide z) { return turned_back(atanh(turned(z))); }

inline Wide library_pow(Wide x, Wide y) {
  const Wide l = log(x);
  return exp(Wide{y.re * l.re - y.im * l.im, y.re * l.im + y.im * l.re});
}

#define WENGERT_NARROW(name)                                     \
  inline Complex<float> name(Complex<float> x) {                 \
    const Wide y = name(Wide{x.re, x.im});                       \
    return {static_cast<float>(y.re), static_cast<float>(y.im)}; \
  }
WENGERT_NARROW(exp)
WENGERT_NARROW(log)
WENGERT_NARROW(sqrt)
WENGERT_NARROW(sin)
WENGERT_NARROW(cos)
WENGERT_NARROW(tan)
WENGERT_NARROW(asin)
WENGERT_NARROW(acos)
WENGERT_NARROW(atan)
WENGERT_NARROW(sinh)
WENGERT_NARROW(cosh)
WENGERT_NARROW(tanh)
WENGERT_NARROW(asinh)
WENGERT_NARROW(acosh)
WENGERT_NARROW(atanh)
#undef WENGERT_NARROW

}  // namespace wengert::WENGERT_ISA_NAMESPACE::complex
