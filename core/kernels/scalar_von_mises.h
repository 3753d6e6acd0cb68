// The distribution function of the von Mises distribution with the density e^(κ cos x) / (2π I₀(κ)) on [−π, π], its
// derivatives with respect to κ, and its inverse.
#pragma once
#include <algorithm>
#include <cmath>

#include "scalar_bessel.h"
#include "scalar_normal_quantile.h"

namespace wengert::special {

namespace von_mises {

inline constexpr double kPi = 0.5 * kTwoPi, kRootOfHalf = 0.70710678118654752440;
inline constexpr double kFar = 30.0;  // the concentration from which on the integral is an asymptotic series

// ½ + x/2π + Σ Iₙ(κ)/I₀(κ) sin(nx) / nπ, where the ratios of neighbours are a continued fraction, evaluated from its
// end (G. W. Hill: Incomplete Bessel function I₀: the von Mises distribution, ACM TOMS 3, 1977).
template <class T>
T fourier(double x, const T& k) {
  const int terms = 20 + static_cast<int>(1.4 * value_of(k));
  T ratio(0.0), sum(0.0);
  for (int n = terms; n > 0; --n) {
    ratio = k / (T(2.0 * n) + k * ratio);
    sum = ratio * (T(std::sin(n * x) / n) + sum);
  }
  return T(0.5 + x / kTwoPi) + sum * T(1.0 / kPi);
}

// ∫ e^(−u²/2) du to s, over √2π.
inline double normal_cdf(double s) { return 0.5 * std::erfc(-s * kRootOfHalf); }
template <int N>
Jet<N, false> normal_cdf(const Jet<N, false>& s) {
  double taylor[N + 1];
  const double v = value_of(s), density = std::exp(-0.5 * v * v) / std::sqrt(kTwoPi);
  taylor[0] = normal_cdf(v);
  double before = 0.0, hermite = 1.0, factorial = 1.0;
  for (int n = 1; n <= N; ++n) {
    factorial *= n;
    taylor[n] = density * hermite / factorial;
    const double next = -v * hermite - (n - 1) * before;  // (−1)ⁿ Heₙ(v)
    before = hermite;
    hermite = next;
  }
  return compose(taylor, s);
}

// With s = 2√κ sin(x/2) the integrand is e^(−s²/2) (1 − s²/4κ)^−½. The root is expanded, and ∫ s²ᵏ e^(−s²/2) ds by
// parts. For x <= 0, where nothing cancels.
template <class T>
T expansion(double x, const T& k) {
  const double half = std::sin(0.5 * x);
  const T s = sqrt_of(k) * T(2.0 * half), square = s * s, fourth = T(0.25) / k;
  const double size = std::exp(-0.5 * value_of(square)) / std::sqrt(kTwoPi);
  T edge = s * (exp_of_rest(square * T(-0.5)) * T(size));  // s^(2n − 1) e^(−s²/2), over √2π
  T moment = normal_cdf(s), whole(1.0), sum = moment, all(1.0), weight(1.0);
  for (int n = 1; n <= 18; ++n) {
    weight = weight * fourth * T((2.0 * n - 1.0) / (2.0 * n));
    moment = moment * T(2.0 * n - 1.0) - edge;
    whole = whole * T(2.0 * n - 1.0);
    edge = edge * square;
    sum = sum + weight * moment;
    all = all + weight * whole;
  }
  return sum / all;
}

template <class T>
T cdf(double x, const T& k) {
  if (value_of(k) < kFar) return fourier(x, k);
  return x > 0.0 ? T(1.0) - expansion(-x, k) : expansion(x, k);
}

inline double density(double x, double k) {
  const double half = std::sin(0.5 * x);
  return std::exp(-2.0 * k * half * half) / (kTwoPi * bessel_i_scaled(0, k));
}

}  // namespace von_mises

// (∂/∂κ)ⁿ F(x; κ) of an angle x around 0. Beyond [−π, π] it goes on counting: one more for every turn.
inline constexpr int kVonMisesOrders = 4;
inline double von_mises_cdf(double x, double k, int order) {
  if (!(k >= 0.0) || !(std::abs(x) < kInf)) return kNaN;
  const double turns = std::rint(x / kTwoPi), angle = x - kTwoPi * turns;
  if (k == kInf) return order > 0 ? 0.0 : turns + (angle < 0.0 ? 0.0 : angle > 0.0 ? 1.0 : 0.5);
  if (order == 0) return turns + von_mises::cdf(angle, k);
  const auto y = von_mises::cdf(angle, Jet<kVonMisesOrders, false>::first(k));
  return y.c[order][0] * std::tgamma(order + 1.0);
}

namespace von_mises {

// Newton's steps within an interval that shrinks, for p <= ½.
inline double icdf(double p, double k) {
  if (p == 0.0) return -kPi;
  if (k == kInf) return 0.0;
  double low = -kPi, high = 0.0;
  double x = k < 1.0 ? kTwoPi * (p - 0.5) : 2.0 * std::asin(std::max(-1.0, 0.5 * ndtri(p) / std::sqrt(k)));
  for (int i = 0; i < 200; ++i) {
    const double excess = cdf(x, k) - p;
    (excess > 0.0 ? high : low) = x;
    double next = x - excess / density(x, k);
    if (!(next >= low && next <= high)) next = 0.5 * (low + high);
    if (std::abs(next - x) <= 2.0 * kEpsilon * std::abs(x)) return next;
    x = next;
  }
  return x;
}

}  // namespace von_mises

// The inverse of F by x, in [−π, π].
inline double von_mises_icdf(double p, double k) {
  if (!(k >= 0.0) || !(p >= 0.0) || !(p <= 1.0)) return kNaN;
  return p > 0.5 ? -von_mises::icdf(1.0 - p, k) : von_mises::icdf(p, k);
}

}  // namespace wengert::special
