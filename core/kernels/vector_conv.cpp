// The register tiles of convolution for one instruction set; see conv_tiles.h. Products are accumulated with fused
// multiply-add where the machine has it, in an order that depends on shapes only.
#include "conv_tiles.h"
#include "vector_lanes.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

template <class L>
using Element = typename L::T;

// Loops over registers: an array of vectors is in registers only if every index is known.
#define UNROLL _Pragma("GCC unroll 16")

// R output channels × V vectors of columns, held in registers over the whole depth.
template <class L, int R, int V>
void correlate_tile(const Correlate<Element<L>>& p, const Element<L>* weights, int64_t row,
                    const ConvColumns* columns) {
  using T = Element<L>;
  typename L::Vec acc[R][V];
  UNROLL for (int r = 0; r < R; ++r) {
    const typename L::Vec start = p.bias ? L::broadcast(p.bias + row + r) : L::zero();
    UNROLL for (int v = 0; v < V; ++v) acc[r][v] = start;
  }
  const T* from[V];
  UNROLL for (int v = 0; v < V; ++v) from[v] = p.from + columns[v].from;
  for (int64_t k = 0; k < p.depth; ++k, weights += R) {
    const int64_t offset = p.offsets[k];
    typename L::Vec x[V];
    UNROLL for (int v = 0; v < V; ++v) x[v] = L::load(from[v] + offset);
    UNROLL for (int r = 0; r < R; ++r) {
      const typename L::Vec w = L::broadcast(weights + r);
      UNROLL for (int v = 0; v < V; ++v) acc[r][v] = L::multiply_add(w, x[v], acc[r][v]);
    }
  }
  UNROLL for (int v = 0; v < V; ++v) {
    const int64_t n = columns[v].n;
    T* to = p.to + columns[v].to + row * p.to_row;
    if (n == L::kWidth) {
      UNROLL for (int r = 0; r < R; ++r, to += p.to_row) {
        L::store(to, p.accumulate ? L::add(L::load(to), acc[r][v]) : acc[r][v]);
      }
    } else {
      UNROLL for (int r = 0; r < R; ++r, to += p.to_row) {
        L::store_first(to, n, p.accumulate ? L::add(L::load_first(to, n), acc[r][v]) : acc[r][v]);
      }
    }
  }
}

template <class L, int V>
void correlate_panels(const Correlate<Element<L>>& p, const ConvColumns* columns) {
  const int64_t panels = n_panels(p.rows);
  const Element<L>* weights = p.weights;
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t row = panel_begin(p.rows, panel), rows = panel_begin(p.rows, panel + 1) - row;
    switch (rows) {
      case 1: correlate_tile<L, 1, V>(p, weights, row, columns); break;
      case 2: correlate_tile<L, 2, V>(p, weights, row, columns); break;
      case 3: correlate_tile<L, 3, V>(p, weights, row, columns); break;
      case 4: correlate_tile<L, 4, V>(p, weights, row, columns); break;
      case 5: correlate_tile<L, 5, V>(p, weights, row, columns); break;
      default: correlate_tile<L, 6, V>(p, weights, row, columns); break;
    }
    weights += rows * p.depth;
  }
}

template <class L>
void correlate(const Correlate<Element<L>>& p) {
  int64_t c = 0;
  if (p.rows == 1) {
    for (; c + 8 <= p.n_columns; c += 8) correlate_tile<L, 1, 8>(p, p.weights, 0, p.columns + c);
    for (; c + 4 <= p.n_columns; c += 4) correlate_tile<L, 1, 4>(p, p.weights, 0, p.columns + c);
  } else if (p.rows <= 3) {
    for (; c + 4 <= p.n_columns; c += 4) {
      if (p.rows == 2) {
        correlate_tile<L, 2, 4>(p, p.weights, 0, p.columns + c);
      } else {
        correlate_tile<L, 3, 4>(p, p.weights, 0, p.columns + c);
      }
    }
  }
  for (; c + 2 <= p.n_columns; c += 2) correlate_panels<L, 2>(p, p.columns + c);
  if (c < p.n_columns) correlate_panels<L, 1>(p, p.columns + c);
}

