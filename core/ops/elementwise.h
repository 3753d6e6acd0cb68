// Running one elementwise kernel over whole arrays.
#pragma once
#include "../kernels/vector.h"

namespace wengert {

inline constexpr int64_t kElementwiseTile = 32768;  // elements per tile; fixed, so that threads do not change anything

// out[i] = fn(in[0][i], ...) over contiguous memory, in parallel when it is worth it.
void run_map(MapFn fn, char* out, int64_t out_size, const char* const* in, const int64_t* in_size, int n_in,
             int64_t n);

}  // namespace wengert
