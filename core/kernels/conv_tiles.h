// The register tiles of convolution: what runs in the innermost loops, compiled once per instruction set from
// vector_conv.cpp. A tile reads its source at a table of offsets, one for every (channel, tap), so that stride,
// padding, dilation and rank are a matter of how the source was laid out (conv.cpp), and no patch is ever copied.
#pragma once
#include <cstdint>

namespace wengert {

// Up to `width` neighbouring outputs of one row of the image.
struct ConvColumns {
  int64_t from;  // a whole vector is read at from + offset: the source has that much room behind it
  int64_t to, n;
};

// to[m, j] = start[m] + Σₖ weights[m, k] · from[offsets[k] + j]; `start` is a bias, zeros, or what is there.
template <class T>
struct Correlate {
  int64_t rows;      // output channels
  const T* weights;  // in panels of panel_rows(rows, p) channels, each laid out [depth][channels]
  int64_t depth;
  const int64_t* offsets;
  const ConvColumns* columns;
  int64_t n_columns;
  const T* from;
  T* to;
  int64_t to_row;  // from one output channel to the next
  const T* bias;   // one per output channel, or null
  bool accumulate;
};

// to[i, m] = start[m] + Σₖ weights[k, m] · *(points[i] + offsets[k]): the same with output channels in the lanes, which
// wastes nothing on narrow images.
template <class T>
struct CorrelatePoints {
  const T* const* points;
  int64_t n_points;
  const T* weights;  // [depth][lanes]
  int64_t depth;
  const int64_t* offsets;
  T* to;  // [n_points][lanes]
  int64_t lanes;
  const T* bias;    // `lanes` of them, or null
  bool accumulate;  // start from what is there
};

// out[t, o] += Σ over rows and columns of x[row, offsets[t] + column] · y[row, column, o]
template <class T>
struct KernelSums {
  const T* x;
  int64_t x_row;
  const int64_t* offsets;
  int64_t taps;
  const T* y;  // packed: `lanes` output channels beside each other for every position
  int64_t lanes;
  int64_t rows, columns;
  T* out;
  int64_t out_tap;
};

// out[o, t] += Σ over rows and columns of y[o, row, column] · x[row, offsets[t] + column]: for few channels
template <class T>
struct KernelDots {
  const T* x;
  int64_t x_row;
  const int64_t* offsets;
  int64_t taps;
  const T* y;
  int64_t y_channel, y_row, channels;
  int64_t rows, columns;
  T* out;
  int64_t out_channel;
};

template <class T>
struct FillRows {
  T* to;
  const T* from;
  int64_t to_row, from_row, rows;
  int64_t low, high, used;
};

template <class T>
struct ConvTiles {
  int64_t width;  // elements of a vector
  void (*correlate)(const Correlate<T>&);
  void (*correlate_points)(const CorrelatePoints<T>&);  // lanes: width or 2 * width
  void (*kernel_sums)(const KernelSums<T>&);            // lanes: width or 2 * width
  void (*kernel_dots)(const KernelDots<T>&);
  // Rows of a block's source, one behind the other: zeros, the elements [low, high) from `from` on, zeros up to `used`.
  // Whole vectors are written: behind each row as much as a vector is overwritten, by the next row if not before.
  void (*fill_rows)(const FillRows<T>&);
  // to[j * lanes + o] = from[o * channel + j] for o < channels, 0 for the other lanes
  void (*interleave)(T* to, const T* from, int64_t channel, int64_t channels, int64_t lanes, int64_t n);
  void (*spread)(T* to, int64_t step, const T* from, int64_t n);  // to[j * step] = from[j]
  // to[o * channel + j * step] = from[j * lanes + o] for o < channels
  void (*deinterleave)(T* to, int64_t channel, int64_t step, const T* from, int64_t channels, int64_t lanes, int64_t n);
};

// Channels are spread evenly over panels, so that no row of registers is idle.
inline constexpr int64_t kPanelRows = 6;
[[gnu::always_inline]] inline int64_t n_panels(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }
[[gnu::always_inline]] inline int64_t panel_begin(int64_t rows, int64_t panel) { return rows * panel / n_panels(rows); }

const ConvTiles<float>& conv_tiles(float);
const ConvTiles<double>& conv_tiles(double);

}  // namespace wengert