// R outputs × V vectors of output channels, held in registers over the whole depth.
template <class L, int R, int V>
void points_tile(const CorrelatePoints<Element<L>>& p, int64_t point) {
  using T = Element<L>;
  typename L::Vec acc[R][V];
  T* to = p.to + point * V * L::kWidth;
  UNROLL for (int v = 0; v < V; ++v) {
    const typename L::Vec start = p.bias ? L::load(p.bias + v * L::kWidth) : L::zero();
    UNROLL for (int r = 0; r < R; ++r) { acc[r][v] = p.accumulate ? L::load(to + (r * V + v) * L::kWidth) : start; }
  }
  const T* from[R];
  UNROLL for (int r = 0; r < R; ++r) from[r] = p.points[point + r];
  const T* weights = p.weights;
  for (int64_t k = 0; k < p.depth; ++k, weights += V * L::kWidth) {
    const int64_t offset = p.offsets[k];
    typename L::Vec w[V];
    UNROLL for (int v = 0; v < V; ++v) w[v] = L::load(weights + v * L::kWidth);
    UNROLL for (int r = 0; r < R; ++r) {
      const typename L::Vec x = L::broadcast(from[r] + offset);
      UNROLL for (int v = 0; v < V; ++v) acc[r][v] = L::multiply_add(x, w[v], acc[r][v]);
    }
  }
  UNROLL for (int r = 0; r < R; ++r) {
    UNROLL for (int v = 0; v < V; ++v) L::store(to + (r * V + v) * L::kWidth, acc[r][v]);
  }
}

template <class L, int V>
void points_panels(const CorrelatePoints<Element<L>>& p) {
  const int64_t panels = n_panels(p.n_points);
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t point = panel_begin(p.n_points, panel);
    switch (panel_begin(p.n_points, panel + 1) - point) {
      case 1: points_tile<L, 1, V>(p, point); break;
      case 2: points_tile<L, 2, V>(p, point); break;
      case 3: points_tile<L, 3, V>(p, point); break;
      case 4: points_tile<L, 4, V>(p, point); break;
      case 5: points_tile<L, 5, V>(p, point); break;
      default: points_tile<L, 6, V>(p, point); break;
    }
  }
}

template <class L>
void correlate_points(const CorrelatePoints<Element<L>>& p) {
  if (p.lanes == L::kWidth) {
    points_panels<L, 1>(p);
  } else {
    points_panels<L, 2>(p);
  }
}

// R taps × V vectors of output channels, held in registers over all positions.
template <class L, int R, int V>
void sums_tile(const KernelSums<Element<L>>& p, int64_t tap) {
  using T = Element<L>;
  typename L::Vec acc[R][V];
  UNROLL for (int r = 0; r < R; ++r) { UNROLL for (int v = 0; v < V; ++v) acc[r][v] = L::zero(); }
  const T* y = p.y;
  for (int64_t row = 0; row < p.rows; ++row) {
    const T* x[R];
    UNROLL for (int r = 0; r < R; ++r) x[r] = p.x + row * p.x_row + p.offsets[tap + r];
    for (int64_t j = 0; j < p.columns; ++j, y += V * L::kWidth) {
      typename L::Vec w[V];
      UNROLL for (int v = 0; v < V; ++v) w[v] = L::load(y + v * L::kWidth);
      UNROLL for (int r = 0; r < R; ++r) {
        const typename L::Vec one = L::broadcast(x[r] + j);
        UNROLL for (int v = 0; v < V; ++v) acc[r][v] = L::multiply_add(one, w[v], acc[r][v]);
      }
    }
  }
  UNROLL for (int r = 0; r < R; ++r) {
    T* out = p.out + (tap + r) * p.out_tap;
    UNROLL for (int v = 0; v < V; ++v, out += L::kWidth) L::store(out, L::add(L::load(out), acc[r][v]));
  }
}

