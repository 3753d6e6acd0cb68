#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "../threads.h"
#include "number.h"
#include "random_draws.h"
#include "random_element.h"
#include "vector.h"

namespace wengert {

namespace {

constexpr int64_t kTile = 512;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInverted = 10.0;  // means up to which adding up probabilities is faster than rejection

// ln k! − (k + ½) ln(k + 1) + k + 1 − ½ ln 2π.
double stirling_rest(double k) {
  constexpr double kTable[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
                               0.0166446911898211,  0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
                               0.00925546218271273, 0.00833056343336287};
  if (k <= 9.0) return kTable[static_cast<int>(k)];
  const double z = 1.0 / ((k + 1.0) * (k + 1.0));
  return (1.0 / 12 - (1.0 / 360 - z / 1260) * z) / (k + 1.0);
}

// 1 / k for counts that come by inversion: with a mean of ten, none is larger.
constexpr int kMostInverted = 64;
constexpr std::array<double, kMostInverted> kReciprocals = [] {
  std::array<double, kMostInverted> r{};
  for (int k = 1; k < kMostInverted; ++k) r[static_cast<size_t>(k)] = 1.0 / k;
  return r;
}();

// `none` is e^−rate.
double poisson_by_inversion(double rate, double none, Pairs& u) {
  for (;;) {  // again only where rounding leaves a rest that no count has
    double rest = u.next()[0], p = none;
    for (int k = 1; k < kMostInverted; ++k) {
      if (rest <= p) return k - 1;
      rest -= p;
      p *= rate * kReciprocals[static_cast<size_t>(k)];
    }
  }
}

double poisson_by_rejection(double rate, Pairs& pairs) {
  const double b = 0.931 + 2.53 * std::sqrt(rate), a = -0.059 + 0.02483 * b, log_rate = std::log(rate);
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), certain = 0.9277 - 3.6224 / (b - 2.0);
  for (;;) {
    const auto [first, v] = pairs.next();
    const double u = first - 0.5, edge = 0.5 - std::abs(u);
    const double k = std::floor((2.0 * a / edge + b) * u + rate + 0.43);
    if (edge >= 0.07 && v <= certain) return k;
    if (k < 0.0 || (edge < 0.013 && v > edge)) continue;
    // ln k! by Stirling's formula: lgamma of the C library is not safe in threads.
    const double log_factorial = (k + 0.5) * std::log(k + 1.0) - (k + 1.0) + 0.91893853320467274178 + stirling_rest(k);
    if (std::log(v * inverse_alpha / (a / (edge * edge) + b)) <= k * log_rate - rate - log_factorial) return k;
  }
}

double poisson(double rate, double none, Pairs& pairs) {
  if (!(rate >= 0.0)) return kNaN;
  if (rate == std::numeric_limits<double>::infinity()) return rate;
  return rate < kInverted ? poisson_by_inversion(rate, none, pairs) : poisson_by_rejection(rate, pairs);
}

double binomial_by_inversion(double n, double p, Pairs& u) {
  const double odds = p / (1.0 - p), none = std::exp(n * std::log1p(-p));
  for (;;) {
    double rest = u.next()[0], f = none, k = 0.0;
    for (; rest > f && k < n; f *= odds * (n - k + 1.0) / k) {
      rest -= f;
      k += 1.0;
    }
    if (rest <= f) return k;
  }
}

double binomial_by_rejection(double n, double p, Pairs& pairs) {
  const double deviation = std::sqrt(n * p * (1.0 - p)), b = 1.15 + 2.53 * deviation;
  const double a = -0.0873 + 0.0248 * b + 0.01 * p, alpha = (2.83 + 5.1 / b) * deviation;
  const double certain = 0.92 - 4.2 / b, odds = p / (1.0 - p), m = std::floor((n + 1.0) * p);
  for (;;) {
    const auto [first, v] = pairs.next();
    const double u = first - 0.5, edge = 0.5 - std::abs(u);
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

double binomial(double n, double p, Pairs& pairs) {
  if (!(n >= 0.0 && n == std::floor(n) && p >= 0.0 && p <= 1.0) || n == std::numeric_limits<double>::infinity()) {
    return kNaN;
  }
  if (p > 0.5) return n - binomial(n, 1.0 - p, pairs);
  if (n == 0.0 || p == 0.0) return 0.0;
  return n * p < kInverted ? binomial_by_inversion(n, p, pairs) : binomial_by_rejection(n, p, pairs);
}

// Calls draw(element, pairs) for every element, and keeps what it gives.
template <class T, class F>
void draw_each(T* y, int64_t n, RandomStream s, F&& draw) {
  parallel_for((n + kTile - 1) / kTile, [&](int64_t tile) {
    const int64_t first = tile * kTile, count = std::min(kTile, n - first);
    uint32_t words[4 * kTile];
    philox_words(words, {s.key_low, s.key_high, s.counter + static_cast<uint64_t>(first)}, count);
    for (int64_t i = 0; i < count; ++i) {
      Pairs pairs(words + 4 * i, s, first + i);
      y[first + i] = draw(first + i, pairs);
    }
  });
}

template <class F>
void with_floating(DType dtype, F&& f) {
  with_number(dtype, [&]<class T>() {
    if constexpr (std::is_floating_point_v<typename Number<T>::Wide>) f.template operator()<T>();
  });
}

template <class T>
double widened(const void* x, int64_t i) {
  return static_cast<double>(Number<T>::widen(static_cast<const T*>(x)[i]));
}

template <class T>
T narrowed(double x) {
  return Number<T>::narrow(static_cast<typename Number<T>::Wide>(x));
}

// The trials of one row, class after class: of those that are left, each class has its share of the weight that is
// left.
template <class T>
void multinomial_row(double left, const void* p, T* y, int64_t row, int64_t classes, RandomStream s) {
  std::vector<double> rest(static_cast<size_t>(classes));  // the weight of a class and of all after it
  double sum = 0.0;
  for (int64_t k = classes - 1; k >= 0; --k) rest[static_cast<size_t>(k)] = sum += widened<T>(p, row * classes + k);
  for (int64_t k = 0; k < classes; ++k) {
    const double share = std::min(widened<T>(p, row * classes + k) / rest[static_cast<size_t>(k)], 1.0);
    const int64_t element = row * classes + k;
    uint32_t words[4 * 8];
    philox_words(words, {s.key_low, s.key_high, s.counter + static_cast<uint64_t>(element)}, 1);
    Pairs pairs(words, s, element);
    const double taken = left == 0.0 ? 0.0 : binomial(left, share, pairs);
    y[element] = narrowed<T>(taken);
    left -= taken;
  }
}

}  // namespace

void random_poisson(DType dtype, const void* rate, void* y, int64_t n, RandomStream s) {
  const MapFn exp = kernels().map[static_cast<int>(Elementwise::exp)][static_cast<int>(DType::Float64)];
  with_floating(dtype, [&]<class T>() {
    parallel_for((n + kTile - 1) / kTile, [&](int64_t tile) {
      const int64_t first = tile * kTile, count = std::min(kTile, n - first);
      uint32_t words[4 * kTile];
      double rates[kTile], none[kTile];
      philox_words(words, {s.key_low, s.key_high, s.counter + static_cast<uint64_t>(first)}, count);
      for (int64_t i = 0; i < count; ++i) rates[i] = widened<T>(rate, first + i), none[i] = -rates[i];
      const void* in = none;
      exp(none, &in, count);
      for (int64_t i = 0; i < count; ++i) {
        Pairs pairs(words + 4 * i, s, first + i);
        static_cast<T*>(y)[first + i] = narrowed<T>(poisson(rates[i], none[i], pairs));
      }
    });
  });
}

void random_binomial(DType dtype, const void* count, const void* p, void* y, int64_t n, RandomStream s) {
  with_floating(dtype, [&]<class T>() {
    draw_each(static_cast<T*>(y), n, s,
              [&](int64_t i, Pairs& u) { return narrowed<T>(binomial(widened<T>(count, i), widened<T>(p, i), u)); });
  });
}

void random_multinomial(DType dtype, const void* count, const void* p, void* y, int64_t rows, int64_t classes,
                        RandomStream s) {
  with_floating(dtype, [&]<class T>() {
    parallel_for(rows,
                 [&](int64_t row) { multinomial_row(widened<T>(count, row), p, static_cast<T*>(y), row, classes, s); });
  });
}

void random_categorical(DType dtype, const void* p, int64_t* y, int64_t draws, int64_t rows, int64_t classes,
                        RandomStream s) {
  std::vector<double> sums(static_cast<size_t>(rows * classes));
  with_floating(dtype, [&]<class T>() {
    parallel_for(rows, [&](int64_t row) {
      double sum = 0.0;
      for (int64_t k = 0; k < classes; ++k) {
        sums[static_cast<size_t>(row * classes + k)] = sum += widened<T>(p, row * classes + k);
      }
    });
  });
  draw_each(y, draws * rows, s, [&](int64_t i, Pairs& u) {
    const double* begin = sums.data() + i % rows * classes;
    const double* end = begin + classes;
    // Below the total also where the product rounds: the class that is found has a weight.
    const double place = std::min(u.next()[0] * end[-1], std::nextafter(end[-1], 0.0));
    return static_cast<int64_t>(std::upper_bound(begin, end - 1, place) - begin);
  });
}

}  // namespace wengert
