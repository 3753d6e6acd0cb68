#include "conv.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "../memory.h"
#include "../threads.h"
#include "conv_layout.h"
#include "conv_tiles.h"

namespace wengert {

namespace {

// How work is cut decides its bits, so all of this depends on shapes only. Work is counted in multiply-adds.
constexpr int64_t kScratchBytes = 128 * 1024;  // of the source of a block: half of a small second-level cache
constexpr int64_t kWeightBytes = 192 * 1024;   // of the weights that pass over it
constexpr double kTileWork = 1 << 17;          // what a tile is worth handing out for
constexpr int64_t kEnoughTiles = 16;           // below, output channels are split as well

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class... N>
double work_of(N... n) {
  return (static_cast<double>(n) * ...);
}

// Memory from the pool, for the length of one call.
template <class T>
class Workspace {
 public:
  explicit Workspace(int64_t elements)
      : buffer_(allocate(static_cast<size_t>(elements) * sizeof(T), Category::workspace)) {}
  ~Workspace() { release(buffer_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
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

// to[n, g, m] = bias[g, m] + Σ over channels c and taps of w[g, m, c, tap] · from[n, g, c, ...]
template <class T>
struct Correlation {
  int64_t batch, groups, channels, rows;  // rows: output channels of a group
  const T* from;
  T* to;
  const T* weights;
  int64_t w_group, w_row, w_channel;  // strides
  const T* bias;
  ConvAxis axis[kMaxSpatial];
  int64_t kernel[kMaxSpatial];

  // Filled by run().
  ConvBlocks blocks{};
  std::vector<int64_t> offsets{};
  int64_t parts = 1;  // of the output channels
  int64_t from_plane = 1, to_plane = 1;

  void run();
  int64_t part_begin(int64_t part) const { return rows * part / parts; }
  std::vector<int64_t> tap_indices() const;
  void pack_weights(T* packed) const;
  void run_unit(int64_t unit, const T* packed) const;
  void find_columns(std::vector<ConvColumns<T>>& columns, const ConvBlock& at, const T* scratch, T* image) const;
};

template <class T>
std::vector<int64_t> Correlation<T>::tap_indices() const {
  std::vector<int64_t> taps;
  for (int64_t i : axis[0].index) {
    for (int64_t j : axis[1].index) {
      for (int64_t k : axis[2].index) taps.push_back((i * kernel[1] + j) * kernel[2] + k);
    }
  }
  return taps;
}

// [group][block of channels][part][panel][channel][tap][row of the panel]
template <class T>
void Correlation<T>::pack_weights(T* packed) const {
  const std::vector<int64_t> taps = tap_indices();
  const int64_t n_taps = static_cast<int64_t>(taps.size()), n_blocks = ceil_div(channels, blocks.channels);
  for_each_unit(groups * n_blocks * parts, work_of(blocks.channels, n_taps, rows / parts), [&](int64_t unit) {
    const int64_t part = unit % parts, block = unit / parts % n_blocks, g = unit / parts / n_blocks;
    const int64_t c0 = block * blocks.channels, c1 = std::min(channels, c0 + blocks.channels);
    const int64_t m0 = part_begin(part), n_rows = part_begin(part + 1) - m0;
    T* to = packed + g * channels * n_taps * rows + c0 * n_taps * rows + (c1 - c0) * n_taps * m0;
    for (int64_t panel = 0; panel < n_panels(n_rows); ++panel) {
      const int64_t r0 = m0 + panel_begin(n_rows, panel), r1 = m0 + panel_begin(n_rows, panel + 1);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t t : taps) {
          for (int64_t r = r0; r < r1; ++r) *to++ = weights[g * w_group + r * w_row + c * w_channel + t];
        }
      }
    }
  });
}

template <class T>
void Correlation<T>::find_columns(std::vector<ConvColumns<T>>& columns, const ConvBlock& at, const T* scratch,
                                  T* image) const {
  const int64_t width = conv_tiles(T{}).width;
  const ConvAxis &z = blocks.axis[0], &y = blocks.axis[1], &x = blocks.axis[2];
  columns.clear();
  for (int64_t i = 0; i < at.rows; ++i) {
    const int64_t line = (z.to_first + at.depth * z.to_step) * y.to_size + y.to_first + (at.row + i) * y.to_step;
    T* to = image + line * x.to_size + x.to_first + at.column * x.to_step;
    const T* row = scratch + i * blocks.row;
    for (int64_t j = 0; j < at.columns; j += width) {
      columns.push_back({row + j, to + j * x.to_step, std::min(width, at.columns - j)});
    }
  }
}

template <class T>
void Correlation<T>::run_unit(int64_t unit, const T* packed) const {
  static thread_local ConvScratch<T> memory;
  static thread_local std::vector<ConvColumns<T>> columns;
  auto next = [&unit](int64_t extent) {
    const int64_t i = unit % extent;
    unit /= extent;
    return i;
  };
  const int64_t part = next(parts), column = next(blocks.n_columns()) * blocks.columns;
  const int64_t row = next(blocks.n_rows()) * blocks.rows, depth = next(blocks.axis[0].count), g = next(groups);
  const ConvBlock at{depth, row, column, std::min(blocks.rows, blocks.axis[1].count - row),
                     std::min(blocks.columns, blocks.axis[2].count - column)};
  const ConvTiles<T>& tiles = conv_tiles(T{});
  T* scratch = memory.get(blocks.scratch(tiles.width));
  T* image = to + ((unit * groups + g) * rows + part_begin(part)) * to_plane;
  const T* source = from + (unit * groups + g) * channels * from_plane;
  find_columns(columns, at, scratch, image);

  Correlate<T> tile{};
  tile.rows = part_begin(part + 1) - part_begin(part);
  tile.offsets = offsets.data();
  tile.columns = columns.data();
  tile.n_columns = static_cast<int64_t>(columns.size());
  tile.to_row = to_plane;
  tile.to_step = blocks.axis[2].to_step;
  const int64_t taps = blocks.taps();
  for (int64_t c = 0; c < channels; c += blocks.channels) {
    const int64_t n = std::min(blocks.channels, channels - c);
    fill_scratch(scratch, blocks, at, source + c * from_plane, n);
    tile.depth = n * taps;
    tile.weights = packed + (g * channels + c) * taps * rows + n * taps * part_begin(part);
    tile.accumulate = c > 0;
    tile.bias = bias && c == 0 ? bias + g * rows + part_begin(part) : nullptr;
    tiles.correlate(tile);
  }
}

template <class T>
void Correlation<T>::run() {
  from_plane = axis[0].from_size * axis[1].from_size * axis[2].from_size;
  to_plane = axis[0].to_size * axis[1].to_size * axis[2].to_size;
  const int64_t outputs = axis[0].count * axis[1].count * axis[2].count;
  if (batch * groups * rows * outputs == 0) return;
  blocks = cut_blocks(axis, channels, kScratchBytes / sizeof(T));
  offsets = blocks.offsets();
  const int64_t taps = blocks.taps();
  const int64_t tiles = batch * groups * blocks.axis[0].count * blocks.n_rows() * blocks.n_columns();
  const int64_t weight_bytes = rows * blocks.channels * taps * static_cast<int64_t>(sizeof(T));
  parts = ceil_div(weight_bytes, kWeightBytes);
  const double work = work_of(outputs, batch, groups, rows, channels, taps);
  while (tiles * parts < kEnoughTiles && rows / parts > 2 * kPanelRows && work / tiles / parts > 4 * kTileWork) ++parts;
  Workspace<T> packed(groups * channels * taps * rows);
  pack_weights(packed.data());
  for_each_unit(tiles * parts, work / (tiles * parts), [&](int64_t unit) { run_unit(unit, packed.data()); });
}

void add_forward_taps(ConvAxis& axis, const ConvShape& s, int i) {
  axis.count = axis.to_size = s.out[i];
  axis.from_size = s.in[i];
  axis.from_step = s.stride[i];
  for (int64_t k = 0; k < s.kernel[i]; ++k) {
    axis.index.push_back(k);
    axis.offset.push_back(k * s.dilation[i] - s.padding[i]);
  }
}

int64_t volume(const int64_t (&size)[kMaxSpatial]) { return size[0] * size[1] * size[2]; }

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
  Correlation<T> c{s.batch, s.groups, s.in_channels, s.out_channels, x, y, w, 0, 0, 0, bias, {}, {}};
  c.w_channel = taps;
  c.w_row = s.in_channels * taps;
  c.w_group = s.out_channels * c.w_row;
  for (int i = 0; i < kMaxSpatial; ++i) {
    c.kernel[i] = s.kernel[i];
    add_forward_taps(c.axis[i], s, i);
  }
  c.run();
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
        Correlation<T> c{s.batch, s.groups, s.out_channels, s.in_channels, y, x, w, 0, 0, 0, nullptr, {}, {}};
        c.w_row = taps;
        c.w_channel = s.in_channels * taps;
        c.w_group = s.out_channels * c.w_channel;
        const int64_t phase[kMaxSpatial] = {r0, r1, r2};
        bool any = true;
        for (int i = 0; i < kMaxSpatial; ++i) {
          c.kernel[i] = s.kernel[i];
          any = add_phase_taps(c.axis[i], s, i, phase[i]) && any;
        }
        if (any) c.run();
      }
    }
  }
}

