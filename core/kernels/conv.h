// Convolution and the two other parts of the same trilinear form
//
//   T(x, w, y) = Σ y[n, o, j] · w[o, c, k] · x[n, c, j·stride + k·dilation − padding]
//
// over batch n, output channel o, input channel c of the same group, output position j and tap k, for one to three
// spatial axes. Positions outside x count as zeros. Each function computes the coefficient of the argument it returns.
#pragma once
#include <cstdint>

#include "../dtype.h"

namespace wengert {

inline constexpr int kMaxSpatial = 3;

// Always three spatial axes; those that are not there have size 1, and come first.
struct ConvShape {
  int64_t batch = 0, groups = 1;
  int64_t in_channels = 0, out_channels = 0;  // of one group
  int64_t in[kMaxSpatial] = {1, 1, 1}, out[kMaxSpatial] = {1, 1, 1}, kernel[kMaxSpatial] = {1, 1, 1};
  int64_t stride[kMaxSpatial] = {1, 1, 1}, padding[kMaxSpatial] = {0, 0, 0}, dilation[kMaxSpatial] = {1, 1, 1};
};

// Packed arrays: x[batch, groups·in_channels, in...], w[groups·out_channels, in_channels, kernel...],
// y[batch, groups·out_channels, out...]. float and double.
template <class T>
void conv_output(const ConvShape& shape, const T* x, const T* w, const T* bias, T* y);  // bias may be null
template <class T>
void conv_input(const ConvShape& shape, const T* y, const T* w, T* x);
template <class T>
void conv_kernel(const ConvShape& shape, const T* x, const T* y, T* w);

}  // namespace wengert
