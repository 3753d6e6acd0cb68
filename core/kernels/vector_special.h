// Euler's beta function and a modified Bessel function, in double.
#pragma once
#include "vector_gamma.h"

namespace wengert::WENGERT_ISA_NAMESPACE::math {

// ln Γ(x) − ((x − ½) ln x − x + ½ ln 2π) for x >= 10: the tail of Stirling's series (Abramowitz and Stegun 6.1.41).
WENGERT_INLINE double stirling_tail(double x) {
  const double r = 1.0 / x, z = r * r;
  return r * polynomial(z, 1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360, 1.0 / 156);
}

// ln |B(a, b)|. Where an argument is large, ln Γ(b) and ln Γ(a + b) are nearly equal: their difference is taken term by
// term of Stirling's series (the method of Didonato and Morris, TOMS 708). Of positive numbers; branch-free.
WENGERT_INLINE double betaln(double a, double b) {
  const double low = a < b ? a : b, high = a < b ? b : a, sum = low + high;
  const bool large = high >= 10.0, both_large = low >= 10.0;
  const double h = large ? high : 10.0, t = large ? sum : 10.0;  // what the series is not for, replaced
  const double part = low / t, rest = log1p(large ? -part : 0.0), l = log(sum);
  const double tails = stirling_tail(h) - stirling_tail(t);
  // ln Γ(high) − ln Γ(sum)
  const double apart = large ? tails + (low - low * l) + (high - 0.5) * rest : lgamma(high) - lgamma(sum);
  const double far = (0.91893853320467274178 - 0.5 * log(high)) + (tails + stirling_tail(both_large ? low : 10.0)) +
                     (low - 0.5) * log(part) + high * rest;
  return both_large ? far : lgamma(low) + apart;
}

// Of other numbers.
inline double betaln_far(double a, double b) {
  const double low = a < b ? a : b, high = a < b ? b : a;
  if (low > 0.0 && high == Format<double>::kInf) return -high;
  return (libm::lgamma(low) + libm::lgamma(high)) - libm::lgamma(low + high);
}

// e^-|x| I₀(x): below 8 a polynomial in x/4 - 1, beyond one in 16/x - 1 over the root of x. By Chebyshev interpolation
// in 60 digits; relative errors 2^-57, and 2^-28 for single precision, which is computed in double: terms of both signs
// would cost it three bits.
template <class T>
WENGERT_INLINE double i0e_near(double t) {
  if constexpr (sizeof(T) == 4) {
    return polynomial(t, 0.2070019212239867, -0.11300433610864266, 0.09451563189402233, -0.08904288918698641,
                      0.08734321532557372, -0.08497304959010592, 0.07927874418670428, -0.06946451493109221,
                      0.05674911084395445, -0.04331379367909357, 0.030297408532378764, -0.018865125988389776,
                      0.011661634063608236, -0.00800984960667441, 0.0040626536466720365, -0.0007596967284124182,
                      0.00046962487311860636, -0.0008508526976662284, 0.0003359461388227254);
  } else {
    return polynomial(t, 0.2070019212239867, -0.11300432688620549, 0.09451562853995103, -0.08904344136075991,
                      0.08734341617552291, -0.08496338091615124, 0.07927522590716898, -0.06954119561742342,
                      0.056777032019843215, -0.04298594945226738, 0.03017791202356886, -0.019682654708082413,
                      0.011960077903963348, -0.006792399792271578, 0.0036171264596770616, -0.0018118870527295522,
                      0.0008563152483951447, -0.0003829015089457559, 0.0001624054672701359, -6.550956130635514e-05,
                      2.5202271984440893e-05, -9.25059710625537e-06, 3.2293850630678377e-06, -1.0891964284507317e-06,
                      3.675592893288293e-07, -1.1339523685907105e-07, 2.6273368345256394e-08, -7.860369707508212e-09,
                      4.469372581856615e-09, -1.1662904878442954e-09);
  }
}
template <class T>
WENGERT_INLINE double i0e_beyond(double t) {
  if constexpr (sizeof(T) == 4) {
    return polynomial(t, 0.4021765094450081, 0.003360555851925354, 0.00013621684311530046, 1.1111525456650673e-05,
                      1.4767921099426897e-06, 3.631710305277285e-07, 1.0829898259260847e-07);
  } else {
    return polynomial(t, 0.4021765094450081, 0.003360551983667854, 0.00013621607439232746, 1.1143033791556743e-05,
                      1.4838475473607391e-06, 2.973598432479169e-07, 8.87225351128584e-08, 3.932602459703109e-08,
                      2.1545177650836005e-08, 7.553516470355896e-09, -6.729724111923548e-09, -1.3404241991980871e-08,
                      -5.4685974495866e-09, 7.540601378890834e-09, 7.58022133915272e-09, -3.4857887470034955e-09,
                      -6.188265090497361e-09, 1.497880830187091e-09, 3.881151253996067e-09, -5.562201990080394e-10,
                      -1.7789375042917173e-09, 1.4672236659214398e-10, 5.181936971288284e-10, -1.9216763724933513e-11,
                      -7.06893851181878e-11);
  }
}
template <class T>
WENGERT_INLINE T i0e(T x) {
  const double a = magnitude(static_cast<double>(x));
  const bool near = a < 8.0;
  const double b = near ? 8.0 : a;
  const double beyond = i0e_beyond<T>(16.0 / b - 1.0) / libm::sqrt(b);
  return static_cast<T>(near ? i0e_near<T>(0.25 * a - 1.0) : beyond);
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE::math
