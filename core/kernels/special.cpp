#include "special.h"

#include <algorithm>

#include "../threads.h"
#include "number.h"

namespace wengert {

void map_ordered(OrderedFunction f, DType dtype, const int* orders, const void* const* x, int operands, void* y,
                 int64_t n) {
  constexpr int64_t kTile = 2048;
  with_number(dtype, [&]<class T>() {
    using N = Number<T>;
    if constexpr (std::is_floating_point_v<typename N::Wide>) {
      parallel_for((n + kTile - 1) / kTile, [&](int64_t tile) {
        for (int64_t i = tile * kTile; i < std::min(n, (tile + 1) * kTile); ++i) {
          double at[3];
          for (int k = 0; k < operands; ++k) at[k] = static_cast<double>(N::widen(static_cast<const T*>(x[k])[i]));
          static_cast<T*>(y)[i] = N::narrow(static_cast<typename N::Wide>(f(at, orders)));
        }
      });
    }
  });
}

}  // namespace wengert
