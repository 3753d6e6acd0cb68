// Random numbers of distributions that have parameters, one element at a time, on the CPU and in kernels of GPUs: by
// rejection or inversion. `Pairs` are the uniform numbers that belong to the element: next() gives two more.
#pragma once
#include <cmath>

#include "../dtype.h"
#include "scalar_gamma_parts.h"

namespace wengert::draws {

using special::kInf, special::kNaN, special::kTwoPi;

// In (0, 1).
struct Uniforms {
  double first, second;
};

// The middles of 2²³ or 2⁵² equal parts of (0, 1).
inline float open_unit(uint32_t word) { return static_cast<float>(word >> 9) * 0x1p-23f + 0x1p-24f; }
inline double open_unit(uint64_t word) { return static_cast<double>(word >> 12) * 0x1p-52 + 0x1p-53; }

// ------------------------------------------------------------------------------------------------------------- Gamma

// Marsaglia and Tsang, "A simple method for generating gamma variables", 2000, from a normal number x and a uniform one
// u: the draw for a shape of 1 or more where their squeeze takes it at once, else −1.
template <class Real>
Real squeezed_gamma(Real shape, Real x, Real u) {
  const Real d = shape - Real(1.0 / 3.0), t = Real(1) + x / (Real(3) * std::sqrt(d)), square = x * x;
  const bool taken = t > Real(0) && u < Real(1) - Real(0.0331) * square * square;
  return taken ? d * t * t * t : Real(-1);
}

struct Proposal {
  double t, value;  // value = d t³
};

// One proposal for a shape of 1 or more, by their exact condition.
inline bool is_accepted(double d, double c, double x, double u, Proposal* p) {
  p->t = 1.0 + c * x;
  if (!(p->t > 0.0)) return false;
  const double v = p->t * p->t * p->t;
  p->value = d * v;
  return std::log(u) < 0.5 * x * x + d - d * v + 3.0 * d * std::log(p->t);
}

// An element whose first proposal was not taken at once: its exact condition, then further attempts.
template <class Pairs>
double redrawn_gamma(double shape, double x, double u, Pairs further) {
  if (!(shape < kInf)) return shape;
  const double d = shape - 1.0 / 3.0, c = 1.0 / (3.0 * std::sqrt(d));
  Proposal p;
  while (!is_accepted(d, c, x, u, &p)) {
    const Uniforms polar = further.next();
    x = std::sqrt(-2.0 * std::log(polar.first)) * std::cos(kTwoPi * polar.second);
    u = further.next().first;
  }
  return p.value;
}

// What underflows is the least normal number: a density that is infinite at 0 stays finite at what was drawn.
constexpr double least_gamma(DType dtype) {
  return dtype == DType::Float64 ? 0x1p-1022 : dtype == DType::Float16 ? 0x1p-14 : 0x1p-126;
}

// --------------------------------------------------------------------------------------------------------- von Mises

// Best and Fisher, "Efficient simulation of the von Mises distribution", 1979: from a wrapped Cauchy distribution by
// rejection. 1 − f, of which the result is the angle with the cosine f, is computed without cancellation, since it is
// small for a large concentration.
template <class Pairs>
double von_mises(double k, Pairs& pairs) {
  constexpr double kPi = 0.5 * kTwoPi;
  if (!(k > 0.0) || k == kInf) return kNaN;
  if (k < 1e-8) return kPi * (2.0 * pairs.next().first - 1.0);
  // r − 1, where r = (1 + ρ²) / 2ρ and ρ = (τ − √(2τ)) / 2k, τ = 1 + √(1 + 4k²).
  const double tau = 1.0 + std::hypot(1.0, 2.0 * k), rho = (tau - std::sqrt(2.0 * tau)) / (2.0 * k);
  const double excess = (1.0 - rho) * (1.0 - rho) / (2.0 * rho);
  for (;;) {
    const Uniforms u = pairs.next();
    const double z = std::cos(kPi * u.first), r = 1.0 + excess;
    const double away = excess * (1.0 - z) / (r + z);  // 1 − f
    const double c = k * (excess + away);
    if (c * (2.0 - c) > u.second || std::log(c / u.second) + 1.0 - c >= 0.0) {
      const double angle = 2.0 * std::asin(std::sqrt(std::fmin(0.5 * away, 1.0)));
      return pairs.next().first < 0.5 ? -angle : angle;
    }
  }
}

// ------------------------------------------------------------------------------------------------------------ counts

inline constexpr double kInverted = 10.0;  // means up to which adding up probabilities is faster than rejection

// ln k! − (k + ½) ln(k + 1) + k + 1 − ½ ln 2π.
inline double stirling_rest(double k) {
  constexpr double kTable[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
                               0.0166446911898211,  0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
                               0.00925546218271273, 0.00833056343336287};
  if (k <= 9.0) return kTable[static_cast<int>(k)];
  const double z = 1.0 / ((k + 1.0) * (k + 1.0));
  return (1.0 / 12 - (1.0 / 360 - z / 1260) * z) / (k + 1.0);
}

// 1 / k for counts that come by inversion: with a mean of ten, none is larger.
inline constexpr int kMostInverted = 64;
struct InvertedShares {
  double of[kMostInverted] = {};
  constexpr InvertedShares() {
    for (int k = 1; k < kMostInverted; ++k) of[k] = 1.0 / k;
  }
};
inline constexpr InvertedShares kInvertedShares;

// `none` is e^−rate.
template <class Pairs>
double poisson_by_inversion(double rate, double none, Pairs& u) {
  for (;;) {  // again only where rounding leaves a rest that no count has
    double rest = u.next().first, p = none;
    for (int k = 1; k < kMostInverted; ++k) {
      if (rest <= p) return k - 1;
      rest -= p;
      p *= rate * kInvertedShares.of[k];
    }
  }
}

// Hörmann, "The transformed rejection method for generating Poisson random variables", 1993.
template <class Pairs>
double poisson_by_rejection(double rate, Pairs& pairs) {
  const double b = 0.931 + 2.53 * std::sqrt(rate), a = -0.059 + 0.02483 * b, log_rate = std::log(rate);
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), certain = 0.9277 - 3.6224 / (b - 2.0);
  for (;;) {
    const Uniforms drawn = pairs.next();
    const double u = drawn.first - 0.5, v = drawn.second, edge = 0.5 - std::abs(u);
    const double k = std::floor((2.0 * a / edge + b) * u + rate + 0.43);
    if (edge >= 0.07 && v <= certain) return k;
    if (k < 0.0 || (edge < 0.013 && v > edge)) continue;
    // ln k! by Stirling's formula: lgamma of the C library is not safe in threads.
    const double log_factorial = (k + 0.5) * std::log(k + 1.0) - (k + 1.0) + 0.91893853320467274178 + stirling_rest(k);
    if (std::log(v * inverse_alpha / (a / (edge * edge) + b)) <= k * log_rate - rate - log_factorial) return k;
  }
}

