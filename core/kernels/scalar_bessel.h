// Bessel functions of integer order, from the C library, and modified Bessel functions of real order with their
// derivatives with respect to the order.
#pragma once
#include <math.h>

#include <algorithm>

#include "scalar_gamma.h"

namespace wengert::special {

// J and Y of integer order. CUDA's jn is NaN at 0.
inline double bessel_j(int n, double x) {
  if (x == 0.0) return n == 0 ? 1.0 : 0.0;
  return std::abs(x) == kInf ? 0.0 : ::jn(n, x);
}

inline double bessel_y(int n, double x) {
  if (!(x > 0.0)) return x == 0.0 ? -kInf : kNaN;
  return x == kInf ? 0.0 : ::yn(n, x);
}

namespace bessel {

inline constexpr int kMostTerms = 100000, kMostOrders = 4;
inline constexpr double kPi = 0.5 * kTwoPi;

// Poisson probabilities of k + v as a function of v.
inline double poisson_of(double a, double y) { return poisson(a, y); }
template <int N>
Jet<N, false> poisson_of(const Jet<N, false>& a, double y) {
  const double at = value_of(a);
  double taylor[N + 1] = {};
  double factorial = 1.0;
  for (int k = 1; k <= N; ++k) {
    factorial *= k;
    taylor[k] = ((k == 1 ? std::log(y) : 0.0) - polygamma(k - 1, at + 1.0)) / factorial;
  }
  return Jet<N, false>(poisson(at, y)) * exp_of_rest(compose(taylor, a));
}

// e⁻ˣ I_v(x) for v > −1 and x > 0. The power series (NIST DLMF 10.25.2) is the sum of pₖ p_{v + k}, Poisson
// probabilities of the mean x/2, and is summed from its largest term both ways: all terms are positive and none
// overflows.
template <class T>
T i_by_series(const T& v, double x) {
  const double y = 0.5 * x, at = value_of(v);
  const double middle = std::floor(std::max(0.0, 0.5 * (std::sqrt(at * at + x * x) - at)));
  const T peak = T(poisson(middle, y)) * poisson_of(v + T(middle), y);
  T sum = peak, term = peak;
  for (double k = middle + 1.0; k < middle + kMostTerms; k += 1.0) {
    term = term * (T(y * y / k) / (v + T(k)));
    sum = sum + term;
    if (is_negligible(term, sum)) break;
  }
  term = peak;
  for (double k = middle; k >= 1.0; k -= 1.0) {
    term = term * (T(k / (y * y)) * (v + T(k)));
    sum = sum + term;
    if (is_negligible(term, sum)) break;
  }
  return sum;
}

// Hankel's expansion (10.40.1), whose terms reach full accuracy before they grow again.
template <class T>
T i_by_expansion(const T& v, double x) {
  T term(1.0), sum(1.0);
  const T square = T(4.0) * v * v;
  for (int k = 1; k < 200; ++k) {
    term = term * (T((2.0 * k - 1.0) * (2.0 * k - 1.0)) - square) * T(1.0 / (8.0 * k * x));
    sum = sum + term;
    if (is_negligible(term, sum)) break;
  }
  return sum * T(1.0 / std::sqrt(kTwoPi * x));
}

// eˣ (∂/∂v)ⁿ K_v(x) by the trapezoidal rule on ∫₀^∞ e^(x − x cosh t) cosh vt dt (10.32.9), whose integrand falls off
// like e^−eᵗ: the error is beyond double for a step of a fraction of its width.
inline double k_by_integral(double v, double x, int order) {
  v = std::abs(v);
  const double step = std::fmin(0.17, 0.55 / std::sqrt(std::hypot(x, v))), peak = std::asinh(v / x);
  double sum = order == 0 ? 0.5 : 0.0;
  for (int k = 1; k < kMostTerms; ++k) {
    const double t = k * step, s = std::sinh(0.5 * t), back = v * t > 20.0 ? 0.0 : std::exp(-2.0 * v * t);
    double term = 0.5 * std::exp(v * t - 2.0 * x * s * s) * (order % 2 == 0 ? 1.0 + back : 1.0 - back);
    for (int i = 0; i < order; ++i) term *= t;
    sum += term;
    if (t > peak && term < kEpsilon * 0.1 * sum) break;
    if (sum == kInf) break;
  }
  return sum * step;
}

template <int N>
Jet<N, false> sine(const Jet<N, false>& v) {  // sin πv
  const double at = value_of(v), rest = at - 2.0 * std::rint(0.5 * at), s = std::sin(kPi * rest),
               c = std::cos(kPi * rest);
  const double derivatives[] = {rest == std::rint(rest) ? 0.0 : s, c, -s, -c};
  double taylor[N + 1], factor = 1.0;
  for (int k = 0; k <= N; ++k) {
    taylor[k] = derivatives[k % 4] * factor;
    factor *= kPi / (k + 1);
  }
  return compose(taylor, v);
}

// e⁻ˣ I_v(x) for every v; left of 0 it is I_{−v} − (2/π) sin(πv) K_v (10.27.2).
template <int N>
Jet<N, false> i_scaled(const Jet<N, false>& v, double x) {
  using J = Jet<N, false>;
  const double at = value_of(v);
  const J positive = at < 0.0 ? J(0.0) - v : v;
  const J y = x > 50.0 + at * at ? i_by_expansion(positive, x) : i_by_series(positive, x);
  if (!(at < 0.0)) return y;
  double taylor[N + 1], factorial = 1.0;
  for (int k = 0; k <= N; ++k) {
    factorial *= std::max(k, 1);
    const double sign = k % 2 == 0 ? 1.0 : -1.0;  // of the derivatives at |v|
    taylor[k] = sign * k_by_integral(at, x, k) / factorial;
  }
  const J k_part = compose(taylor, v) * J(std::exp(-2.0 * x) * 2.0 / kPi);
  return y - sine(v) * k_part;
}

// At x = 0 only the constant term counts: 1 for v = 0.
inline double i_at_zero(double v, int order) {
  if (order > 0) return v > 0.0 ? 0.0 : kNaN;
  if (v == 0.0) return 1.0;
  return v > 0.0 || v == std::floor(v) ? 0.0 : std::fmod(std::floor(v), 2.0) == 0.0 ? kInf : -kInf;
}

}  // namespace bessel

namespace bessel {

// For x >= 0.
inline double iv(double v, double x, int order, bool scaled) {
  if (x == 0.0) return i_at_zero(v, order);
  if (x == kInf) return scaled ? 0.0 : kInf;
  if (v == std::floor(v) && order == 0) v = std::abs(v);
  double y;
  if (order == 0) {
    y = v >= 0.0 ? (x > 50.0 + v * v ? i_by_expansion(v, x) : i_by_series(v, x))
                 : i_scaled(Jet<1, false>::first(v), x).c[0][0];
  } else {
    y = i_scaled(Jet<kMostOrders, false>::first(v), x).c[order][0];
    for (int k = 2; k <= order; ++k) y *= k;
  }
  if (scaled) return y;
  const double half = std::exp(0.5 * x);  // eˣ overflows before the product does
  return half == kInf ? kInf : y * half * half;
}

}  // namespace bessel

// The modified functions of real order: (∂/∂v)ⁿ I_v(x) and (∂/∂v)ⁿ K_v(x) for n up to kBesselOrders; `scaled` by e⁻|x|
// and by eˣ.
inline constexpr int kBesselOrders = bessel::kMostOrders;
inline double bessel_iv(double v, double x, int order, bool scaled) {
  if (v != v || x != x || std::abs(v) == kInf) return kNaN;
  if (!(x < 0.0)) return bessel::iv(v, x, order, scaled);
  if (v != std::floor(v) || order > 0) return kNaN;
  return (std::fmod(v, 2.0) == 0.0 ? 1.0 : -1.0) * bessel::iv(v, -x, order, scaled);  // even or odd
}

inline double bessel_kv(double v, double x, int order, bool scaled) {
  if (v != v || !(x >= 0.0) || std::abs(v) == kInf) return kNaN;
  if (x == 0.0) return order == 0 ? kInf : v == 0.0 ? 0.0 : v > 0.0 || order % 2 == 0 ? kInf : -kInf;
  if (x == kInf) return 0.0;
  double y = bessel::k_by_integral(v, x, order);
  if (order % 2 == 1 && v < 0.0) y = -y;
  return scaled ? y : y * std::exp(-0.5 * x) * std::exp(-0.5 * x);
}

namespace bessel {

// 1 / k: a product for each term of a series instead of a division, which takes three times as long.
struct Reciprocals {
  double of[128] = {};
  constexpr Reciprocals() {
    for (int k = 1; k < 128; ++k) of[k] = 1.0 / k;
  }
};
inline constexpr Reciprocals kReciprocals;

inline double reciprocal(int k) { return k < 128 ? kReciprocals.of[k] : 1.0 / k; }

}  // namespace bessel

// e^-|x| I_n(x) / x^n. The power series (NIST DLMF 10.25.2) has positive terms only; beyond, Hankel's expansion
// (10.40.1) reaches full accuracy before its terms grow again.
inline double bessel_i_scaled(int n, double x) {
  x = std::abs(x);
  if (x < 25.0 + n * n) {
    double term = 1.0;
    for (int k = 1; k <= n; ++k) term /= 2.0 * k;
    const double y = 0.25 * x * x;
    double sum = term;
    for (int k = 1; term > 1e-17 * sum; ++k) {
      term *= y * (bessel::reciprocal(k) * bessel::reciprocal(n + k));
      sum += term;
    }
    return x == x ? sum * std::exp(-x) : x;
  }
  double term = 1.0, sum = 1.0;
  for (int k = 1; k < 60 && std::abs(term) > 1e-17; ++k) {
    term *= -(4.0 * n * n - (2.0 * k - 1.0) * (2.0 * k - 1.0)) / (8.0 * k * x);
    sum += term;
  }
  return sum / (std::sqrt(kTwoPi * x) * std::pow(x, n));
}

// I_n(x) / x^n, an even entire function whose derivative is x I_{n+1}(x) / x^{n+1}. The exponential is applied in two
// steps: it overflows before the function does.
inline double bessel_i(int n, double x) {
  const double half = std::exp(0.5 * std::abs(x)), y = bessel_i_scaled(n, x);
  return half == kInf ? kInf : y * half * half;
}

}  // namespace wengert::special
