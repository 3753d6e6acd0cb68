// Pooling: maxima and sums over windows, and their transposes, for one to three spatial axes. Window j covers positions
// j·stride + k·dilation − padding for all taps k; those outside x do not count. Every window has one inside.
#pragma once
#include <cstdint>

namespace wengert {

// Always three spatial axes; those that are not there have size 1, and come first.
struct PoolShape {
  int64_t planes = 0;  // batch × channels
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
};

// Index types: uint8_t or int32_t, the tap's number in the window in row-major order. Packed arrays.
template <class T, class I>
void pool_argmax(const PoolShape& s, const T* x, I* index);  // the first of equal elements; the last NaN
template <class T, class I>
void pool_take(const PoolShape& s, const T* x, const I* index, T* y);  // y[j] = x at tap index[j] of window j
template <class T, class I>
void pool_put(const PoolShape& s, const T* y, const I* index, T* x);  // its transpose
template <class T>
void pool_sum(const PoolShape& s, const T* x, T* y);
template <class T>
void pool_spread(const PoolShape& s, const T* y, T* x);  // its transpose

}  // namespace wengert
