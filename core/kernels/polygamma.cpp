// The derivatives of ln Γ of any order.
#include "gamma_parts.h"

namespace wengert::special {

namespace {

// Σ_k (q + k)^-s for integer s > 1 and q > 0, by Euler and Maclaurin's sum from q + k >= 10 on (NIST DLMF 25.11.28);
// the coefficients are B_2j / (2j)!.
double zeta_positive(int s, double q) {
  if (q == kInf) return 0.0;
  constexpr double kBernoulli[] = {1.0 / 12,
                                   -1.0 / 720,
                                   1.0 / 30240,
                                   -1.0 / 1209600,
                                   1.0 / 47900160,
                                   -691.0 / 1307674368000.0,
                                   1.0 / 74724249600.0,
                                   -3617.0 / 10670622842880000.0,
                                   43867.0 / 5109094217170944000.0};
  double sum = 0.0;
  for (; q < 10.0 + 0.5 * s; q += 1.0) {
    const double term = std::pow(q, -s);
    sum += term;
    if (term < 1e-17 * sum) return sum;
  }
  const double tail = std::pow(q, -s);
  sum += tail * (q / (s - 1) + 0.5);
  double factor = s * tail / q;
  for (int j = 0; j < 9; ++j) {
    const double term = kBernoulli[j] * factor;
    sum += term;
    if (std::abs(term) < 1e-17 * std::abs(sum)) break;
    factor *= (s + 2 * j + 1) * (s + 2 * j + 2) / (q * q);
  }
  return sum;
}

// The same for every q, with infinite terms at the poles. Left of 0 the sum over all integers, which has the period 1,
// without the terms that do not belong.
double zeta(int s, double q) {
  if (q > 0.0) return zeta_positive(s, q);
  const double sign = s % 2 == 0 ? 1.0 : -1.0, rest = q - std::rint(q), a = std::abs(rest);
  if (a == 0.0) return s % 2 == 0 || q != 0.0 ? kInf : std::copysign(kInf, q);
  const double around = zeta_positive(s, a) + sign * zeta_positive(s, 1.0 - a);
  return (rest < 0.0 ? sign * around : around) - sign * zeta_positive(s, 1.0 - q);
}

// By recurrence to x >= 10 and the asymptotic series (NIST DLMF 5.11.2); left of 0 by reflection.
double digamma(double x) {
  if (x <= 0.0) {
    const double rest = x - std::rint(x);
    return rest == 0.0 ? kNaN : digamma(1.0 - x) - 0.5 * kTwoPi / std::tan(0.5 * kTwoPi * rest);
  }
  double sum = 0.0;
  for (; x < 10.0; x += 1.0) sum -= 1.0 / x;
  const double r = 1.0 / x, z = r * r;
  constexpr double k[] = {-1.0 / 12, 1.0 / 120, -1.0 / 252, 1.0 / 240, -1.0 / 132, 691.0 / 32760, -1.0 / 12};
  double tail = 0.0;
  for (int i = 6; i >= 0; --i) tail = tail * z + k[i];
  return sum + (std::log(x) - 0.5 * r + z * tail);
}

}  // namespace

double polygamma(int n, double x) {
  if (!(x > -kInf)) return kNaN;
  if (n == 0) return digamma(x);
  double factorial = 1.0;
  for (int k = 2; k <= n; ++k) factorial *= k;
  const double y = factorial * zeta(n + 1, x);
  return n % 2 == 0 ? -y : y;
}

}  // namespace wengert::special
