// How a draw z of Gamma(a, 1) moves with a, one element at a time (gamma_slope.h says what is computed).
//
// With t = z e^±s, the tails are ∫ exp(−φ(s)) ds with φ(s) = |z − a| s + z (e^±s − 1 ∓ s), a convex function. Its
// integral up to φ = kDepth is done by Gauss and Legendre's rule.
#pragma once
#include <cmath>

#include "scalar_gamma_parts.h"

namespace wengert::slopes {

using special::kInf, special::kNaN, special::kTwoPi;

inline constexpr double kDepth = 38.0;
inline constexpr int kNodes = 24, kNodesNarrow = 16;
inline constexpr double kSeriesBelow = 24.0;  // z up to which the series of the lower tail has few terms
inline constexpr double kTaylorBelow = 0.5;   // |s| up to which e^s − 1 − s is summed

// For an x up to π.
constexpr double cosine(double x) {
  double term = 1.0, sum = 1.0;
  for (int k = 1; k < 16; ++k) {
    term *= -x * x / ((2 * k - 1) * (2 * k));
    sum += term;
  }
  return sum;
}

template <int n>
struct GaussLegendre {
  double node[n] = {}, weight[n] = {};  // on [0, 1]

  constexpr GaussLegendre() {
    for (int i = 0; i < n; ++i) {
      double x = cosine(0.5 * kTwoPi * (i + 0.75) / (n + 0.5)), slope = 1.0;
      for (int step = 0; step < 8; ++step) {
        double before = 0.0, p = 1.0;
        for (int k = 1; k <= n; ++k) {
          const double next = ((2 * k - 1) * x * p - (k - 1) * before) / k;
          before = p, p = next;
        }
        slope = n * (x * p - before) / (x * x - 1.0);
        x -= p / slope;
      }
      node[i] = 0.5 * (1.0 - x);
      weight[i] = 1.0 / ((1.0 - x * x) * slope * slope);
    }
  }
};
template <int n>
inline constexpr GaussLegendre<n> kRule{};

// 1 / k! for k from 2 on: what e^s − 1 − s is made of.
struct TaylorOfExp {
  static constexpr int kTerms = 14;
  double of[kTerms] = {};
  constexpr TaylorOfExp() {
    double factorial = 1.0;
    for (int k = 2; k < kTerms + 2; ++k) of[k - 2] = 1.0 / (factorial *= k);
  }
};
inline constexpr TaylorOfExp kTaylor;

// e^s − 1 − s for |s| <= kTaylorBelow.
inline double exp_beyond_line(double s) {
  double sum = kTaylor.of[TaylorOfExp::kTerms - 1];
  for (int k = TaylorOfExp::kTerms - 1; k-- > 0;) sum = kTaylor.of[k] + s * sum;
  return s * s * sum;
}

// Where φ reaches `depth`, or a little further. Below: e^−s − 1 + s >= s² / (2 + s). Above: e^s − 1 − s >= s² / 2.
inline double reach(double a, double z, double depth) {
  const double d = std::abs(z - a);
  if (z <= a) {
    const double b = 2.0 * d - depth, root = std::sqrt(b * b + 8.0 * a * depth);
    return b > 0.0 ? 4.0 * depth / (b + root) : (root - b) / (2.0 * a);
  }
  const double s = 2.0 * depth / (d + std::sqrt(d * d + 2.0 * depth * z));
  return std::fmin(s, std::log(depth / z + 1.0 + s));
}

// ln z − ψ(a), where `psi` is ψ(1 + a). For large a both are close to ln a, which is left out.
inline double log_excess(double a, double z, double l, double psi) {
  if (a < 16.0) return l - psi + 1.0 / a;
  const double q = 1.0 / (a * a);
  const double below = 0.5 / a + q * (1.0 / 12 - q * (1.0 / 120 - q * (1.0 / 252 - q * (1.0 / 240 - q / 132))));
  return std::log1p((z - a) / a) + below;
}

// z <= a: Σ z^k / (a)ₖ₊₁ and its derivative with respect to a, in which the poles at a = 0 have cancelled. Terms below
// `least` of the sum are left out.
inline double slope_by_series(double a, double z, double l, double psi, double least) {
  double term = 1.0 / a, sum = term, harmonic = 0.0, slopes = 0.0;
  for (double k = a + 1.0; term > least * sum; k += 1.0) {
    const double share = 1.0 / k;
    term *= z * share;
    harmonic += share;
    sum += term;
    slopes += term * harmonic;
  }
  return slopes - (l - psi) * sum;
}

// 1 / k, for the terms (−z)^k / k! where z <= 1.
struct PowerShares {
  static constexpr int kPowers = 24;
  double of[kPowers] = {};
  constexpr PowerShares() {
    for (int k = 1; k < kPowers; ++k) of[k] = 1.0 / k;
  }
};
inline constexpr PowerShares kPowerShares;

// a < z < 1: Σ (−z)^k / (k! (a + k)), and the same.
inline double slope_by_powers(double a, double z, double l, double psi, double least) {
  double power = 1.0, sum = 1.0 / a, slopes = 0.0;
  for (int k = 1; k < PowerShares::kPowers && std::abs(power) > least; ++k) {
    power *= -z * kPowerShares.of[k];
    const double share = 1.0 / (a + k);
    sum += power * share;
    slopes += power * k * share * share;
  }
  return -std::exp(z) * ((l - psi) * sum + slopes / a);
}

inline bool in_domain(double a, double l) { return a > 0.0 && a < kInf && l == l; }

// Relative size of the terms that count, and the z up to which the rounding errors of e^s − 1 − s do not matter.
template <int nodes>
inline constexpr double kLeast = nodes == kNodes ? 1e-17 : 1e-9;
template <int nodes>
inline constexpr double kDirectBelow = nodes == kNodes ? 16.0 : 1e6;

// The slope where it needs no integral; false if it does. z = e^l.
template <int nodes>
bool slope_by_sums(double a, double z, double l, double psi, double* y) {
  if (!in_domain(a, l)) {
    *y = kNaN;
  } else if (z == kInf) {
    *y = 0.0;
  } else if (z <= a && z <= kSeriesBelow) {
    *y = slope_by_series(a, z, l, psi, kLeast<nodes>);
  } else if (z < 1.0) {
    *y = slope_by_powers(a, z, l, psi, kLeast<nodes>);
  } else {
    return false;
  }
  return true;
}

struct Integral {
  double z, distance, reach, excess, side;
};

inline Integral integral_of_slope(double a, double z, double l, double psi) {
  return {z, std::abs(z - a), reach(a, z, kDepth), log_excess(a, z, l, psi), z <= a ? -1.0 : 1.0};
}

template <int nodes>
void place_nodes(const Integral& i, double* s) {
  for (int k = 0; k < nodes; ++k) s[k] = i.side * i.reach * kRule<nodes>.node[k];
}

// e = −φ(s), of e = e^s.
template <int nodes>
void set_exponents(const Integral& i, const double* s, double* e) {
  if (i.z < kDirectBelow<nodes>) {
    for (int k = 0; k < nodes; ++k) e[k] = -(i.distance * std::abs(s[k]) + i.z * (e[k] - 1.0 - s[k]));
    return;
  }
  for (int k = 0; k < nodes; ++k) {
    const double inside = s[k] < -kTaylorBelow ? -kTaylorBelow : s[k] > kTaylorBelow ? kTaylorBelow : s[k];
    const double near = exp_beyond_line(inside);
    const double beyond = std::abs(s[k]) < kTaylorBelow ? near : e[k] - 1.0 - s[k];
    e[k] = -(i.distance * std::abs(s[k]) + i.z * beyond);
  }
}

// Of e = e^−φ(s).
template <int nodes>
double sum_of_slope(const Integral& i, const double* s, const double* e) {
  double mass = 0.0, moment = 0.0;
  for (int k = 0; k < nodes; ++k) {
    const double share = e[k] * kRule<nodes>.weight[k];
    mass += share;
    moment += share * std::abs(s[k]);
  }
  return i.reach * (i.excess * i.side * mass + moment);
}

// y = d ln z / da at l = ln z, where `psi` is ψ(1 + a).
template <int nodes>
double slope(double a, double l, double psi) {
  const double z = std::exp(l);
  double y;
  if (slope_by_sums<nodes>(a, z, l, psi, &y)) return y;
  const Integral i = integral_of_slope(a, z, l, psi);
  double s[nodes], e[nodes];
  place_nodes<nodes>(i, s);
  for (int k = 0; k < nodes; ++k) e[k] = std::exp(s[k]);
  set_exponents<nodes>(i, s, e);
  for (int k = 0; k < nodes; ++k) e[k] = std::exp(e[k]);
  return sum_of_slope<nodes>(i, s, e);
}

// ∫ s^k exp(−φ(s)) ds, in panels short enough for every shape of φ.
inline double integral(double a, double z, int order) {
  constexpr double kPanel = 3.0;
  const double side = z <= a ? -1.0 : 1.0, d = std::abs(z - a), end = reach(a, z, kDepth + 8.0 * order);
  const int panels = static_cast<int>(std::ceil(end / kPanel));
  const double width = end / panels;
  double sum = 0.0;
  for (int p = 0; p < panels; ++p) {
    for (int k = 0; k < kNodes; ++k) {
      const double s = width * (p + kRule<kNodes>.node[k]);
      const double h = s < kTaylorBelow ? exp_beyond_line(side * s) : std::expm1(side * s) - side * s;
      sum += width * kRule<kNodes>.weight[k] * std::pow(s, order) * std::exp(-(d * s + z * h));
    }
  }
  return sum;
}

// The integrals that derivatives of the slope are made of.
inline double tail(double a, double l, int order) {
  const double z = std::exp(l), odd = order % 2 == 0 ? 1.0 : -1.0;
  if (!in_domain(a, l)) return kNaN;
  if (z == kInf) return 0.0;
  if (z > a) return integral(a, z, order);
  if (z > 1.0) return -odd * integral(a, z, order);
  double power = 1.0, sum = 0.0, factorial = 1.0;
  for (int k = 2; k <= order; ++k) factorial *= k;
  for (int k = 0; k < PowerShares::kPowers; power *= -z / ++k) sum += power * std::pow(a + k, -order - 1);
  return -odd * factorial * std::exp(z) * sum;
}

}  // namespace wengert::slopes