template <class Pairs>
double poisson(double rate, double none, Pairs& pairs) {
  if (!(rate >= 0.0)) return kNaN;
  if (rate == kInf) return rate;
  return rate < kInverted ? poisson_by_inversion(rate, none, pairs) : poisson_by_rejection(rate, pairs);
}

template <class Pairs>
double binomial_by_inversion(double n, double p, Pairs& u) {
  const double odds = p / (1.0 - p), none = std::exp(n * std::log1p(-p));
  for (;;) {
    double rest = u.next().first, f = none, k = 0.0;
    for (; rest > f && k < n; f *= odds * (n - k + 1.0) / k) {
      rest -= f;
      k += 1.0;
    }
    if (rest <= f) return k;
  }
}

// Hörmann, "The generation of binomial random variates", 1993.
template <class Pairs>
double binomial_by_rejection(double n, double p, Pairs& pairs) {
  const double deviation = std::sqrt(n * p * (1.0 - p)), b = 1.15 + 2.53 * deviation;
  const double a = -0.0873 + 0.0248 * b + 0.01 * p, alpha = (2.83 + 5.1 / b) * deviation;
  const double certain = 0.92 - 4.2 / b, odds = p / (1.0 - p), m = std::floor((n + 1.0) * p);
  for (;;) {
    const Uniforms drawn = pairs.next();
    const double u = drawn.first - 0.5, v = drawn.second, edge = 0.5 - std::abs(u);
    const double k = std::floor((2.0 * a / edge + b) * u + n * p + 0.5);
    if (edge >= 0.07 && v <= certain) return k;
    if (k < 0.0 || k > n) continue;
    const double bound = (m + 0.5) * std::log((m + 1.0) / (odds * (n - m + 1.0))) +
                         (n + 1.0) * std::log((n - m + 1.0) / (n - k + 1.0)) +
                         (k + 0.5) * std::log(odds * (n - k + 1.0) / (k + 1.0)) + stirling_rest(m) +
                         stirling_rest(n - m) - stirling_rest(k) - stirling_rest(n - k);
    if (std::log(v * alpha / (a / (edge * edge) + b)) <= bound) return k;
  }
}

// For p up to ½.
template <class Pairs>
double rarer_outcomes(double n, double p, Pairs& pairs) {
  if (n == 0.0 || p == 0.0) return 0.0;
  return n * p < kInverted ? binomial_by_inversion(n, p, pairs) : binomial_by_rejection(n, p, pairs);
}

template <class Pairs>
double binomial(double n, double p, Pairs& pairs) {
  if (!(n >= 0.0 && n == std::floor(n) && p >= 0.0 && p <= 1.0) || n == kInf) return kNaN;
  return p > 0.5 ? n - rarer_outcomes(n, 1.0 - p, pairs) : rarer_outcomes(n, p, pairs);
}

// The trials of one row, class after class: of those that are left, each class has its share of the weight that is
// left. weight(k) and pairs(k) are those of class k, put(k, count) takes its result; `rest` has room for all classes.
template <class Weight, class PairsOf, class Put>
void multinomial(double trials, int64_t classes, double* rest, Weight&& weight, PairsOf&& pairs, Put&& put) {
  double sum = 0.0;
  for (int64_t k = classes - 1; k >= 0; --k) rest[k] = sum += weight(k);  // of a class and of all after it
  for (int64_t k = 0; k < classes; ++k) {
    const double share = weight(k) / rest[k];
    auto drawn = pairs(k);
    const double taken = trials == 0.0 ? 0.0 : binomial(trials, 1.0 < share ? 1.0 : share, drawn);
    put(k, taken);
    trials -= taken;
  }
}

}  // namespace wengert::draws
