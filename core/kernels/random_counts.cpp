#include <algorithm>
#include <cmath>
#include <vector>

#include "../threads.h"
#include "number.h"
#include "random_draws.h"
#include "random_element.h"
#include "vector.h"

namespace wengert {

namespace {

constexpr int64_t kTile = 512;

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

template <class T>
void multinomial_row(double trials, const void* p, T* y, int64_t row, int64_t classes, RandomStream s) {
  std::vector<double> rest(static_cast<size_t>(classes));
  const auto weight = [&](int64_t k) { return widened<T>(p, row * classes + k); };
  const auto pairs = [&](int64_t k) {
    const int64_t element = row * classes + k;
    uint32_t words[4 * 8];
    philox_words(words, {s.key_low, s.key_high, s.counter + static_cast<uint64_t>(element)}, 1);
    return Pairs(words, s, element);
  };
  draws::multinomial(trials, classes, rest.data(), weight, pairs,
                     [&](int64_t k, double count) { y[row * classes + k] = narrowed<T>(count); });
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
        static_cast<T*>(y)[first + i] = narrowed<T>(draws::poisson(rates[i], none[i], pairs));
      }
    });
  });
}

void random_binomial(DType dtype, const void* count, const void* p, void* y, int64_t n, RandomStream s) {
  with_floating(dtype, [&]<class T>() {
    draw_each(static_cast<T*>(y), n, s, [&](int64_t i, Pairs& u) {
      return narrowed<T>(draws::binomial(widened<T>(count, i), widened<T>(p, i), u));
    });
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
    const double place = std::min(u.next().first * end[-1], std::nextafter(end[-1], 0.0));
    return static_cast<int64_t>(std::upper_bound(begin, end - 1, place) - begin);
  });
}

}  // namespace wengert