namespace {

// The gradient of the kernel: sums over batch and positions. The batch is cut into chunks whose sums are added in
// order; each unit of work is a chunk, a group and a block of channels.
template <class T>
struct KernelSum {
  const ConvShape& s;
  const T *x, *y;
  ConvBlocks blocks;
  std::vector<int64_t> offsets;
  int64_t chunks, lanes, channel_blocks;
  bool dots;  // few channels or taps: positions in the lanes instead of output channels
  // Sums of one chunk: [group][out_channels][in_channels · taps] if dots, else [group][in_channels · taps][padded]
  int64_t padded, sums;

  KernelSum(const ConvShape& shape, const T* x_, const T* y_) : s(shape), x(x_), y(y_) {
    ConvAxis axis[kMaxSpatial];
    for (int i = 0; i < kMaxSpatial; ++i) add_forward_taps(axis[i], s, i);
    blocks = cut_blocks(axis, s.in_channels, kScratchBytes / sizeof(T));
    offsets = blocks.offsets();
    const int64_t width = conv_tiles(T{}).width, taps = blocks.taps();
    dots = s.out_channels < width || s.in_channels * taps < 24;
    lanes = s.out_channels > width ? 2 * width : width;
    padded = ceil_div(s.out_channels, lanes) * lanes;
    channel_blocks = ceil_div(s.in_channels, blocks.channels);
    sums = s.groups * s.in_channels * taps * (dots ? s.out_channels : padded);
    chunks = std::clamp<int64_t>(ceil_div(kEnoughTiles, s.groups * channel_blocks), 1, std::max<int64_t>(1, s.batch));
  }

