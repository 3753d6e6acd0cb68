// sin, cos, tan: x = q pi/2 + r.
#pragma once
#include "vector_number.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// + r, |r| <= pi/4, by Cody and Waite's subtraction of pi/2 in parts. Beyond kTrigLimit the caller takes the
// C library for that element. Constants and polynomials: fdlibm (e_rem_pio2.c, k_sin.c, k_cos.c) and
// FreeBSD's msun (e_rem_pio2f.c); single-precision polynomials: Cephes (sinf.c).

template <class T>
inline constexpr T kTrigLimit = 0x1p20;
template <>
inline constexpr float kTrigLimit<float> = 0x1p28f;

template <class T>
struct TrigArgument {
  T r, tail;    // r + tail, the tail below half a unit of r
  BitsOf<T> q;  // the quadrant modulo 4 in the low bits
};

// Reduced in double: that is exact enough up to 2^28 and cheaper than more parts in float.
WENGERT_INLINE TrigArgument<float> reduce_trig(float x) {
  constexpr double kRounder = Format<double>::kRounder;
  const double wide = x;
  const double t = madd(wide, 6.36619772367581382433e-01, kRounder);
  const double n = t - kRounder;
  const double r = madd(n, -1.58932547735281966916e-08, madd(n, -1.57079631090164184570e+00, wide));
  return {static_cast<float>(r), 0.0f, static_cast<uint32_t>(to_bits(t))};
}
WENGERT_INLINE TrigArgument<double> reduce_trig(double x) {
  constexpr double kRounder = Format<double>::kRounder;
  const double t = madd(x, 6.36619772367581382433e-01, kRounder);
  const double n = t - kRounder;
  const double first = madd(n, -1.57079632673412561417e+00, x);  // exact: 33 bits times 20
  const double second = n * 6.07710050630396597660e-11;          // exact as well
  const double r = first - second;
  const double rest = n * 2.02226624879595063154e-21 - ((first - r) - second);
  const double sum = r - rest;
  return {sum, (r - sum) - rest, to_bits(t)};
}

// An argument that is its own remainder, to the bit. Where a single element is computed, this saves waiting for the
// reduction; where many are, a branch would prevent vectors.
template <class T>
WENGERT_INLINE bool is_reduced(T x) {
  return magnitude(x) <= static_cast<T>(0.785);
}
template <class T>
WENGERT_INLINE TrigArgument<T> as_reduced(T x) {
  return {x, T{0}, 0};
}

WENGERT_INLINE float sin_reduced(const TrigArgument<float>& a) {
  const float z = a.r * a.r;
  const float p = polynomial(z, -1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f);
  return madd(z * a.r, p, a.r);
}
WENGERT_INLINE float cos_reduced(const TrigArgument<float>& a) {
  const float z = a.r * a.r;
  const float p = polynomial(z, 4.166664568298827e-2f, -1.388731625493765e-3f, 2.443315711809948e-5f);
  return madd(z * z, p, madd(z, -0.5f, 1.0f));
}
WENGERT_INLINE double sin_reduced(const TrigArgument<double>& a) {
  const double z = a.r * a.r, v = z * a.r;
  const double p = polynomial(z, 8.33333333332248946124e-03, -1.98412698298579493134e-04, 2.75573137070700676789e-06,
                              -2.50507602534068634195e-08, 1.58969099521155010221e-10);
  return a.r - ((z * (0.5 * a.tail - v * p) - a.tail) - v * -1.66666666666666324348e-01);
}
WENGERT_INLINE double cos_reduced(const TrigArgument<double>& a) {
  const double z = a.r * a.r;
  const double p = polynomial(z, 4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
                              -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11);
  const double half = 0.5 * z, w = 1.0 - half;
  return w + (((1.0 - w) - half) + (z * (z * p) - a.r * a.tail));
}

// sin of the reduced argument `quadrant` quarter turns further on.
template <class T>
WENGERT_INLINE T sin_of_quadrant(const TrigArgument<T>& a, BitsOf<T> quadrant) {
  const BitsOf<T> q = a.q + quadrant;
  const T y = (q & 1) != 0 ? cos_reduced(a) : sin_reduced(a);
  return from_bits<T>(to_bits(y) ^ ((q & 2) << (sizeof(T) * 8 - 2)));
}

namespace math {

template <class T>
WENGERT_INLINE T sin(T x, const TrigArgument<T>& a) {
  const T y = sin_of_quadrant(a, 0);
  return x == T{0} ? x : y;
}

template <class T>
WENGERT_INLINE T cos(T, const TrigArgument<T>& a) {
  return sin_of_quadrant(a, 1);
}

template <class T>
WENGERT_INLINE T tan(T x, const TrigArgument<T>& a) {
  const T s = sin_reduced(a), c = cos_reduced(a);
  const bool odd = (a.q & 1) != 0;
  const T y = (odd ? -c : s) / (odd ? s : c);
  return x == T{0} ? x : y;
}

template <class T>
WENGERT_INLINE T sin(T x) {
  return sin(x, reduce_trig(x));
}
template <class T>
WENGERT_INLINE T cos(T x) {
  return cos(x, reduce_trig(x));
}
template <class T>
WENGERT_INLINE T tan(T x) {
  return tan(x, reduce_trig(x));
}

}  // namespace math

}  // namespace wengert::WENGERT_ISA_NAMESPACE
