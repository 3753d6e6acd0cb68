#include "conv_correlate.h"

#include <vector>

#include "../per_thread.h"
#include "conv_tiles.h"
#include "conv_work.h"

namespace wengert {

namespace {

// What a tile of output channels costs besides its products, in products: writing it in the order of the result.
constexpr double kInterleaveDepth = 12;

template <class T>
struct CorrelationMemory {
  ConvScratch<T> source, results;
  std::vector<const T*> from;  // where in the source the points of a block begin
};

// A correlation, cut. The source comes in blocks of positions and channels; the weights pass over a block in parts.
// The lanes of a vector are neighbouring columns, or output channels where an image is too narrow for that.
template <class T>
struct CutCorrelation {
  const Correlation<T>& c;
  const ConvTiles<T>& tiles = conv_tiles(T{});
  ConvBlocks blocks;
  std::vector<int64_t> offsets, kernel_indices;
  int64_t from_plane, to_plane, taps;
  bool points = false;  // output channels in the lanes
  int64_t lanes = 1;    // then
  int64_t parts = 1, parts_per_unit = 1, unit_parts = 1;
  std::vector<ConvColumns> layouts[2][2];  // of blocks: whether the last, shorter, along the rows; along the columns

  explicit CutCorrelation(Correlation<T>& correlation) : c(correlation) {
    from_plane = c.axis[0].from_size * c.axis[1].from_size * c.axis[2].from_size;
    to_plane = c.axis[0].to_size * c.axis[1].to_size * c.axis[2].to_size;
    for (int64_t i : c.axis[0].index) {
      for (int64_t j : c.axis[1].index) {
        for (int64_t k : c.axis[2].index) kernel_indices.push_back((i * c.kernel[1] + j) * c.kernel[2] + k);
      }
    }
    blocks = cut_blocks(correlation.axis, c.channels, kScratchBytes / sizeof(T));
    offsets = blocks.offsets();
    taps = blocks.taps();
    choose_lanes();
    choose_parts();
    if (points) return;
    const int64_t rows[] = {blocks.rows, blocks.axis[1].count - (blocks.n_rows() - 1) * blocks.rows};
    const int64_t columns[] = {blocks.columns, blocks.axis[2].count - (blocks.n_columns() - 1) * blocks.columns};
    for (int i : {0, 1}) {
      for (int j : {0, 1}) layouts[i][j] = lay_out_columns(rows[i], columns[j]);
    }
  }

  void choose_lanes() {
    const int64_t width = tiles.width, depth = c.channels * taps;
    auto used = [](int64_t n, int64_t whole) { return work_of(n) / work_of(ceil_div(n, whole), whole); };
    lanes = c.rows > width ? 2 * width : width;
    // One vector of accumulators for each of six outputs does not keep the multipliers busy.
    const double by_channels = used(c.rows, lanes) * (lanes == width ? 0.75 : 1.0) * depth / (depth + kInterleaveDepth);
    points = by_channels > used(blocks.columns, width);
  }

  void choose_parts() {
    const double work = work_of(c.batch, c.groups, c.channels, c.rows, taps) *
                        work_of(blocks.axis[0].count, blocks.axis[1].count, blocks.axis[2].count);
    int64_t splits = 1;  // of the output channels, where there are too few blocks to share out
    if (n_blocks() < kEnoughTiles && work > kEnoughTiles * kTileWork) {
      splits = std::clamp<int64_t>(c.rows / (2 * kPanelRows), 1, ceil_div(kEnoughTiles, n_blocks()));
    }
    const int64_t weight_bytes = c.rows * blocks.channels * taps * static_cast<int64_t>(sizeof(T));
    parts = points ? ceil_div(c.rows, lanes) : std::max(splits, ceil_div(weight_bytes, kWeightBytes));
    parts_per_unit = ceil_div(parts, splits);
    unit_parts = ceil_div(parts, parts_per_unit);
  }

  int64_t n_blocks() const { return c.batch * c.groups * blocks.axis[0].count * blocks.n_rows() * blocks.n_columns(); }
  int64_t part_begin(int64_t part) const { return points ? std::min(c.rows, part * lanes) : c.rows * part / parts; }
  int64_t padded_rows() const { return points ? parts * lanes : c.rows; }
  int64_t padded_begin(int64_t part) const { return points ? part * lanes : part_begin(part); }