  void run(T* w) const {
    const int64_t units = chunks * s.groups * channel_blocks;
    const double work = work_of(s.batch, volume(s.out), s.in_channels, s.out_channels, volume(s.kernel), s.groups);
    Workspace<T> partial(chunks * sums);
    for_each_unit(units, work / units, [&](int64_t unit) { run_unit(unit, partial.data()); });
    add_chunks(partial.data(), w);
  }

  void run_unit(int64_t unit, T* partial) const {
    const int64_t block = unit % channel_blocks, g = unit / channel_blocks % s.groups;
    const int64_t chunk = unit / channel_blocks / s.groups;
    const int64_t c0 = block * blocks.channels, n = std::min(blocks.channels, s.in_channels - c0);
    const int64_t taps = blocks.taps(), in_plane = volume(s.in), out_plane = volume(s.out);
    T* out = partial + chunk * sums + g * (sums / s.groups);
    if (dots) {
      for (int64_t o = 0; o < s.out_channels; ++o) {
        std::fill_n(out + (o * s.in_channels + c0) * taps, n * taps, T(0));
      }
    } else {
      std::fill_n(out + c0 * taps * padded, n * taps * padded, T(0));
    }
    for (int64_t image = s.batch * chunk / chunks; image < s.batch * (chunk + 1) / chunks; ++image) {
      const T* source = x + ((image * s.groups + g) * s.in_channels + c0) * in_plane;
      const T* bar = y + (image * s.groups + g) * s.out_channels * out_plane;
      for (int64_t d = 0; d < blocks.axis[0].count; ++d) {
        for (int64_t r = 0; r < blocks.axis[1].count; r += blocks.rows) {
          for (int64_t q = 0; q < blocks.axis[2].count; q += blocks.columns) {
            const ConvBlock at{d, r, q, std::min(blocks.rows, blocks.axis[1].count - r),
                               std::min(blocks.columns, blocks.axis[2].count - q)};
            add_block(at, source, n, bar, out, c0);
          }
        }
      }
    }
  }

