// Batches of matrices: all axes but the last two.
#pragma once
#include <vector>

#include "../value.h"

namespace wengert {

// Offsets of every batch of `shape`, in elements, through these strides.
inline std::vector<int64_t> batch_offsets(const int64_t* shape, const int64_t* strides, int ndim, int64_t batch) {
  std::vector<int64_t> offsets(static_cast<size_t>(batch));
  for (int64_t b = 0; b < batch; ++b) {
    int64_t rest = b;
    for (int i = ndim - 3; i >= 0; rest /= shape[i--]) offsets[b] += rest % shape[i] * strides[i];
  }
  return offsets;
}

inline std::vector<int64_t> batch_offsets(const Value* v, int64_t batch) {
  return batch_offsets(v->shape, v->strides, v->ndim, batch);
}

}  // namespace wengert
