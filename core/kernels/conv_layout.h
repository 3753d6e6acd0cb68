// How convolution lays out a block of its source, so that the register tiles read whole vectors wherever they look.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "../small_array.h"
#include "conv.h"

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

// The source of a block: channels [0, n) of `source`, with zeros outside.
template <class T>
void fill_scratch(T* scratch, const ConvBlocks& b, const ConvBlock& at, const T* source, int64_t n) {
  const ConvAxis &z = b.axis[0], &y = b.axis[1], &x = b.axis[2];
  const int64_t row_slot = (b.rows + y.reach) * b.row, plane = y.slots() * row_slot, length = b.columns + x.reach;
  const int64_t source_plane = y.from_size * x.from_size, used = at.columns + x.reach, step = x.from_step;
  SmallArray<ConvPhase, 8> phases(static_cast<size_t>(x.slots()));
  for (int64_t p = 0; p < x.slots(); ++p) phases[p] = ConvPhase(x, at.column, p, used);
  for (int64_t c = 0; c < n; ++c) {
    for (int64_t t = 0; t < z.taps(); ++t) {
      T* to_plane = scratch + c * b.channel + t * plane;
      const int64_t depth = at.depth * z.from_step + z.offset[t];
      const bool outside = depth < 0 || depth >= z.from_size;
      const T* from_plane = source + (c * z.from_size + depth) * source_plane;
      for (int64_t s = 0; s < y.slots(); ++s) {
        for (int64_t i = 0; i < at.rows + y.reach; ++i) {
          T* to = to_plane + s * row_slot + i * b.row;
          const int64_t line = (at.row + i) * y.from_step + y.first[s];
          if (outside || line < 0 || line >= y.from_size) {
            std::memset(to, 0, static_cast<size_t>(b.row) * sizeof(T));
            continue;
          }
          const T* from = from_plane + line * x.from_size;
          for (int64_t p = 0; p < x.slots(); ++p, to += length) {
            const auto [start, low, high] = phases[p];
            std::fill_n(to, low, T(0));
            if (step == 1) {
              std::copy_n(from + start + low, high - low, to + low);
            } else if (step == 2) {  // known to the compiler, which then reads whole vectors
              for (int64_t j = low; j < high; ++j) to[j] = from[start + j * 2];
            } else {
              for (int64_t j = low; j < high; ++j) to[j] = from[start + j * step];
            }
            std::fill_n(to + high, used - high, T(0));
          }
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
