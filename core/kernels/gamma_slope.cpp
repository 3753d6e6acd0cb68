#include "gamma_slope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "../threads.h"
#include "number.h"
#include "vector.h"

namespace wengert {

namespace {

// With t = z e^±s, the tails are ∫ exp(−φ(s)) ds with φ(s) = |z − a| s + z (e^±s − 1 ∓ s), a convex function. Its
// integral up to φ = kDepth is done by Gauss and Legendre's rule.
constexpr double kDepth = 38.0;
constexpr int kNodes = 24, kNodesNarrow = 16;
constexpr int64_t kGroup = 64;         // elements whose nodes go through the vector kernels together
constexpr double kSeriesBelow = 24.0;  // z up to which the series of the lower tail has few terms
constexpr double kTaylorBelow = 0.5;   // |s| up to which e^s − 1 − s is summed
constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

template <int n>
struct GaussLegendre {
  std::array<double, n> node, weight;  // on [0, 1]

  GaussLegendre() {
    for (int i = 0; i < n; ++i) {
      double x = std::cos(std::numbers::pi * (i + 0.75) / (n + 0.5)), slope = 1.0;
      for (int step = 0; step < 8; ++step) {
        double before = 0.0, p = 1.0;
        for (int k = 1; k <= n; ++k) {
          const double next = ((2 * k - 1) * x * p - (k - 1) * before) / k;
          before = p, p = next;
        }
        slope = n * (x * p - before) / (x * x - 1.0);
        x -= p / slope;
      }
      node[static_cast<size_t>(i)] = 0.5 * (1.0 - x);
      weight[static_cast<size_t>(i)] = 1.0 / ((1.0 - x * x) * slope * slope);
    }
  }
};

template <int n>
const GaussLegendre<n>& rule() {
  static const GaussLegendre<n> made;
  return made;
}

// 1 / k! for k from 2 on: what e^s − 1 − s is made of.
constexpr std::array<double, 14> kTaylor = [] {
  std::array<double, 14> c{};
  double factorial = 1.0;
  for (int k = 2; k < 16; ++k) c[static_cast<size_t>(k) - 2] = 1.0 / (factorial *= k);
  return c;
}();

// e^s − 1 − s for |s| <= kTaylorBelow.
inline double exp_beyond_line(double s) {
  double sum = kTaylor.back();
  for (size_t k = kTaylor.size() - 1; k-- > 0;) sum = kTaylor[k] + s * sum;
  return s * s * sum;
}

// Where φ reaches `depth`, or a little further. Below: e^−s − 1 + s >= s² / (2 + s). Above: e^s − 1 − s >= s² / 2.
double reach(double a, double z, double depth) {
  const double d = std::abs(z - a);
  if (z <= a) {
    const double b = 2.0 * d - depth, root = std::sqrt(b * b + 8.0 * a * depth);
    return b > 0.0 ? 4.0 * depth / (b + root) : (root - b) / (2.0 * a);
  }
  const double s = 2.0 * depth / (d + std::sqrt(d * d + 2.0 * depth * z));
  return std::min(s, std::log(depth / z + 1.0 + s));
}

// ln z − ψ(a), where `psi` is ψ(1 + a). For large a both are close to ln a, which is left out.
double log_excess(double a, double z, double l, double psi) {
  if (a < 16.0) return l - psi + 1.0 / a;
  const double q = 1.0 / (a * a);
  const double below = 0.5 / a + q * (1.0 / 12 - q * (1.0 / 120 - q * (1.0 / 252 - q * (1.0 / 240 - q / 132))));
  return std::log1p((z - a) / a) + below;
}

// z <= a: Σ z^k / (a)ₖ₊₁ and its derivative with respect to a, in which the poles at a = 0 have cancelled. Terms below
// `least` of the sum are left out.
double slope_by_series(double a, double z, double l, double psi, double least) {
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

constexpr int kPowers = 24;  // for z <= 1

// 1 / k, for the terms (−z)^k / k!.
constexpr std::array<double, kPowers> kReciprocals = [] {
  std::array<double, kPowers> r{};
  for (int k = 1; k < kPowers; ++k) r[static_cast<size_t>(k)] = 1.0 / k;
  return r;
}();

// a < z < 1: Σ (−z)^k / (k! (a + k)), and the same.
double slope_by_powers(double a, double z, double l, double psi, double least) {
  double power = 1.0, sum = 1.0 / a, slopes = 0.0;
  for (int k = 1; k < kPowers && std::abs(power) > least; ++k) {
    power *= -z * kReciprocals[static_cast<size_t>(k)];
    const double share = 1.0 / (a + k);
    sum += power * share;
    slopes += power * k * share * share;
  }
  return -std::exp(z) * ((l - psi) * sum + slopes / a);
}

bool in_domain(double a, double l) { return a > 0.0 && a < kInf && l == l; }

// One group of elements, of which most are integrated: their nodes go through the exponential together.
template <int nodes>
class Group {
 public:
  void run(const double* a, const double* l, const double* psi, double* y, int64_t count) {
    waiting_ = 0;
    const void* in = l;
    vector_exp()(z_, &in, count);
    for (int64_t i = 0; i < count; ++i) {
      const double z = z_[i];
      if (!in_domain(a[i], l[i])) {
        y[i] = kNaN;
      } else if (z == kInf) {
        y[i] = 0.0;
      } else if (z <= a[i] && z <= kSeriesBelow) {
        y[i] = slope_by_series(a[i], z, l[i], psi[i], kLeast);
      } else if (z < 1.0) {
        y[i] = slope_by_powers(a[i], z, l[i], psi[i], kLeast);
      } else {
        place(i, a[i], z, log_excess(a[i], z, l[i], psi[i]));
      }
    }
    integrate(y);
  }

 private:
  static constexpr double kLeast = nodes == kNodes ? 1e-17 : 1e-9;  // relative size of the terms that count

  static constexpr double kDirectBelow = nodes == kNodes ? 16.0 : 1e6;

  static MapFn vector_exp() {
    return kernels().map[static_cast<int>(Elementwise::exp)][static_cast<int>(DType::Float64)];
  }

  struct Waiting {
    int64_t at;
    double z, distance, reach, excess, side;
  };

  void place(int64_t at, double a, double z, double excess) {
    queue_[waiting_] = {at, z, std::abs(z - a), reach(a, z, kDepth), excess, z <= a ? -1.0 : 1.0};
    const Waiting& w = queue_[waiting_];
    for (int k = 0; k < nodes; ++k)
      s_[waiting_ * nodes + k] = w.side * w.reach * rule<nodes>().node[static_cast<size_t>(k)];
    ++waiting_;
  }

  void integrate(double* y) {
    const MapFn exp = vector_exp();
    const int64_t all = waiting_ * nodes;
    const void* in = s_;
    exp(e_, &in, all);
    for (int64_t j = 0; j < waiting_; ++j) set_exponents(queue_[j], s_ + j * nodes, e_ + j * nodes);
    in = e_;
    exp(e_, &in, all);
    for (int64_t j = 0; j < waiting_; ++j) y[queue_[j].at] = sum(queue_[j], s_ + j * nodes, e_ + j * nodes);
  }

  // e = −φ(s), of e = e^s. For small z the rounding errors of e^s − 1 − s do not matter.
  static void set_exponents(const Waiting& w, const double* s, double* e) {
    if (w.z < kDirectBelow) {
      for (int k = 0; k < nodes; ++k) e[k] = -(w.distance * std::abs(s[k]) + w.z * (e[k] - 1.0 - s[k]));
      return;
    }
    for (int k = 0; k < nodes; ++k) {
      const double near = exp_beyond_line(std::clamp(s[k], -kTaylorBelow, kTaylorBelow));
      const double beyond = std::abs(s[k]) < kTaylorBelow ? near : e[k] - 1.0 - s[k];
      e[k] = -(w.distance * std::abs(s[k]) + w.z * beyond);
    }
  }

  static double sum(const Waiting& w, const double* s, const double* e) {
    double mass = 0.0, moment = 0.0;
    for (int k = 0; k < nodes; ++k) {
      const double share = e[k] * rule<nodes>().weight[static_cast<size_t>(k)];
      mass += share;
      moment += share * std::abs(s[k]);
    }
    return w.reach * (w.excess * w.side * mass + moment);
  }

  int64_t waiting_ = 0;
  Waiting queue_[kGroup];
  double z_[kGroup], s_[kGroup * nodes], e_[kGroup * nodes];
};

template <int nodes>
void slope_all(DType dtype, const void* a, const void* l, void* y, int64_t n) {
  const CastFn widen = kernels().cast[static_cast<int>(dtype)][static_cast<int>(DType::Float64)];
  const CastFn narrow = kernels().cast[static_cast<int>(DType::Float64)][static_cast<int>(dtype)];
  const MapFn digamma = kernels().map[static_cast<int>(Elementwise::digamma)][static_cast<int>(DType::Float64)];
  const int64_t element = size_of(dtype);
  parallel_for((n + kGroup - 1) / kGroup, [&](int64_t group) {
    const int64_t first = group * kGroup, count = std::min(kGroup, n - first);
    double shapes[kGroup], logs[kGroup], psi[kGroup], slopes[kGroup];
    widen(shapes, static_cast<const char*>(a) + first * element, count);
    widen(logs, static_cast<const char*>(l) + first * element, count);
    for (int64_t i = 0; i < count; ++i) psi[i] = shapes[i] + 1.0;
    const void* in = psi;
    digamma(psi, &in, count);
    Group<nodes> waiting;
    waiting.run(shapes, logs, psi, slopes, count);
    narrow(static_cast<char*>(y) + first * element, slopes, count);
  });
}

// ∫ s^k exp(−φ(s)) ds, in panels short enough for every shape of φ.
double integral(double a, double z, int order) {
  constexpr double kPanel = 3.0;
  const double side = z <= a ? -1.0 : 1.0, d = std::abs(z - a), end = reach(a, z, kDepth + 8.0 * order);
  const int panels = static_cast<int>(std::ceil(end / kPanel));
  const double width = end / panels;
  double sum = 0.0;
  for (int p = 0; p < panels; ++p) {
    for (int k = 0; k < kNodes; ++k) {
      const double s = width * (p + rule<kNodes>().node[static_cast<size_t>(k)]);
      const double h = s < kTaylorBelow ? exp_beyond_line(side * s) : std::expm1(side * s) - side * s;
      sum += width * rule<kNodes>().weight[static_cast<size_t>(k)] * std::pow(s, order) * std::exp(-(d * s + z * h));
    }
  }
  return sum;
}

double tail(double a, double l, int order) {
  const double z = std::exp(l), odd = order % 2 == 0 ? 1.0 : -1.0;
  if (!in_domain(a, l)) return kNaN;
  if (z == kInf) return 0.0;
  if (z > a) return integral(a, z, order);
  if (z > 1.0) return -odd * integral(a, z, order);
  double power = 1.0, sum = 0.0, factorial = 1.0;
  for (int k = 2; k <= order; ++k) factorial *= k;
  for (int k = 0; k < kPowers; power *= -z / ++k) sum += power * std::pow(a + k, -order - 1);
  return -odd * factorial * std::exp(z) * sum;
}

}  // namespace

void gamma_slope(DType dtype, const void* a, const void* l, void* y, int64_t n) {
  if (dtype == DType::Float64) return slope_all<kNodes>(dtype, a, l, y, n);
  slope_all<kNodesNarrow>(dtype, a, l, y, n);
}

void gamma_tail(DType dtype, const void* a, const void* l, void* y, int64_t n, int order) {
  with_number(dtype, [&]<class T>() {
    using N = Number<T>;
    if constexpr (std::is_floating_point_v<typename N::Wide>) {
      parallel_for((n + kGroup - 1) / kGroup, [&](int64_t group) {
        for (int64_t i = group * kGroup; i < std::min(n, (group + 1) * kGroup); ++i) {
          const double value =
              tail(N::widen(static_cast<const T*>(a)[i]), N::widen(static_cast<const T*>(l)[i]), order);
          static_cast<T*>(y)[i] = N::narrow(static_cast<typename N::Wide>(value));
        }
      });
    }
  });
}

}  // namespace wengert
