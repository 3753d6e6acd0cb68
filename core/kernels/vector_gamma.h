// ln Γ and its first two derivatives. For positive arguments branch-free, as in vector_math.h; the others, which need
// reflection, are left to the `_left` functions, element by element.
//
// From 8 on Stirling's series (NIST DLMF 5.11), below recurrence to an interval of length 1 with a polynomial that has
// the function's zero as a factor, so that the relative error is small everywhere. Polynomials by Chebyshev
// interpolation in 60 digits; their relative errors are below 2^-56 in double and 2^-27 in single precision.
#pragma once
#include "vector_math.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

inline constexpr double kPi = 3.14159265358979323846;

// ln Γ(y) / ((y - 1)(y - 2)) of h = y - 7/4, for |h| <= 3/4.
WENGERT_INLINE float lgamma_over_distances(float h) {
  return polynomial(h, 0x1.ccf152p-2f, -0x1.e96586p-4f, 0x1.6cb67p-5f, -0x1.382e68p-6f, 0x1.1f7dbcp-7f, -0x1.14de3cp-8f,
                    0x1.156b3p-9f, -0x1.18f968p-10f, 0x1.f345dap-12f, -0x1.024a54p-12f, 0x1.02e5e8p-12f,
                    -0x1.131984p-13f);
}
WENGERT_INLINE double lgamma_over_distances(double h) {
  return polynomial(h, 0.4501393121092563, -0.11948158662524275, 0.04452044719850941, -0.019053957830247412,
                    0.008776370425277888, -0.004226194125928346, 0.0020955338792364464, -0.0010605660749412342,
                    0.0005448970025495887, -0.0002831906297104388, 0.00014851664114522942, -7.846167352252309e-05,
                    4.170624738675929e-05, -2.228191217665965e-05, 1.194597872164936e-05, -6.434822788014993e-06,
                    3.516434844428187e-06, -1.9066804238023735e-06, 9.424957587698116e-07, -5.128211509102332e-07,
                    4.346200532078776e-07, -2.386040832536453e-07, -3.336913537804954e-08, 1.8847734392676648e-08,
                    9.11277895517167e-08, -5.0333679908980265e-08);
}

// x (ln Γ(x) − (x − ½)(ln x − 1) − ½ (ln 2π − 1)) of z = x^-2, for x >= 8.
WENGERT_INLINE float lgamma_tail(float z) { return polynomial(z, 0x1.555556p-4f, -0x1.6c1418p-9f, 0x1.98f66p-11f); }
WENGERT_INLINE double lgamma_tail(double z) {
  return polynomial(z, 0.08333333333333333, -0.002777777777773982, 0.0007936507897492187, -0.0005952365838084739,
                    0.0008414700110573563, -0.0018903792026145536, 0.005065830821990134);
}

// digamma(3/2 + h) / (3/2 + h − zero) for |h| <= 1/2.
WENGERT_INLINE float digamma_over_distance(float h) {
  return polynomial(h, 0x1.e6f0ccp-1f, -0x1.b1cb68p-2f, 0x1.eca19p-3f, -0x1.2febbep-3f, 0x1.850eaap-4f, -0x1.fc5cd2p-5f,
                    0x1.4ea4b8p-5f, -0x1.a67e08p-6f, 0x1.186978p-6f, -0x1.0c43fp-6f, 0x1.65418ap-7f);
}
WENGERT_INLINE double digamma_over_distance(double h) {
  return polynomial(h, 0.9510558760318328, -0.4236274212814606, 0.24054248424078697, -0.14840492305388092,
                    0.09498872445289039, -0.06192213327548831, 0.040760833940846085, -0.026975796659787055,
                    0.017907248317313294, -0.011908220105959716, 0.007927021796868154, -0.005279937255532708,
                    0.003518106563802472, -0.0023454947397380833, 0.0015633696313653504, -0.0010364584817312839,
                    0.0006909255761282986, -0.00048595039220036254, 0.00032395945401345196, -0.00014480643368061614,
                    9.653646261410062e-05, -0.0001782188548855923, 0.00011881232908510335);
}

// x^2 (ln x − 1/(2x) − digamma(x)) of z = x^-2, for x >= 8.
WENGERT_INLINE float digamma_tail(float z) { return polynomial(z, 0x1.555556p-4f, -0x1.110c74p-7f, 0x1.fbb7dap-9f); }
WENGERT_INLINE double digamma_tail(double z) {
  return polynomial(z, 0.08333333333333333, -0.008333333333331661, 0.003968253965997157, -0.004166665500744577,
                    0.007575459799959948, -0.02105105084681238, 0.08002294633669073, -0.29941807466089676);
}

