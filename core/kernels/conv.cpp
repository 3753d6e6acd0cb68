// The parts of a convolution's form that belong to the output and to the input, as correlations.
#include "conv.h"

#include <cstring>

#include "conv_correlate.h"
#include "conv_work.h"

namespace wengert {

namespace {

// Input positions of one residue modulo the stride get contributions from the taps of one residue: together a
// correlation of stride 1.
bool add_phase_taps(ConvAxis& axis, const ConvShape& s, int i, int64_t phase) {
  const int64_t stride = s.stride[i];
  axis.count = phase < s.in[i] ? ceil_div(s.in[i] - phase, stride) : 0;
  axis.to_first = phase;
  axis.to_step = stride;
  axis.to_size = s.in[i];
  axis.from_size = s.out[i];
  for (int64_t k = 0; k < s.kernel[i]; ++k) {
    const int64_t distance = phase + s.padding[i] - k * s.dilation[i];
    if (distance % stride != 0) continue;
    axis.index.push_back(k);
    axis.offset.push_back(distance / stride);
  }
  return axis.count > 0 && axis.taps() > 0;
}

}  // namespace

template <class T>
void conv_output(const ConvShape& s, const T* x, const T* w, const T* bias, T* y) {
  const int64_t taps = volume(s.kernel);
  if (s.in_channels * taps == 0) {
    for (int64_t n = 0; n < s.batch; ++n) {
      for (int64_t o = 0; o < s.groups * s.out_channels; ++o, y += volume(s.out)) {
        std::fill_n(y, volume(s.out), bias ? bias[o] : T(0));
      }
    }
    return;
  }
  Correlation<T> c{s.batch, s.groups, s.in_channels, s.out_channels, x, y, w, bias, 0, 0, 0, {}, {}};
  c.w_channel = taps;
  c.w_row = s.in_channels * taps;
  c.w_group = s.out_channels * c.w_row;
  for (int i = 0; i < kMaxSpatial; ++i) {
    c.kernel[i] = s.kernel[i];
    add_forward_taps(c.axis[i], s, i);
  }
  run_correlation(c);
}

template <class T>
void conv_input(const ConvShape& s, const T* y, const T* w, T* x) {
  const int64_t size = s.batch * s.groups * s.in_channels * volume(s.in);
  bool covered = s.out_channels > 0;  // every position gets a contribution from some tap
  for (int i = 0; i < kMaxSpatial; ++i) {
    for (int64_t r = 0; r < std::min(s.stride[i], s.in[i]); ++r) {
      ConvAxis axis;
      covered = add_phase_taps(axis, s, i, r) && covered;
    }
  }
  if (!covered) std::memset(x, 0, static_cast<size_t>(size) * sizeof(T));
  if (s.out_channels == 0) return;
  const int64_t taps = volume(s.kernel);
  for (int64_t r0 = 0; r0 < std::min(s.stride[0], s.in[0]); ++r0) {
    for (int64_t r1 = 0; r1 < std::min(s.stride[1], s.in[1]); ++r1) {
      for (int64_t r2 = 0; r2 < std::min(s.stride[2], s.in[2]); ++r2) {
        Correlation<T> c{s.batch, s.groups, s.out_channels, s.in_channels, y, x, w, nullptr, 0, 0, 0, {}, {}};
        c.w_row = taps;
        c.w_channel = s.in_channels * taps;
        c.w_group = s.out_channels * c.w_channel;
        const int64_t phase[kMaxSpatial] = {r0, r1, r2};
        bool any = true;
        for (int i = 0; i < kMaxSpatial; ++i) {
          c.kernel[i] = s.kernel[i];
          any = add_phase_taps(c.axis[i], s, i, phase[i]) && any;
        }
        if (any) run_correlation(c);
      }
    }
  }
}

template void conv_output(const ConvShape&, const float*, const float*, const float*, float*);
template void conv_output(const ConvShape&, const double*, const double*, const double*, double*);
template void conv_input(const ConvShape&, const float*, const float*, float*);
template void conv_input(const ConvShape&, const double*, const double*, double*);

}  // namespace wengert
