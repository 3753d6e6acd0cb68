// Complex arithmetic and elementary functions; what the C library has, it computes.
#pragma once
#include "vector_complex_library.h"

namespace wengert::WENGERT_ISA_NAMESPACE::complex {

template <class T>
WENGERT_INLINE bool is_zero(Complex<T> a) {
  return (a.re == T{0}) & (a.im == T{0});
}

template <class T>
WENGERT_INLINE bool is_finite(Complex<T> a) {
  return (magnitude(a.re) < Format<T>::kInf) & (magnitude(a.im) < Format<T>::kInf);
}

// a - b. Where a difference stands beside a sum, GCC 12 makes `fmaddsub` of them and their products in vector
// code, even under -ffp-contract=off, but not in the scalar rest of the loop; it does not see through the
// bits.
template <class T>
WENGERT_INLINE T minus(T a, T b) {
  return a + from_bits<T>(to_bits(b) ^ (BitsOf<T>{1} << (sizeof(T) * 8 - 1)));
}

template <class T>
WENGERT_INLINE Complex<T> mul(Complex<T> a, Complex<T> b) {
  return {minus(a.re * b.re, a.im * b.im), a.re * b.im + a.im * b.re};
}

template <class T>
WENGERT_INLINE Complex<T> mul(Complex<T> a, T b) {
  return {a.re * b, a.im * b};
}

// Smith's division: no overflow of |b|^2. Division by zero gives infinities and NaN as for real numbers.
template <class T>
WENGERT_INLINE Complex<T> div(Complex<T> a, Complex<T> b) {
  const bool real_larger = magnitude(b.re) >= magnitude(b.im);
  const T large = real_larger ? b.re : b.im, small = real_larger ? b.im : b.re;
  const T ratio = large == T{0} ? T{0} : small / large;
  const T denominator = large + small * ratio;
  const T re = real_larger ? a.re + a.im * ratio : a.re * ratio + a.im;
  const T im = real_larger ? minus(a.im, a.re * ratio) : minus(a.im * ratio, a.re);
  return {re / denominator, im / denominator};
}

template <class T>
WENGERT_INLINE Complex<T> reciprocal(Complex<T> a) {
  return div(Complex<T>{T{1}, T{0}}, a);
}

// |a| without overflow or underflow of the squares: in double for float, scaled by a power of two for double.
WENGERT_INLINE double scaled_length(Complex<float> a, double& re, double& im) {
  re = a.re, im = a.im;
  return libm::sqrt(re * re + im * im);
}
WENGERT_INLINE double scaling(Complex<double> a) {
  const double x = magnitude(a.re), y = magnitude(a.im), larger = x > y ? x : y;
  return larger > 0x1p511 ? 0x1p-540 : larger < 0x1p-459 ? 0x1p600 : 1.0;
}
WENGERT_INLINE double scaled_length(Complex<double> a, double& re, double& im) {
  const double s = scaling(a);
  re = a.re * s, im = a.im * s;
  return libm::sqrt(re * re + im * im);
}

// Whether the sum of the squares neither overflows nor loses bits.
WENGERT_INLINE bool squares_fit(Complex<float> a) { return is_finite(a); }
WENGERT_INLINE bool squares_fit(Complex<double> a) {
  const double x = magnitude(a.re), y = magnitude(a.im), larger = x > y ? x : y;
  return (larger < 0x1p500) & ((larger > 0x1p-450) | (larger == 0.0)) & is_finite(a);
}

// The larger part of the root is t = √((|a| + |Re a|) / 2), the other |Im a| / 2t.
template <class T>
WENGERT_INLINE Complex<T> sqrt_near(Complex<T> a) {
  const double re = a.re, im = magnitude(static_cast<double>(a.im));
  const double larger = libm::sqrt(0.5 * (libm::sqrt(re * re + im * im) + magnitude(re)));
  const double smaller = larger == 0.0 ? 0.0 : im / (2.0 * larger);
  const bool right = re >= 0.0;
  const T y_re = static_cast<T>(right ? larger : smaller), y_im = static_cast<T>(right ? smaller : larger);
  return {y_re, with_sign_of(y_im, a.im)};
}

// Infinite if a part is, even if the other is NaN (C99, hypot).
template <class T>
WENGERT_INLINE T abs(Complex<T> a) {
  double re, im;
  double length = scaled_length(a, re, im);
  if constexpr (std::is_same_v<T, double>) length *= 1.0 / scaling(a);
  const bool infinite = (magnitude(a.re) == Format<T>::kInf) | (magnitude(a.im) == Format<T>::kInf);
  return infinite ? Format<T>::kInf : static_cast<T>(length);
}

// a / |a|, and 0 at 0; an infinite number has the direction of its infinite parts.
template <class T>
WENGERT_INLINE Complex<T> sign(Complex<T> a) {
  const bool re_infinite = magnitude(a.re) == Format<T>::kInf, im_infinite = magnitude(a.im) == Format<T>::kInf;
  const T re_unit = with_sign_of(re_infinite ? T{1} : T{0}, a.re),
          im_unit = with_sign_of(im_infinite ? T{1} : T{0}, a.im);
  const bool finite = !(re_infinite | im_infinite);
  a = {finite ? a.re : re_unit, finite ? a.im : im_unit};
  double re, im;
  const double length = scaled_length(a, re, im);
  const bool zero = is_zero(a);
  return {zero ? T{0} : static_cast<T>(re / length), zero ? T{0} : static_cast<T>(im / length)};
}

// Computed in double: the logarithm of a large power would lose single precision.
inline Complex<double> pow(Complex<double> a, Complex<double> b) {
  if (is_zero(b)) return {1.0, 0.0};
  if (is_zero(a) && b.re > 0.0) return {0.0, 0.0};
  if (b.im == 0.0 && magnitude(b.re) <= 64.0 && libm::rint(b.re) == b.re) {
    Complex<double> y{1.0, 0.0}, base = a;
    for (unsigned n = static_cast<unsigned>(magnitude(b.re)); n != 0; n >>= 1, base = mul(base, base)) {
      if (n & 1) y = mul(y, base);
    }
    return b.re < 0.0 ? reciprocal(y) : y;
  }
  return library_pow(a, b);
}
inline Complex<float> pow(Complex<float> a, Complex<float> b) {
  const Complex<double> y = pow(Complex<double>{a.re, a.im}, Complex<double>{b.re, b.im});
  return {static_cast<float>(y.re), static_cast<float>(y.im)};
}

// tanh(+-inf + iy): the array API standard takes the sign of the zero from y, C99 from sin 2y.
template <class T>
inline Complex<T> tanh_of(Complex<T> a) {
  const bool end = magnitude(a.re) == Format<T>::kInf && magnitude(a.im) < Format<T>::kInf;
  return end ? Complex<T>{libm::copysign(T{1}, a.re), libm::copysign(T{0}, a.im)} : tanh(a);
}

// e^x cos y - 1 = (e^x - 1) cos y - 2 sin^2(y/2), without cancellation near 0.
template <class T>
inline Complex<T> expm1(Complex<T> a) {
  if (!is_finite(a)) {
    const Complex<T> y = exp(a);
    return {y.re - T{1}, y.im};
  }
  const T half = libm::sin(static_cast<T>(0.5) * a.im);
  // The real part is never -0: the array API standard has 0 + 0i for -0 + 0i.
  return {math::expm1(a.re) * libm::cos(a.im) - T{2} * half * half + T{0}, math::exp(a.re) * libm::sin(a.im)};
}

template <class T>
inline Complex<T> exp2(Complex<T> a) {
  constexpr T kLog2 = static_cast<T>(0.69314718055994530942);
  const T size = math::exp2(a.re), angle = a.im * kLog2;
  if (a.im == T{0}) return {size, a.im};
  if (!is_finite(a)) return exp(Complex<T>{a.re, angle});
  return {size * libm::cos(angle), size * libm::sin(angle)};
}

// |1 + a|^2 = 1 + re (2 + re) + im^2 near 0; elsewhere the plain logarithm.
template <class T>
inline Complex<T> log1p(Complex<T> a) {
  if (!is_finite(a)) return log(Complex<T>{T{1} + a.re, a.im});
  const T u = T{1} + a.re;
  const T m = libm::hypot(a.re, a.im);
  if (m >= static_cast<T>(0.5)) return log(Complex<T>{u, a.im});
  return {static_cast<T>(0.5) * math::log1p(a.re * (T{2} + a.re) + a.im * a.im), libm::atan2(a.im, u)};
}

// Through the exponential that does not overflow.
template <class T>
inline Complex<T> sigmoid(Complex<T> a) {
  const bool negative = a.re < T{0};
  const Complex<T> e = exp(negative ? a : Complex<T>{-a.re, -a.im});
  const Complex<T> one{T{1}, T{0}};
  return div(negative ? e : one, Complex<T>{T{1} + e.re, e.im});
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE::complex
