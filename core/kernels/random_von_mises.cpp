#include <algorithm>

#include "../threads.h"
#include "number.h"
#include "random_draws.h"
#include "random_element.h"

namespace wengert {

namespace {

constexpr int64_t kTile = 512;

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
          const double x = draws::von_mises(N::widen(static_cast<const T*>(concentration)[first + i]), pairs);
          static_cast<T*>(y)[first + i] = N::narrow(static_cast<typename N::Wide>(x));
        }
      });
    }
  });
}

}  // namespace wengert