  void add_block(const ConvBlock& at, const T* source, int64_t n, const T* bar, T* out, int64_t c0) const {
    static thread_local ConvScratch<T> x_memory, y_memory;
    const ConvTiles<T>& tiles = conv_tiles(T{});
    const int64_t taps = blocks.taps(), out_plane = volume(s.out);
    const int64_t y_row = blocks.axis[2].to_size;
    const T* first = bar + (at.depth * blocks.axis[1].to_size + at.row) * y_row + at.column;
    T* scratch = x_memory.get(blocks.scratch(tiles.width));
    fill_scratch(scratch, blocks, at, source, n);
    if (dots) {
      tiles.kernel_dots({scratch, blocks.row, offsets.data(), n * taps, first, out_plane, y_row, s.out_channels,
                         at.rows, at.columns, out + c0 * taps, s.in_channels * taps});
      return;
    }
    T* packed = y_memory.get(at.rows * at.columns * lanes);
    for (int64_t o = 0; o < s.out_channels; o += lanes) {
      for (int64_t i = 0; i < at.rows; ++i) {
        tiles.interleave(packed + i * at.columns * lanes, first + o * out_plane + i * y_row, out_plane,
                         std::min(lanes, s.out_channels - o), lanes, at.columns);
      }
      tiles.kernel_sums({scratch, blocks.row, offsets.data(), n * taps, packed, lanes, at.rows, at.columns,
                         out + c0 * taps * padded + o, padded});
    }
  }

  void add_chunks(const T* partial, T* w) const {
    const int64_t depth = s.in_channels * blocks.taps();
    const int64_t by_row = dots ? depth : 1, by_tap = dots ? 1 : padded;
    for_each_unit(s.groups * s.out_channels, work_of(depth, chunks), [&](int64_t unit) {
      const int64_t g = unit / s.out_channels, o = unit % s.out_channels;
      const T* from = partial + g * (sums / s.groups) + o * by_row;
      T* to = w + unit * depth;
      for (int64_t t = 0; t < depth; ++t) {
        T sum = from[t * by_tap];
        for (int64_t c = 1; c < chunks; ++c) sum += from[c * sums + t * by_tap];
        to[t] = sum;
      }
    });
  }
};

}  // namespace

template <class T>
void conv_kernel(const ConvShape& s, const T* x, const T* y, T* w) {
  const int64_t size = s.groups * s.out_channels * s.in_channels * volume(s.kernel);
  if (size == 0) return;
  if (s.batch * volume(s.out) == 0) {
    std::memset(w, 0, static_cast<size_t>(size) * sizeof(T));
    return;
  }
  KernelSum<T>(s, x, y).run(w);
}

template void conv_output(const ConvShape&, const float*, const float*, const float*, float*);
template void conv_output(const ConvShape&, const double*, const double*, const double*, double*);
template void conv_input(const ConvShape&, const float*, const float*, float*);
template void conv_input(const ConvShape&, const double*, const double*, double*);
template void conv_kernel(const ConvShape&, const float*, const float*, float*);
template void conv_kernel(const ConvShape&, const double*, const double*, double*);

}  // namespace wengert
