// What the incomplete gamma and beta functions share: ln Γ in parts that do not cancel.
#pragma once
#include <cmath>
#include <limits>

namespace wengert::special {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kEpsilon = 0x1p-53;
inline constexpr double kTwoPi = 6.28318530717958647693;

// ln Γ(x) − ((x − ½) ln x − x + ½ ln 2π) for x >= 10: the tail of Stirling's series (NIST DLMF 5.11.1).
inline double stirling_tail(double x) {
  const double r = 1.0 / x, z = r * r;
  constexpr double k[] = {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360, 1.0 / 156};
  double sum = 0.0;
  for (int i = 6; i >= 0; --i) sum = sum * z + k[i];
  return r * sum;
}

// u − ln(1 + u), without cancellation: with r = u/(2 + u), ln(1 + u) = 2 artanh r.
inline double minus_log1p(double u) {
  if (!(std::abs(u) < 0.5)) return u - std::log1p(u);
  const double r = u / (2.0 + u), z = r * r;
  double sum = 0.0, power = 1.0;
  for (int k = 1; k < 40; ++k) {
    power *= z;
    const double term = power / (2 * k + 1);
    sum += term;
    if (term < kEpsilon * sum) break;
  }
  return r * (u - 2.0 * sum);
}

// k ln(k/m) + m − k, where m − k is known better than the difference of the two.
inline double deviance(double k, double m, double difference) {
  const double u = difference / k;
  return std::abs(u) < 0.5 ? k * minus_log1p(u) : difference - k * std::log(m / k);
}

// xᵃ e⁻ˣ / Γ(a + 1) for a > −1, as C. Loader computes it: Fast and accurate computation of binomial probabilities
// (2000).
inline double poisson(double a, double x) {
  if (a < 10.0) {
    const double half = std::exp(-0.5 * x);  // e⁻ˣ underflows before the product does
    return std::pow(x, a) * half / std::tgamma(a + 1.0) * half;
  }
  if (x == 0.0) return 0.0;
  return std::exp(-deviance(a, x, x - a) - stirling_tail(a)) / std::sqrt(kTwoPi * a);
}

}  // namespace wengert::special
