// Of the normal distribution: erf, erfc, erfinv, and GELU with its slope.
#pragma once
#include "vector_exp.h"
#include "vector_log.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace math {

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

// e^(x^2) erfc(x). Left of 0 it is 2 e^(x^2) less its value at -x; what the rounding of x^2 lost is put back.
template <class T>
WENGERT_INLINE T erfcx(T x) {
  using F = Format<T>;
  const T a = magnitude(x), t = a < F::kInf ? (a - T{4}) / (a + T{4}) : T{1};
  const T y = erfc_factor(t) / madd(T{2}, a, T{1});
  const T c = at_most(a, static_cast<T>(sizeof(T) == 4 ? 10.5 : 28.0));  // e^(x^2) is infinite there
  const T square = c * c, high = from_bits<T>(to_bits(c) & F::kUpperHalf), low = c - high;
  const T lost = ((square - high * high) - T{2} * high * low) - low * low;
  const T power = exp(square);
  const T left = power < F::kInf ? T{2} * madd(-lost, power, power) - y : F::kInf;
  return x < T{0} ? left : y;
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
#if defined(__CUDA_ARCH__)
  return ::fmin(magnitude(x), static_cast<T>(sizeof(T) == 4 ? 15.0 : 39.0));
#else
  using Signed = std::make_signed_t<BitsOf<T>>;
  constexpr Signed kEnd = std::bit_cast<Signed>(static_cast<T>(sizeof(T) == 4 ? 15.0 : 39.0));
  const Signed over = std::bit_cast<Signed>(magnitude(x)) - kEnd;
  return std::bit_cast<T>(kEnd + (over & (over >> (8 * sizeof(T) - 1))));
#endif
}

// x / y where no number on the way is too large or too small: without the branch that a GPU needs for those, to the
// same bits.
WENGERT_INLINE float plain_quotient(float x, float y) {
#if defined(__CUDA_ARCH__)
  float near;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(y));
  const float r = madd(near, madd(-y, near, 1.0f), near), q = x * r, closer = madd(madd(-y, q, x), r, q);
  return madd(madd(-y, closer, x), r, closer);
#else
  return x / y;
#endif
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
  const float u = plain_quotient(1.0f, a + kMillsCentre);
  return u * mills_polynomial(madd(a + a, u, -1.0f), 1.0f);
}
WENGERT_INLINE double mills_ratio(double a) {
  const double c = a * 0.70710678118654752440;
  return 0x1p-101 * (erfc_factor((c - 4.0) / (c + 4.0)) / madd(2.0, c, 1.0));
}

// x Phi(x) = max(x, 0) - |x| Phi(-|x|): the left tail keeps its digits. In single precision a R(a) is half of
// v = 2a/(a + k) times a polynomial in t = v - 1.
WENGERT_INLINE float gelu(float x) {
  const float a = tail_argument(x), v = plain_quotient(a + a, a + kMillsCentre);
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

// Phi(x), of which the left tail keeps its digits.
template <class T>
WENGERT_INLINE T ndtr(T x) {
  const T a = tail_argument(x), left = lifted_gaussian(a) * mills_ratio(a);
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
