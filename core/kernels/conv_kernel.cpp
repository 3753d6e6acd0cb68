// The part of a convolution's form that belongs to the kernel: the gradient of the weight.
#include <cstring>
#include <vector>

#include "../per_thread.h"
#include "conv_tiles.h"
#include "conv_work.h"

namespace wengert {

namespace {

template <class T>
struct KernelSumMemory {
  ConvScratch<T> source, packed_bar;
};

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
    PooledArray<T> partial(chunks * sums);
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
    KernelSumMemory<T>& memory = per_thread<KernelSumMemory<T>>();
    const ConvTiles<T>& tiles = conv_tiles(T{});
    const int64_t taps = blocks.taps(), out_plane = volume(s.out);
    const int64_t y_row = blocks.axis[2].to_size;
    const T* first = bar + (at.depth * blocks.axis[1].to_size + at.row) * y_row + at.column;
    T* scratch = memory.source.get(blocks.scratch(tiles.width));
    fill_scratch(scratch, blocks, at, source, n);
    if (dots) {
      tiles.kernel_dots({scratch, blocks.row, offsets.data(), n * taps, first, out_plane, y_row, s.out_channels,
                         at.rows, at.columns, out + c0 * taps, s.in_channels * taps});
      return;
    }
    T* packed = memory.packed_bar.get(at.rows * at.columns * lanes);
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

template void conv_kernel(const ConvShape&, const float*, const float*, float*);
template void conv_kernel(const ConvShape&, const double*, const double*, double*);

}  // namespace wengert
