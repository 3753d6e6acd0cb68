#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "../threads.h"
#include "number.h"
#include "random_draws.h"
#include "random_element.h"

namespace wengert {

namespace {

constexpr int64_t kTile = 512;

// From a wrapped Cauchy distribution by rejection. 1 − f, of which the result is the angle with the cosine f, is
// computed without cancellation, since it is small for a large concentration.
double von_mises(double k, Pairs& pairs) {
  if (!(k > 0.0) || k == std::numeric_limits<double>::infinity()) return std::numeric_limits<double>::quiet_NaN();
  if (k < 1e-8) return std::numbers::pi * (2.0 * pairs.next()[0] - 1.0);
  // r − 1, where r = (1 + ρ²) / 2ρ and ρ = (τ − √(2τ)) / 2k, τ = 1 + √(1 + 4k²).
  const double tau = 1.0 + std::hypot(1.0, 2.0 * k), rho = (tau - std::sqrt(2.0 * tau)) / (2.0 * k);
  const double excess = (1.0 - rho) * (1.0 - rho) / (2.0 * rho);
  for (;;) {
    const auto [turn, v] = pairs.next();
    const double z = std::cos(std::numbers::pi * turn), r = 1.0 + excess;
    const double away = excess * (1.0 - z) / (r + z);  // 1 − f
    const double c = k * (excess + away);
    if (c * (2.0 - c) > v || std::log(c / v) + 1.0 - c >= 0.0) {
      const double angle = 2.0 * std::asin(std::sqrt(std::min(0.5 * away, 1.0)));
      return pairs.next()[0] < 0.5 ? -angle : angle;
    }
  }
}

}  // namespace

void random_von_mises(DType dtype, const void* concentration, void* y, int64_t n, RandomStream s) {
  with_number(dtype, [&]<class T>() {
    using N = Number<T>;
    if constexpr (std::is_floating_point_v<typename N::Wide>) {
      parallel_for((n + kTile - 1) / kTile, [&](int64_t tile) {
        const int64_t first = tile * kTile, count = std::min(kTile, n - first);
        uint32_t words[4 * kTile];
        philox_words(words, {s.key_low, s.key_high, s.counter + static_cast<uint64_t>(first)}, count);
        for (int64_t i = 0; i < count; ++i) {
          Pairs pairs(words + 4 * i, s, first + i);
          const double x = von_mises(N::widen(static_cast<const T*>(concentration)[first + i]), pairs);
          static_cast<T*>(y)[first + i] = N::narrow(static_cast<typename N::Wide>(x));
        }
      });
    }
  });
}

}  // namespace wengert