// x^3 (trigamma(x) − 1/x − 1/(2x^2)) of z = x^-2, for x >= 8.
WENGERT_INLINE float trigamma_tail(float z) {
  return polynomial(z, 0x1.555556p-3f, -0x1.1110eep-5f, 0x1.85bfbcp-6f, -0x1.fde994p-6f);
}
WENGERT_INLINE double trigamma_tail(double z) {
  return polynomial(z, 0.16666666666666666, -0.033333333333332195, 0.023809523807577202, -0.03333333204264663,
                    0.07575714434477553, -0.2530318002604344, 1.1574233031453145, -6.464025064840333,
                    30.16120764807884);
}

namespace math {

// Γ(y) by a polynomial for y in [1, 5/2]. Left of 1, Γ(x) = Γ(1 + x) / x. Right of 5/2, with x = m + f and m the
// nearest integer, Γ(x) is Γ(2 + f) times the factors k + f for k from 2 to m - 1. One logarithm serves all ranges.
template <class T>
WENGERT_INLINE T lgamma(T x) {
  const T m = libm::rint(x), f = x - m;
  T product = T{1};
  for (int k = 2; k < 8; ++k) product *= m > static_cast<T>(k) ? static_cast<T>(k) + f : T{1};
  const bool low = x < T{1}, high = x >= T{8};
  const T l = log(low | high ? x : product);
  const T beyond_one = low ? x : (m > T{2} ? f + T{1} : x - T{1});
  const T beyond_two = low ? x - T{1} : (m > T{2} ? f : x - T{2});
  const T ratio = lgamma_over_distances(beyond_two + static_cast<T>(0.25));
  const T near = madd(beyond_one * beyond_two, ratio, low ? -l : l);
  const T r = T{1} / x;
  const T far =
      madd(x - static_cast<T>(0.5), l - T{1}, madd(r, lgamma_tail(r * r), static_cast<T>(0.4189385332046727)));
  return high ? far : near;
}

// With x = m + g, m the integer below, digamma(x) is digamma(1 + g) plus the sum of 1/(k + g) for k from 1 to m - 1, in
// one quotient; left of 1 it is digamma(1 + x) - 1/x.
template <class T>
WENGERT_INLINE T digamma(T x) {
  constexpr T kZeroHigh = sizeof(T) == 4 ? static_cast<T>(0x1.d8b618p-2) : static_cast<T>(0x1.d8b618d5af8fep-2);
  constexpr T kZeroLow = sizeof(T) == 4 ? static_cast<T>(0x1.ab5f2p-27) : static_cast<T>(-1.5522348162858677e-17);
  const T m = libm::floor(x), g = x - m;
  T numerator = x < T{1} ? T{-1} : T{0}, denominator = x < T{1} ? x : T{1};
  for (int k = 1; k < 7; ++k) {
    const bool counts = m > static_cast<T>(k);
    const T c = counts ? static_cast<T>(k) + g : T{1};
    numerator = madd(numerator, c, counts ? denominator : T{0});
    denominator *= c;
  }
  const T distance = (g - kZeroHigh) - kZeroLow;
  const T near = madd(distance, digamma_over_distance(g - static_cast<T>(0.5)), numerator / denominator);
  const T r = T{1} / x, z = r * r;
  const T far = log(x) - madd(static_cast<T>(0.5), r, z * digamma_tail(z));
  return x >= T{8} ? far : near;
}

// Below 8 the first eight terms of the sum of 1/(x + k)^2, and the series for x + 8: every term is positive. 1/x^2
// stands alone, since a product with it might underflow.
template <class T>
WENGERT_INLINE T trigamma(T x) {
  const T y = at_most(x, T{8});
  T numerator = T{0}, denominator = T{1};
  for (int k = 1; k < 8; ++k) {
    const T c = static_cast<T>(k) + y, square = c * c;
    numerator = madd(numerator, square, denominator);
    denominator *= square;
  }
  const T first = T{1} / y, sum = madd(first, first, numerator / denominator);
  const bool high = x >= T{8};
  const T r = T{1} / (high ? x : x + T{8}), z = r * r;
  const T series = madd(z * r, trigamma_tail(z), madd(static_cast<T>(0.5), z, r));
  return high ? series : series + sum;
}

// Of arguments <= 0, by reflection.
inline double digamma_left(double x) {
  if (x == 0.0) return with_sign_of(Format<double>::kInf, -x);
  const double nearest = libm::rint(x);
  if (nearest == x) return Format<double>::kNaN;  // poles, and minus infinity
  return digamma(1.0 - x) - kPi / libm::tan(kPi * (x - nearest));
}

inline double trigamma_left(double x) {
  if (x == -Format<double>::kInf) return Format<double>::kNaN;
  const double s = libm::sin(kPi * (x - libm::rint(x))) / kPi;
  return 1.0 / (s * s) - trigamma(1.0 - x);  // infinite at the poles
}

}  // namespace math

}  // namespace wengert::WENGERT_ISA_NAMESPACE