template <class L, int V>
void sums_taps(const KernelSums<Element<L>>& p) {
  const int64_t panels = n_panels(p.taps);
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t tap = panel_begin(p.taps, panel);
    switch (panel_begin(p.taps, panel + 1) - tap) {
      case 1: sums_tile<L, 1, V>(p, tap); break;
      case 2: sums_tile<L, 2, V>(p, tap); break;
      case 3: sums_tile<L, 3, V>(p, tap); break;
      case 4: sums_tile<L, 4, V>(p, tap); break;
      case 5: sums_tile<L, 5, V>(p, tap); break;
      default: sums_tile<L, 6, V>(p, tap); break;
    }
  }
}

template <class L>
void kernel_sums(const KernelSums<Element<L>>& p) {
  if (p.lanes == L::kWidth) {
    sums_taps<L, 1>(p);
  } else {
    sums_taps<L, 2>(p);
  }
}

// O output channels × R taps; lanes are positions, and are added up at the end.
template <class L, int O, int R>
void dots_tile(const KernelDots<Element<L>>& p, int64_t channel, int64_t tap) {
  using T = Element<L>;
  typename L::Vec acc[O][R];
  UNROLL for (int o = 0; o < O; ++o) { UNROLL for (int r = 0; r < R; ++r) acc[o][r] = L::zero(); }
  for (int64_t row = 0; row < p.rows; ++row) {
    const T* y[O];
    const T* x[R];
    UNROLL for (int o = 0; o < O; ++o) y[o] = p.y + (channel + o) * p.y_channel + row * p.y_row;
    UNROLL for (int r = 0; r < R; ++r) x[r] = p.x + row * p.x_row + p.offsets[tap + r];
    auto step = [&](auto load) __attribute__((always_inline)) {
      typename L::Vec w[O];
      UNROLL for (int o = 0; o < O; ++o) w[o] = load(y[o]);
      UNROLL for (int r = 0; r < R; ++r) {
        const typename L::Vec one = load(x[r]);
        UNROLL for (int o = 0; o < O; ++o) acc[o][r] = L::multiply_add(one, w[o], acc[o][r]);
      }
    };
    int64_t j = 0;
    for (; j + L::kWidth <= p.columns; j += L::kWidth) step([j](const T* at) { return L::load(at + j); });
    // Both are masked: what stands behind the row may be infinite, and 0 times that is not 0.
    const int64_t rest = p.columns - j;
    if (rest > 0) step([j, rest](const T* at) { return L::load_first(at + j, rest); });
  }
  UNROLL for (int o = 0; o < O; ++o) {
    UNROLL for (int r = 0; r < R; ++r) {
      alignas(64) T lanes[L::kWidth];
      L::store(lanes, acc[o][r]);
      for (int n = L::kWidth / 2; n > 0; n /= 2) {
        for (int i = 0; i < n; ++i) lanes[i] += lanes[i + n];
      }
      p.out[(channel + o) * p.out_channel + tap + r] += lanes[0];
    }
  }
}

template <class L, int O>
void dots_taps(const KernelDots<Element<L>>& p, int64_t channel) {
  constexpr int64_t most = O == 1 ? 9 : O == 2 ? 5 : 3;
  for (int64_t tap = 0; tap < p.taps;) {
    const int64_t n = smaller(most, p.taps - tap);
    switch (n) {
      case 1: dots_tile<L, O, 1>(p, channel, tap); break;
      case 2: dots_tile<L, O, 2>(p, channel, tap); break;
      case 3: dots_tile<L, O, 3>(p, channel, tap); break;
      default:
        if constexpr (most >= 5) {
          if (n == 4) dots_tile<L, O, 4>(p, channel, tap);
          if (n == 5) dots_tile<L, O, 5>(p, channel, tap);
        }
        if constexpr (most >= 9) {
          if (n == 6) dots_tile<L, O, 6>(p, channel, tap);
          if (n == 7) dots_tile<L, O, 7>(p, channel, tap);
          if (n == 8) dots_tile<L, O, 8>(p, channel, tap);
          if (n == 9) dots_tile<L, O, 9>(p, channel, tap);
        }
    }
    tap += n;
  }
}

