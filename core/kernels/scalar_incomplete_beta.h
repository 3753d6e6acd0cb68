// The incomplete beta function I_x(a, b), its derivatives with respect to each argument, and its inverse.
//
// The continued fraction NIST DLMF 8.17.22 by Lentz's method, on the side of the mean where it converges fast; the
// factor xᵃ (1 − x)ᵇ / B(a, b) as in C. Loader: Fast and accurate computation of binomial probabilities (2000). The
// fraction is a template over the type of a and b: numbers, or Jets, which carry the derivatives.
#pragma once
#include "scalar_gamma.h"
#include "scalar_normal_quantile.h"

namespace wengert::special {

namespace incomplete_beta {

inline constexpr int kMostTerms = 100000;

// ln Γ(high) − ln Γ(low + high) for high >= 10, without the cancellation.
inline double lgamma_difference(double low, double high) {
  const double sum = low + high;
  return (high - 0.5) * -std::log1p(low / high) + low * (1.0 - std::log(sum)) + stirling_tail(high) -
         stirling_tail(sum);
}

// xᵃ yᵇ / B(a, b) for y = 1 − x
inline double front_value(double a, double b, double x, double y) {
  const double low = std::fmin(a, b), high = std::fmax(a, b), n = a + b;
  if (low >= 10.0) {
    const double distance = b * x - a * y;
    const double exponent = deviance(a, n * x, distance) + deviance(b, n * y, -distance);
    const double tails = (stirling_tail(a) + stirling_tail(b)) - stirling_tail(n);
    return std::exp(-exponent - tails) * std::sqrt(low / kTwoPi * (high / n));
  }
  const double powers = x < y ? std::pow(x, a) : std::exp(a * std::log1p(-y));
  const double others = x < y ? std::exp(b * std::log1p(-x)) : std::pow(y, b);
  if (high < 10.0 && powers > 1e-150 && others > 1e-150) {
    // 1/Γ(a) as a/Γ(a + 1): Γ overflows near 0
    return powers * others * std::tgamma(n + 1.0) / (std::tgamma(a + 1.0) * std::tgamma(b + 1.0)) * (low / n * high);
  }
  const double logarithms = a * (x < y ? std::log(x) : std::log1p(-y)) + b * (x < y ? std::log1p(-x) : std::log(y));
  const double beta = high < 10.0 ? std::lgamma(high) - std::lgamma(n) : lgamma_difference(low, high);
  return std::exp(logarithms - (std::lgamma(low) + beta));
}

inline double front(double a, double b, double x, double y) { return front_value(a, b, x, y); }
template <int N>
Jet<N, true> front(const Jet<N, true>& a, const Jet<N, true>& b, double x, double y) {
  Jet<N, true> logarithm;
  double both[N];
  const double va = value_of(a), vb = value_of(b);
  for (int k = 0; k < N; ++k) both[k] = polygamma(k, va + vb);
  const bool swapped = a.c[0][N > 0 ? 1 : 0] != 0.0;  // a carries the second variable
  double factorial[N + 1] = {1.0};
  for (int k = 1; k <= N; ++k) factorial[k] = factorial[k - 1] * k;
  Jet<N, true>::each([&](int i, int j) {
    if (i + j == 0) return;
    double d = both[i + j - 1];
    if (j == 0 || i == 0) {
      const bool of_a = (j == 0) != swapped;
      d -= polygamma(i + j - 1, of_a ? va : vb);
      if (i + j == 1) d += std::log(of_a ? x : y);
    }
    logarithm.c[i][j] = d / (factorial[i] * factorial[j]);
  });
  return Jet<N, true>(front_value(va, vb, x, y)) * exp_of_rest(logarithm);
}

// I_x(a, b) = front / a · 1/(1 + d₁/(1 + d₂/(1 + …))), fast for x < (a + 1)/(a + b + 2).
template <class T>
T fraction(const T& a, const T& b, double x, double y) {
  const T one(1.0), n = a + b;
  T c(1.0), d = one / (one - n * T(x) / (a + one)), sum = d;
  for (int m = 1; m < kMostTerms; ++m) {
    const T at = a + T(2.0 * m);
    const T even = T(m) * (b - T(m)) * T(x) / ((at - one) * at);
    const T odd = (T(0.0) - (a + T(m))) * (n + T(m)) * T(x) / (at * (at + one));
    d = one / (one + even * d);
    c = one + even / c;
    sum = sum * (d * c);
    d = one / (one + odd * d);
    c = one + odd / c;
    const T factor = d * c;
    sum = sum * factor;
    if (size_of_jet(factor - one) < 2.0 * kEpsilon) break;
  }
  return front(a, b, x, y) * sum / a;
}

// Whether the fraction is taken of I_{1 − x}(b, a).
inline bool is_right(double a, double b, double x) { return x > (a + 1.0) / (a + b + 2.0); }

// The value where a limit decides; `inside` if the fraction is to be asked.
inline double at_the_ends(double a, double b, double x, bool* inside) {
  *inside = false;
  if (!(a >= 0.0) || !(b >= 0.0) || !(x >= 0.0 && x <= 1.0)) return kNaN;
  if ((a == 0.0 && b == 0.0) || (a == kInf && b == kInf)) return kNaN;
  if (a == 0.0 || b == kInf) return x > 0.0 ? 1.0 : 0.0;
  if (b == 0.0 || a == kInf) return x < 1.0 ? 0.0 : 1.0;
  if (x == 0.0 || x == 1.0) return x;
  *inside = true;
  return 0.0;
}

}  // namespace incomplete_beta

// B(a, b) = Γ(a) Γ(b) / Γ(a + b)
inline double beta(double a, double b) {
  const double low = std::fmin(a, b), high = std::fmax(a, b);
  if (high < 10.0) return std::tgamma(high) / std::tgamma(low + high) * std::tgamma(low);
  return std::exp(std::lgamma(low) + incomplete_beta::lgamma_difference(low, high));
}

// I_x(a, b)
inline double betainc(double a, double b, double x) {
  bool inside;
  const double end = incomplete_beta::at_the_ends(a, b, x, &inside);
  if (!inside) return end;
  using namespace incomplete_beta;
  return is_right(a, b, x) ? 1.0 - fraction(b, a, 1.0 - x, x) : fraction(a, b, x, 1.0 - x);
}

// ∂I/∂x
inline double betainc_density(double a, double b, double x) {
  if (!(a > 0.0) || !(b > 0.0) || !(x >= 0.0 && x <= 1.0)) return kNaN;
  if (x == 0.0) return a < 1.0 ? kInf : a == 1.0 ? b : 0.0;
  if (x == 1.0) return b < 1.0 ? kInf : b == 1.0 ? a : 0.0;
  return incomplete_beta::front_value(a, b, x, 1.0 - x) / x / (1.0 - x);
}

// (∂/∂a)ᵐ (∂/∂b)ⁿ I for m + n up to kBetaincOrders
inline constexpr int kBetaincOrders = 4;
inline double betainc_by_ab(double a, double b, double x, int m, int n) {
  bool inside;
  const double end = incomplete_beta::at_the_ends(a, b, x, &inside);
  if (!inside) return end == end && a > 0.0 && b > 0.0 ? 0.0 : kNaN;
  const auto partial = [&]<int N>() {
    using namespace incomplete_beta;
    const auto va = Jet<N, true>::first(a), vb = Jet<N, true>::second(b);
    const bool right = is_right(a, b, x);
    double y = fraction(right ? vb : va, right ? va : vb, right ? 1.0 - x : x, right ? x : 1.0 - x).c[m][n];
    for (int k = 2; k <= m; ++k) y *= k;
    for (int k = 2; k <= n; ++k) y *= k;
    return right ? -y : y;
  };
  return m + n == 1 ? partial.template operator()<1>() : partial.template operator()<kBetaincOrders>();
}

namespace incomplete_beta {

// A first guess: the tails P ≈ xᵃ/(a B), or a normal approximation (Abramowitz and Stegun 26.5.22).
inline double first_guess(double a, double b, double p) {
  if (a >= 1.0 && b >= 1.0) {
    const double z = ndtri(p), l = (z * z - 3.0) / 6.0, ra = 1.0 / (2.0 * a - 1.0), rb = 1.0 / (2.0 * b - 1.0);
    const double h = 2.0 / (ra + rb), root = std::sqrt(std::fmax(h + l, 0.0));
    const double w = -z * root / h - (rb - ra) * (l + 5.0 / 6.0 - 2.0 / (3.0 * h));
    return a / (a + b * std::exp(2.0 * w));
  }
  const double n = a + b, left = std::exp(a * std::log(a / n)) / a, right = std::exp(b * std::log(b / n)) / b;
  const double sum = left + right;
  if (p < left / sum) return std::pow(a * sum * p, 1.0 / a);
  return 1.0 - std::pow(b * sum * (1.0 - p), 1.0 / b);
}

}  // namespace incomplete_beta

// The inverse by x: Halley's steps, kept between bounds that the signs of the error give; a step that leaves them is
// replaced by bisection, of the exponent where the bounds are orders of magnitude apart.
inline double betaincinv(double a, double b, double p) {
  if (!(a > 0.0) || !(b > 0.0) || !(p >= 0.0 && p <= 1.0) || a == kInf || b == kInf) return kNaN;
  if (p == 0.0 || p == 1.0) return p;
  constexpr double kSmallest = std::numeric_limits<double>::min();
  double low = 0.0, high = 1.0, x = incomplete_beta::first_guess(a, b, p);
  if (!(x > kSmallest)) x = kSmallest;
  if (!(x < 1.0)) x = 1.0 - kEpsilon;
  for (int k = 0; k < 300; ++k) {
    const double error = betainc(a, b, x) - p;
    if (error == 0.0) break;
    (error > 0.0 ? high : low) = x;
    const double newton = error / betainc_density(a, b, x);
    const double bend = 0.5 * newton * ((a - 1.0) / x - (b - 1.0) / (1.0 - x));
    double next = x - newton / (1.0 - std::fmin(std::fmax(bend, -0.8), 0.8));
    const bool halved = !(next >= low && next <= high);
    if (halved) {
      next = high > 4.0 * low ? std::sqrt(std::fmax(low, kSmallest) * high) : 0.5 * (low + high);
    }
    const double step = std::abs(next - x);
    x = next;
    // Halley's step cubes the error: after a small one there is nothing left.
    if (step <= (halved ? 2.0 * kEpsilon : 1e-6) * std::fmin(x, 1.0 - x) || high - low <= 4.0 * kEpsilon * low) break;
  }
  return x;
}

}  // namespace wengert::special