  void run() const {
    PooledArray<T> packed(c.groups * c.channels * taps * padded_rows());
    PooledArray<T> bias(points ? c.groups * padded_rows() : 1);
    pack_weights(packed.data());
    if (points && c.bias) pack_bias(bias.data());
    const double work =
        work_of(blocks.rows, blocks.columns, c.channels, taps) * work_of(c.rows) / static_cast<double>(unit_parts);
    for_each_unit(n_blocks() * unit_parts, work, [&](int64_t unit) { run_unit(unit, packed.data(), bias.data()); });
  }

  // [group][block of channels][part], then for columns [panel][channel][tap][row of the panel], for points
  // [channel][tap][lane].
  void pack_weights(T* packed) const {
    const int64_t n_blocks = ceil_div(c.channels, blocks.channels);
    for_each_unit(c.groups * n_blocks * parts, work_of(blocks.channels, taps, c.rows / parts), [&](int64_t unit) {
      const int64_t part = unit % parts, block = unit / parts % n_blocks, g = unit / parts / n_blocks;
      const int64_t c0 = block * blocks.channels, c1 = std::min(c.channels, c0 + blocks.channels);
      const int64_t m = part_begin(part), rows = part_begin(part + 1) - m;
      T* to = packed + (g * c.channels + c0) * taps * padded_rows() + (c1 - c0) * taps * padded_begin(part);
      const T* from = c.weights + g * c.w_group;
      const int64_t panels = points ? 1 : n_panels(rows);
      for (int64_t panel = 0; panel < panels; ++panel) {
        const int64_t r0 = points ? m : m + panel_begin(rows, panel);
        const int64_t r1 = points ? m + rows : m + panel_begin(rows, panel + 1);
        const int64_t idle = points ? lanes - rows : 0;
        for (int64_t channel = c0; channel < c1; ++channel) {
          for (int64_t k : kernel_indices) {
            for (int64_t r = r0; r < r1; ++r) *to++ = from[r * c.w_row + channel * c.w_channel + k];
            to = std::fill_n(to, idle, T(0));
          }
        }
      }
    });
  }

  void pack_bias(T* to) const {
    for (int64_t g = 0; g < c.groups; ++g, to += padded_rows()) {
      std::copy_n(c.bias + g * c.rows, c.rows, to);
      std::fill_n(to + c.rows, padded_rows() - c.rows, T(0));
    }
  }

  // What one task of the thread pool computes.
  struct WorkUnit {
    ConvBlock at;
    int64_t g, first_part, end_part;
    const T* source;
    T* image;  // of the group's first output channel
  };

  WorkUnit unit_at(int64_t unit) const {
    auto next = [&unit](int64_t extent) {
      const int64_t i = unit % extent;
      unit /= extent;
      return i;
    };
    const int64_t part = next(unit_parts) * parts_per_unit, column = next(blocks.n_columns()) * blocks.columns;
    const int64_t row = next(blocks.n_rows()) * blocks.rows, depth = next(blocks.axis[0].count), g = next(c.groups);
    const ConvBlock at{depth, row, column, std::min(blocks.rows, blocks.axis[1].count - row),
                       std::min(blocks.columns, blocks.axis[2].count - column)};
    const int64_t first = unit * c.groups + g;
    return {at,
            g,
            part,
            std::min(parts, part + parts_per_unit),
            c.from + first * c.channels * from_plane,
            c.to + first * c.rows * to_plane};
  }

  // The first output of row i of a block.
  T* row_of(const WorkUnit& p, int64_t i) const {
    const ConvAxis &z = blocks.axis[0], &y = blocks.axis[1], &x = blocks.axis[2];
    const int64_t line = (z.to_first + p.at.depth * z.to_step) * y.to_size + y.to_first + (p.at.row + i) * y.to_step;
    return p.image + line * x.to_size + x.to_first + p.at.column * x.to_step;
  }

  void run_unit(int64_t unit, const T* packed, const T* bias) const {
    const WorkUnit p = unit_at(unit);
    T* scratch = per_thread<CorrelationMemory<T>>().source.get(blocks.scratch(tiles.width));
    if (points) {
      run_points(p, scratch, packed, bias);
    } else {
      run_columns(p, scratch, packed);
    }
  }