template <class L>
void kernel_dots(const KernelDots<Element<L>>& p) {
  int64_t channel = 0;
  for (; channel + 4 <= p.channels; channel += 4) dots_taps<L, 4>(p, channel);
  if (p.channels - channel >= 2) {
    dots_taps<L, 2>(p, channel);
    channel += 2;
  }
  if (channel < p.channels) dots_taps<L, 1>(p, channel);
}

template <class L>
void fill_rows(const FillRows<Element<L>>& p) {
  constexpr int64_t kWidth = L::kWidth;
  const int64_t n = p.high - p.low;
  for (int64_t row = 0; row < p.rows; ++row) {
    Element<L>* to = p.to + row * p.to_row;
    const Element<L>* from = p.from + row * p.from_row;
    for (int64_t j = 0; j < p.low; j += kWidth) L::store(to + j, L::zero());
    int64_t j = 0;
    for (; j + kWidth <= n; j += kWidth) L::store(to + p.low + j, L::load(from + j));
    if (j < n) {
      L::store(to + p.low + j, L::load_first(from + j, n - j));
      j += kWidth;
    }
    for (j += p.low; j < p.used; j += kWidth) L::store(to + j, L::zero());
  }
}

template <class L>
void spread(Element<L>* to, int64_t step, const Element<L>* from, int64_t n) {
  if (step == 2) {  // known to the compiler
    for (int64_t j = 0; j < n; ++j) to[2 * j] = from[j];
  } else {
    for (int64_t j = 0; j < n; ++j) to[j * step] = from[j];
  }
}

template <class L>
void interleave(Element<L>* to, const Element<L>* from, int64_t channel, int64_t channels, int64_t lanes, int64_t n) {
  using T = Element<L>;
  int64_t o = 0;
  for (; o + 4 <= channels; o += 4) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) L::transpose4(to + j * lanes + o, lanes, from + o * channel + j, channel);
    for (; j < n; ++j) {
      for (int i = 0; i < 4; ++i) to[j * lanes + o + i] = from[(o + i) * channel + j];
    }
  }
  for (; o < channels; ++o) {
    for (int64_t j = 0; j < n; ++j) to[j * lanes + o] = from[o * channel + j];
  }
  for (; o < lanes; ++o) {
    for (int64_t j = 0; j < n; ++j) to[j * lanes + o] = T(0);
  }
}

template <class L>
void deinterleave(Element<L>* to, int64_t channel, int64_t step, const Element<L>* from, int64_t channels,
                  int64_t lanes, int64_t n) {
  int64_t o = 0;
  if (step == 1) {
    for (; o + 4 <= channels; o += 4) {
      int64_t j = 0;
      for (; j + 4 <= n; j += 4) L::transpose4(to + o * channel + j, channel, from + j * lanes + o, lanes);
      for (; j < n; ++j) {
        for (int i = 0; i < 4; ++i) to[(o + i) * channel + j] = from[j * lanes + o + i];
      }
    }
  }
  for (; o < channels; ++o) {
    for (int64_t j = 0; j < n; ++j) to[o * channel + j * step] = from[j * lanes + o];
  }
}

template <class L>
constexpr ConvTiles<Element<L>> kTiles = {L::kWidth,      correlate<L>,   correlate_points<L>,
                                          kernel_sums<L>, kernel_dots<L>, fill_rows<L>,
                                          interleave<L>,  spread<L>,      deinterleave<L>};

}  // namespace

const ConvTiles<float>& conv_tiles_f32();
const ConvTiles<double>& conv_tiles_f64();
const ConvTiles<float>& conv_tiles_f32() { return kTiles<F32>; }
const ConvTiles<double>& conv_tiles_f64() { return kTiles<F64>; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
