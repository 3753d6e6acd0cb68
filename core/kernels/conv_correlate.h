// A correlation of many channels: what a convolution is, and its transpose for every residue of the stride.
#pragma once
#include "conv_layout.h"

namespace wengert {

// to[n, g, m, ...] = bias[g, m] + Σ over channels c and taps of w[g, m, c, tap] · from[n, g, c, ...]; the axes say
// which positions meet, and the taps' places in the kernel.
template <class T>
struct Correlation {
  int64_t batch, groups, channels, rows;  // of a group: channels of the source, rows of the result
  const T* from;
  T* to;
  const T* weights;
  const T* bias;                      // may be null
  int64_t w_group, w_row, w_channel;  // strides
  ConvAxis axis[kMaxSpatial];
  int64_t kernel[kMaxSpatial];
};

// There is at least one channel and one tap.
template <class T>
void run_correlation(Correlation<T>& c);

}  // namespace wengert
