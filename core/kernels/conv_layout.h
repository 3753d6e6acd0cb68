// How convolution lays out a block of its source, so that the register tiles read whole vectors wherever they look.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "../small_array.h"
#include "conv.h"
#include "conv_tiles.h"

namespace wengert {

// One spatial axis of a correlation: output q is written at to_first + q·to_step, and tap t reads source position
// q·from_step + offset[t]. With a step above 1 the source is split into phases, position modulo step, so that
// neighbouring outputs read neighbouring elements: tap t reads element q + shift[t] of phase number slot[t].
struct ConvAxis {
  int64_t count = 1, to_first = 0, to_step = 1, to_size = 1, from_step = 1, from_size = 1;
  std::vector<int64_t> index;               // of the tap in the kernel
  std::vector<int64_t> offset;              // filled by the maker, then the rest by lay_out()
  std::vector<int64_t> slot, shift, first;  // first[s]: source position of element 0 of phase s, for q = 0
  int64_t reach = 0;                        // the largest shift

  int64_t taps() const { return static_cast<int64_t>(offset.size()); }
  int64_t slots() const { return static_cast<int64_t>(first.size()); }
  void lay_out();
  bool plain() const {  // a copy of the source axis: one tap, one to one
    return taps() == 1 && offset[0] == 0 && from_step == 1 && to_step == 1 && count == from_size && count == to_size;
  }
};

// A correlation cut into blocks: one index of the first axis, `rows` of the second, `columns` of the third, `channels`
// of the source. The offsets of the taps are the same for all blocks.
struct ConvBlocks {
  ConvAxis axis[kMaxSpatial];
  int64_t channels = 1, rows = 1, columns = 1;
  int64_t row = 0, channel = 0;  // elements between rows and between channels in the scratch
  int64_t taps() const { return axis[0].taps() * axis[1].taps() * axis[2].taps(); }
  int64_t scratch(int64_t width) const { return channels * channel + width; }
  int64_t n_rows() const { return (axis[1].count + rows - 1) / rows; }
  int64_t n_columns() const { return (axis[2].count + columns - 1) / columns; }
  std::vector<int64_t> offsets() const;  // of [channels][taps] in the scratch
};

// Blocks of at most `budget` elements of scratch (a single row of one channel may need more).
ConvBlocks cut_blocks(ConvAxis (&axis)[kMaxSpatial], int64_t channels, int64_t budget);

// Where a block begins, and how much of it there is.
struct ConvBlock {
  int64_t depth, row, column;  // first output
  int64_t rows, columns;
};

// One phase of a row of a block's source: elements [low, high) lie inside the source, the first at source[start].
struct ConvPhase {
  int64_t start, low, high;
  ConvPhase() = default;
  ConvPhase(const ConvAxis& x, int64_t column, int64_t phase, int64_t used) {
    const int64_t step = x.from_step;
    start = column * step + x.first[phase];
    low = std::clamp<int64_t>(start >= 0 ? 0 : (-start + step - 1) / step, 0, used);
    const int64_t room = x.from_size - start;
    high = std::clamp<int64_t>(room <= 0 ? 0 : (room + step - 1) / step, low, used);
  }
};

// One phase of a row, for steps above 1.
template <class T>
void fill_phase(T* to, const T* from, const ConvPhase& phase, int64_t step, int64_t used) {
  const auto [start, low, high] = phase;
  std::fill_n(to, low, T(0));
  if (step == 2) {  // known to the compiler, which then reads whole vectors
    for (int64_t j = low; j < high; ++j) to[j] = from[start + j * 2];
  } else {
    for (int64_t j = low; j < high; ++j) to[j] = from[start + j * step];
  }
  std::fill_n(to + high, used - high, T(0));
}

// The rows of one plane of a block's source, for one phase of the rows, with zeros outside.
template <class T>
void fill_plane(T* to, const ConvBlocks& b, const ConvBlock& at, const ConvPhase* phases, int64_t row_phase,
                const T* from) {
  const ConvAxis &y = b.axis[1], &x = b.axis[2];
  const ConvPhase lines(y, at.row, row_phase, at.rows + y.reach);
  const int64_t rows = at.rows + y.reach, used = at.columns + x.reach, length = b.columns + x.reach;
  const T* first = from + (lines.start + lines.low * y.from_step) * x.from_size;
  std::fill_n(to, lines.low * b.row, T(0));
  if (x.from_step == 1) {
    const auto [start, low, high] = phases[0];
    conv_tiles(T{}).fill_rows({to + lines.low * b.row, first + start + low, b.row, y.from_step * x.from_size,
                               lines.high - lines.low, low, high, used});
  } else {
    for (int64_t i = lines.low; i < lines.high; ++i, first += y.from_step * x.from_size) {
      for (int64_t p = 0; p < x.slots(); ++p)
        fill_phase(to + i * b.row + p * length, first, phases[p], x.from_step, used);
    }
  }
  std::fill_n(to + lines.high * b.row, (rows - lines.high) * b.row, T(0));
}

// The source of a block: channels [0, n) of `source`. Filled from front to back, with room for a vector behind it.
template <class T>
void fill_scratch(T* scratch, const ConvBlocks& b, const ConvBlock& at, const T* source, int64_t n) {
  const ConvAxis &z = b.axis[0], &y = b.axis[1], &x = b.axis[2];
  const int64_t row_slot = (b.rows + y.reach) * b.row, source_plane = y.from_size * x.from_size;
  SmallArray<ConvPhase, 8> phases(static_cast<size_t>(x.slots()));
  for (int64_t p = 0; p < x.slots(); ++p) phases[p] = ConvPhase(x, at.column, p, at.columns + x.reach);
  for (int64_t c = 0; c < n; ++c) {
    T* to = scratch + c * b.channel;
    for (int64_t t = 0; t < z.taps(); ++t) {
      const int64_t depth = at.depth * z.from_step + z.offset[t];
      const bool outside = depth < 0 || depth >= z.from_size;
      for (int64_t s = 0; s < y.slots(); ++s, to += row_slot) {
        if (outside) {
          std::fill_n(to, (at.rows + y.reach) * b.row, T(0));
        } else {
          fill_plane(to, b, at, &phases[0], s, source + (c * z.from_size + depth) * source_plane);
        }
      }
    }
  }
}

// Memory of a thread that grows and stays: blocks are small, and fresh pages would cost more than the work on them.
template <class T>
class ConvScratch {
 public:
  T* get(int64_t elements) {
    if (elements > size_) {
      memory_.reset(new (std::align_val_t{64}) T[static_cast<size_t>(elements)]);
      size_ = elements;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<T[], Free> memory_;
  int64_t size_ = 0;
};

}  // namespace wengert