  // Outputs that are not neighbours are computed side by side, and then put in their places.
  void run_columns(const WorkUnit& p, T* scratch, const T* packed) const {
    ConvScratch<T>& memory = per_thread<CorrelationMemory<T>>().results;
    const std::vector<ConvColumns>& columns = layouts[p.at.rows < blocks.rows][p.at.columns < blocks.columns];
    const int64_t first_row = part_begin(p.first_part), end_row = part_begin(p.end_part);
    const int64_t n = p.at.rows * p.at.columns, to_row = apart() ? n : to_plane;
    T* results = apart() ? memory.get((end_row - first_row) * n) : row_of(p, 0) + first_row * to_plane;
    for_each_channel_block(p, scratch, packed, [&](int64_t part, int64_t depth, const T* weights, bool first) {
      const int64_t m = part_begin(part);
      const T* start = c.bias && first ? c.bias + p.g * c.rows + m : nullptr;
      tiles.correlate({part_begin(part + 1) - m, weights, depth, offsets.data(), columns.data(),
                       static_cast<int64_t>(columns.size()), scratch, results + (m - first_row) * to_row, to_row, start,
                       !first});
    });
    if (!apart()) return;
    for (int64_t m = first_row; m < end_row; ++m) {
      for (int64_t i = 0; i < p.at.rows; ++i, results += p.at.columns) {
        tiles.spread(row_of(p, i) + m * to_plane, blocks.axis[2].to_step, results, p.at.columns);
      }
    }
  }

  bool apart() const { return blocks.axis[2].to_step != 1; }

  // The columns of a block with that many rows and columns.
  std::vector<ConvColumns> lay_out_columns(int64_t rows, int64_t columns) const {
    std::vector<ConvColumns> layout;
    const bool flat = apart() && blocks.row == columns;  // source and results are one long row
    const int64_t length = flat ? rows * columns : columns, width = tiles.width;
    const int64_t to_row = apart() ? columns : blocks.axis[1].to_step * blocks.axis[2].to_size;
    // Where results are written once, the last vector of a row repeats some of the one before, and is a whole one.
    const int64_t last = blocks.channels >= c.channels && length >= width ? length - width : length;
    for (int64_t i = 0; i < (flat ? 1 : rows); ++i) {
      for (int64_t j = 0; j < length; j += width) {
        const int64_t first = std::min(j, last);
        layout.push_back({i * blocks.row + first, i * to_row + first, std::min(width, length - first)});
      }
    }
    return layout;
  }

  void run_points(const WorkUnit& p, T* scratch, const T* packed, const T* bias) const {
    CorrelationMemory<T>& memory = per_thread<CorrelationMemory<T>>();
    std::vector<const T*>& from = memory.from;
    const int64_t n = p.at.rows * p.at.columns;
    from.resize(static_cast<size_t>(n));
    const T** next = from.data();
    for (int64_t i = 0; i < p.at.rows; ++i) {
      for (int64_t j = 0; j < p.at.columns; ++j) *next++ = scratch + i * blocks.row + j;
    }
    T* results = memory.results.get((p.end_part - p.first_part) * n * lanes);
    for_each_channel_block(p, scratch, packed, [&](int64_t part, int64_t depth, const T* weights, bool first) {
      const T* start = c.bias && first ? bias + p.g * padded_rows() + part * lanes : nullptr;
      tiles.correlate_points({from.data(), n, weights, depth, offsets.data(),
                              results + (part - p.first_part) * n * lanes, lanes, start, !first});
    });
    for (int64_t part = p.first_part; part < p.end_part; ++part, results += n * lanes) {
      const int64_t m = part_begin(part), rows = part_begin(part + 1) - m;
      for (int64_t i = 0; i < p.at.rows; ++i) {
        tiles.deinterleave(row_of(p, i) + m * to_plane, to_plane, blocks.axis[2].to_step,
                           results + i * p.at.columns * lanes, rows, lanes, p.at.columns);
      }
    }
  }

  // f(part, depth, weights, whether this is the first block) for every block of channels and every part of a unit.
  template <class F>
  void for_each_channel_block(const WorkUnit& p, T* scratch, const T* packed, F&& f) const {
    for (int64_t c0 = 0; c0 < c.channels; c0 += blocks.channels) {
      const int64_t n = std::min(blocks.channels, c.channels - c0);
      fill_scratch(scratch, blocks, p.at, p.source + c0 * from_plane, n);
      const T* weights = packed + (p.g * c.channels + c0) * taps * padded_rows();
      for (int64_t part = p.first_part; part < p.end_part; ++part) {
        f(part, n * taps, weights + n * taps * padded_begin(part), c0 == 0);
      }
    }
  }
};

}  // namespace

template <class T>
void run_correlation(Correlation<T>& c) {
  if (c.batch * c.groups * c.rows * c.axis[0].count * c.axis[1].count * c.axis[2].count == 0) return;
  CutCorrelation<T>(c).run();
}

template void run_correlation(Correlation<float>&);
template void run_correlation(Correlation<double>&);

}  // namespace wengert
