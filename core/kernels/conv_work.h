// How convolution cuts its work, and the memory it works in. How work is cut decides its bits, so all of this depends
// on shapes only. Work is counted in multiply-adds.
#pragma once
#include <algorithm>
#include <cstdint>

#include "../memory.h"
#include "../threads.h"
#include "conv_layout.h"

namespace wengert {

inline constexpr int64_t kScratchBytes = 160 * 1024;  // of the source of a block: a part of a small second-level cache
inline constexpr int64_t kWeightBytes = 192 * 1024;   // of the weights that pass over it at a time
inline constexpr double kTileWork = 1 << 17;          // what a tile is worth handing out for
inline constexpr int64_t kEnoughTiles = 16;           // below, channels or the batch are split as well

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class... N>
double work_of(N... n) {
  return (static_cast<double>(n) * ...);
}

// Memory from the pool, for the length of one call.
template <class T>
class PooledArray {
 public:
  explicit PooledArray(int64_t elements)
      : buffer_(allocate(static_cast<size_t>(elements) * sizeof(T), Category::workspace)) {}
  ~PooledArray() { release(buffer_); }
  PooledArray(const PooledArray&) = delete;
  PooledArray& operator=(const PooledArray&) = delete;
  T* data() const { return reinterpret_cast<T*>(buffer_->data); }

 private:
  Buffer* buffer_;
};

// Runs f(unit) for every unit, in tiles of about kTileWork.
template <class F>
void for_each_unit(int64_t units, double work, F&& f) {
  const int64_t group = std::max<int64_t>(1, static_cast<int64_t>(kTileWork / std::max(1.0, work)));
  parallel_for(ceil_div(units, group), [&](int64_t tile) {
    const int64_t end = std::min(units, (tile + 1) * group);
    for (int64_t u = tile * group; u < end; ++u) f(u);
  });
}

// The axis of a convolution as a correlation: outputs from inputs.
inline void add_forward_taps(ConvAxis& axis, const ConvShape& s, int i) {
  axis.count = axis.to_size = s.out[i];
  axis.from_size = s.in[i];
  axis.from_step = s.stride[i];
  for (int64_t k = 0; k < s.kernel[i]; ++k) {
    axis.index.push_back(k);
    axis.offset.push_back(k * s.dilation[i] - s.padding[i]);
  }
}

inline int64_t volume(const int64_t (&size)[kMaxSpatial]) { return size[0] * size[1] * size[2]; }

}  // namespace wengert
