// Running one elementwise kernel over whole arrays.
#pragma once
#include "../kernels/vector.h"

namespace wengert {

inline constexpr int64_t kElementwiseTile = 32768;  // elements per tile; fixed, so that threads do not change anything

void run_map_tiles(MapFn fn, char* out, int64_t out_size, const char* const* in, const int64_t* in_size, int n_in,
                   int64_t n);

// out[i] = fn(in[0][i], ...) over contiguous memory, in parallel when it is worth it; sizes are of one element.
inline void run_map(MapFn fn, char* out, int64_t out_size, const char* const* in, const int64_t* in_size, int n_in,
                    int64_t n) {
  if (n < 2 * kElementwiseTile) return fn(out, reinterpret_cast<const void* const*>(in), n);
  run_map_tiles(fn, out, out_size, in, in_size, n_in, n);
}

}  // namespace wengert
