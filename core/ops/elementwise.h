// Running one elementwise kernel over whole arrays.
#pragma once
#include "../kernels/vector.h"
#include "../value.h"

namespace wengert {

inline constexpr int64_t kElementwiseTile = 32768;  // elements per tile; fixed, so that threads do not change anything

struct Op;

// The op that a kernel belongs to.
const Op& elementwise_op(Elementwise kernel);

void run_map_tiles(MapFn fn, Value* out, Value* const* in, int n_in);

// out[i] = fn(in[0][i], ...) over contiguous values, in parallel when it is worth it.
inline void run_map(MapFn fn, Value* out, Value* const* in, int n_in) {
  if (out->size >= 2 * kElementwiseTile) return run_map_tiles(fn, out, in, n_in);
  const void* at[3];
  for (int i = 0; i < n_in; ++i) at[i] = in[i]->data;
  fn(out->data, at, out->size);
}

}  // namespace wengert
