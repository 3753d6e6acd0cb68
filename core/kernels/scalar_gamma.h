// Γ, Hurwitz' zeta function, and with it the derivatives of ln Γ of any order.
#pragma once
#include "scalar_gamma_parts.h"
#include "scalar_jet.h"

namespace wengert::special {

namespace zeta_parts {

// q⁻ˢ
inline double power(double q, double s) { return std::pow(q, -s); }
template <int N>
Jet<N, false> power(double q, const Jet<N, false>& s) {
  Jet<N, false> logarithm = s * Jet<N, false>(-std::log(q));
  return Jet<N, false>(std::pow(q, -value_of(s))) * exp_of_rest(logarithm);
}

// Σ (q + k)⁻ˢ for s > 1 and q > 0, by Euler and Maclaurin's sum from q + k >= 10 on (NIST DLMF 25.11.28); the
// coefficients are B₂ⱼ / (2j)!. The type of s is a number, or a Jet with the derivatives with respect to s.
template <class T>
T zeta_positive(const T& s, double q) {
  if (q == kInf) return T(0.0);
  constexpr double kBernoulli[] = {1.0 / 12,
                                   -1.0 / 720,
                                   1.0 / 30240,
                                   -1.0 / 1209600,
                                   1.0 / 47900160,
                                   -691.0 / 1307674368000.0,
                                   1.0 / 74724249600.0,
                                   -3617.0 / 10670622842880000.0,
                                   43867.0 / 5109094217170944000.0};
  T sum(0.0);
  for (; q < 10.0 + 0.5 * value_of(s); q += 1.0) {
    const T term = power(q, s);
    sum = sum + term;
    if (is_negligible(term, sum)) return sum;
  }
  const T tail = power(q, s);
  sum = sum + tail * (T(q) / (s - T(1.0)) + T(0.5));
  T factor = s * tail / T(q);
  for (int j = 0; j < 9; ++j) {
    const T term = T(kBernoulli[j]) * factor;
    sum = sum + term;
    if (is_negligible(term, sum)) break;
    factor = factor * (s + T(2 * j + 1)) * (s + T(2 * j + 2)) / T(q * q);
  }
  return sum;
}

// The same for every q, with infinite terms at the poles. Left of 0 the sum over all integers, which has the period 1,
// without the terms that do not belong.
inline double zeta_of_integer(int s, double q) {
  if (q > 0.0) return zeta_positive<double>(s, q);
  const double sign = s % 2 == 0 ? 1.0 : -1.0, rest = q - std::rint(q), a = std::abs(rest);
  if (a == 0.0) return s % 2 == 0 || q != 0.0 ? kInf : std::copysign(kInf, q);
  const double around = zeta_positive<double>(s, a) + sign * zeta_positive<double>(s, 1.0 - a);
  return (rest < 0.0 ? sign * around : around) - sign * zeta_positive<double>(s, 1.0 - q);
}

// By recurrence to x >= 10 and the asymptotic series (NIST DLMF 5.11.2), for x > 0.
inline double digamma_positive(double x) {
  double sum = 0.0;
  for (; x < 10.0; x += 1.0) sum -= 1.0 / x;
  const double r = 1.0 / x, z = r * r;
  constexpr double k[] = {-1.0 / 12, 1.0 / 120, -1.0 / 252, 1.0 / 240, -1.0 / 132, 691.0 / 32760, -1.0 / 12};
  double tail = 0.0;
  for (int i = 6; i >= 0; --i) tail = tail * z + k[i];
  return sum + (std::log(x) - 0.5 * r + z * tail);
}

// Left of 0 by reflection.
inline double digamma(double x) {
  if (!(x <= 0.0)) return digamma_positive(x);
  const double rest = x - std::rint(x);
  return rest == 0.0 ? kNaN : digamma_positive(1.0 - x) - 0.5 * kTwoPi / std::tan(0.5 * kTwoPi * rest);
}

}  // namespace zeta_parts

// ψ⁽ⁿ⁾(x), the n-th derivative of digamma, for n >= 0.
inline double polygamma(int n, double x) {
  if (!(x > -kInf)) return kNaN;
  if (n == 0) return zeta_parts::digamma(x);
  double factorial = 1.0;
  for (int k = 2; k <= n; ++k) factorial *= k;
  const double y = factorial * zeta_parts::zeta_of_integer(n + 1, x);
  return n % 2 == 0 ? -y : y;
}

// Hurwitz' ζ(s, q) = Σ (q + k)⁻ˢ for s > 1.
inline double zeta(double s, double q) {
  if (!(s >= 1.0) || q != q) return kNaN;
  if (s == 1.0) return kInf;
  if (q > 0.0) return s == kInf ? (q > 1.0 ? 0.0 : q == 1.0 ? 1.0 : kInf) : zeta_parts::zeta_positive(s, q);
  if (q == std::floor(q)) return kInf;
  return s == std::floor(s) && s < 1e6 ? zeta_parts::zeta_of_integer(static_cast<int>(s), q) : kNaN;
}

// (∂/∂s)ⁿ ζ(s, q)
inline constexpr int kZetaOrders = 6;
inline double zeta_by_s(double s, double q, int order) {
  if (order == 0) return zeta(s, q);
  if (!(s > 1.0) || !(q > 0.0) || s == kInf) return kNaN;
  double y = zeta_parts::zeta_positive(Jet<kZetaOrders, false>::first(s), q).c[order][0];
  for (int k = 2; k <= order; ++k) y *= k;
  return y;
}

// Γ(x)
inline double gamma(double x) { return std::tgamma(x); }

}  // namespace wengert::special
