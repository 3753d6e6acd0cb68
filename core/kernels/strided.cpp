#include "strided.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "../threads.h"
#include "number.h"

namespace wengert {

namespace {

constexpr int64_t kParallelBytes = int64_t{1} << 18;  // below this, waking workers costs more than the copy
constexpr int64_t kTileBytes = int64_t{1} << 16;
constexpr int64_t kBlock = 32;  // edge of a transposed block: source and destination both fit in L1

// The axes of a copy, without those of size 1, merged where both sides allow it.
struct Axes {
  int n = 0;
  int64_t shape[kMaxRank], dst[kMaxRank], src[kMaxRank];

  void push(int64_t size, int64_t d, int64_t s) {
    if (size == 1) return;
    if (n > 0 && dst[n - 1] == d * size && src[n - 1] == s * size) {
      shape[n - 1] *= size;
      dst[n - 1] = d;
      src[n - 1] = s;
      return;
    }
    shape[n] = size;
    dst[n] = d;
    src[n++] = s;
  }
  void move_last(int axis, int to) {
    std::rotate(shape + axis, shape + axis + 1, shape + to + 1);
    std::rotate(dst + axis, dst + axis + 1, dst + to + 1);
    std::rotate(src + axis, src + axis + 1, src + to + 1);
  }
  int64_t count(int axes) const {
    int64_t c = 1;
    for (int i = 0; i < axes; ++i) c *= shape[i];
    return c;
  }
};

// Order does not matter to a copy, so axes are walked in the order of the destination's memory.
Axes plan(const int64_t* dst, const int64_t* src, int ndim, const int64_t* shape) {
  int order[kMaxRank];
  for (int i = 0; i < ndim; ++i) {
    int at = i;
    for (; at > 0 && std::abs(dst[order[at - 1]]) < std::abs(dst[i]); --at) order[at] = order[at - 1];
    order[at] = i;
  }
  Axes axes;
  for (int i = 0; i < ndim; ++i) axes.push(shape[order[i]], dst[order[i]], src[order[i]]);
  return axes;
}

// A position in the first `n` axes, in row-major order.
struct Cursor {
  const Axes& axes;
  int n;
  int64_t index[kMaxRank];
  int64_t dst = 0, src = 0;

  Cursor(const Axes& a, int dims, int64_t position) : axes(a), n(dims) {
    for (int i = n - 1; i >= 0; --i) {
      index[i] = position % axes.shape[i];
      position /= axes.shape[i];
      dst += index[i] * axes.dst[i];
      src += index[i] * axes.src[i];
    }
  }
  // How many steps there are to the end of the last of these axes, at which the one before moves.
  int64_t run() const { return n == 0 ? 1 : axes.shape[n - 1] - index[n - 1]; }
  void next(int64_t steps = 1) {
    for (int i = n - 1; i >= 0; --i, steps = 1) {
      dst += steps * axes.dst[i];
      src += steps * axes.src[i];
      if ((index[i] += steps) < axes.shape[i]) return;
      dst -= axes.dst[i] * axes.shape[i];
      src -= axes.src[i] * axes.shape[i];
      index[i] = 0;
    }
  }
};

// Assignments go through `.bits`: the compiler vectorises those, but not copies of packed structures.
template <class E>
void fill_row(E* dst, E one, int64_t n) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(E));
  if (n < kLine) {
    for (int64_t i = 0; i < n; ++i) dst[i].bits = one.bits;
    return;
  }
  // Whole lines, the last of which may repeat a part of the one before.
  E line[kLine];
  for (int64_t i = 0; i < kLine; ++i) line[i].bits = one.bits;
  for (int64_t i = 0; i < n - kLine; i += kLine) std::memcpy(dst + i, line, sizeof line);
  std::memcpy(dst + (n - kLine), line, sizeof line);
}

template <class E>
void copy_row(E* dst, int64_t dst_stride, const E* src, int64_t src_stride, int64_t n) {
  if (dst_stride == 1 && src_stride == 1) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(E));
  } else if (dst_stride == 1 && src_stride == 0) {
    fill_row(dst, *src, n);
  } else if (dst_stride == 1 && src_stride == -1) {
    for (int64_t i = 0; i < n; ++i) dst[i].bits = src[-i].bits;
  } else if (dst_stride == 1) {
    for (int64_t i = 0; i < n; ++i) dst[i].bits = src[i * src_stride].bits;
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i * dst_stride].bits = src[i * src_stride].bits;
  }
}

// Rows of so few elements are copied many at a time: a step from one to the next takes longer than its elements.
constexpr int64_t kShort = 8;

template <int N, class E>
void copy_rows_of(E* __restrict dst, int64_t dst_row, int64_t dst_stride, const E* __restrict src, int64_t src_row,
                  int64_t src_stride, int64_t rows) {
  if (dst_stride == 1 && src_stride == 0) {
    for (int64_t r = 0; r < rows; ++r, dst += dst_row, src += src_row)
      for (int j = 0; j < N; ++j) dst[j].bits = src->bits;
  } else {
    for (int64_t r = 0; r < rows; ++r, dst += dst_row, src += src_row)
      for (int j = 0; j < N; ++j) dst[j * dst_stride].bits = src[j * src_stride].bits;
  }
}

template <class E>
void copy_short_rows(E* dst, int64_t dst_row, int64_t dst_stride, const E* src, int64_t src_row, int64_t src_stride,
                     int64_t n, int64_t rows) {
  auto copy = [&]<int N>() { copy_rows_of<N>(dst, dst_row, dst_stride, src, src_row, src_stride, rows); };
  switch (n) {
    case 2: return copy.template operator()<2>();
    case 3: return copy.template operator()<3>();
    case 4: return copy.template operator()<4>();
    case 5: return copy.template operator()<5>();
    case 6: return copy.template operator()<6>();
    case 7: return copy.template operator()<7>();
    case 8: return copy.template operator()<8>();
  }
}

bool is_short(int64_t n) { return 2 <= n && n <= kShort; }

// Tiles are pieces of long rows or groups of short ones.
template <class E>
void copy_rows(E* dst, const E* src, const Axes& axes) {
  const int last = axes.n - 1;
  const int64_t rows = axes.count(last), n = axes.shape[last], row_bytes = n * static_cast<int64_t>(sizeof(E));
  auto copy = [&](int64_t first, int64_t end, int64_t from, int64_t to) {
    const int64_t d = axes.dst[last], s = axes.src[last];
    Cursor at(axes, last, first);
    if (is_short(n) && last > 0) {
      for (int64_t r = first; r < end;) {
        const int64_t count = std::min(end - r, at.run());
        copy_short_rows(dst + at.dst, axes.dst[last - 1], d, src + at.src, axes.src[last - 1], s, n, count);
        at.next(count);
        r += count;
      }
      return;
    }
    for (int64_t r = first; r < end; ++r, at.next()) {
      copy_row(dst + (at.dst + from * d), d, src + (at.src + from * s), s, to - from);
    }
  };
  if (rows * row_bytes < kParallelBytes) return copy(0, rows, 0, n);
  const int64_t pieces = (row_bytes + kTileBytes - 1) / kTileBytes, piece = (n + pieces - 1) / pieces;
  const int64_t group = std::max<int64_t>(1, kTileBytes / row_bytes);
  parallel_for((rows + group - 1) / group * pieces, [&](int64_t tile) {
    const int64_t first = tile / pieces * group, from = tile % pieces * piece;
    copy(first, std::min(rows, first + group), std::min(n, from), std::min(n, from + piece));
  });
}

// Four rows of four 32-bit elements: in registers, which saves a third of the time of a transposed copy.
void transpose_4x4(void* dst, int64_t dst_bytes, const void* src, int64_t src_bytes) {
  typedef uint32_t Row __attribute__((vector_size(16)));
  Row x[4];
  for (int k = 0; k < 4; ++k) std::memcpy(&x[k], static_cast<const char*>(src) + k * src_bytes, sizeof(Row));
  const Row a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5), b = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
  const Row c = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7), d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
  const Row y[4] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
                    __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
  for (int k = 0; k < 4; ++k) std::memcpy(static_cast<char*>(dst) + k * dst_bytes, &y[k], sizeof(Row));
}

// dst[i, j] = src[j, i] for one block. It goes through a padded buffer, because rows a power of two apart
// would evict each other from the cache.
template <class E>
void transpose_block(E* dst, int64_t dst_row, const E* src, int64_t src_row, int64_t rows, int64_t cols) {
  constexpr int64_t kRow = kBlock + 4, kBytes = sizeof(E);
  E block[kBlock][kRow];
  int64_t j = 0;
  if constexpr (kBytes == 4) {
    for (; rows % 4 == 0 && j + 4 <= cols; j += 4)
      for (int64_t i = 0; i < rows; i += 4) {
        transpose_4x4(&block[i][j], kRow * kBytes, src + (j * src_row + i), src_row * kBytes);
      }
  }
  for (; j < cols; ++j)
    for (int64_t i = 0; i < rows; ++i) block[i][j].bits = src[j * src_row + i].bits;
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(static_cast<void*>(dst + i * dst_row), block[i], static_cast<size_t>(cols) * sizeof(E));
  }
}

// The last axis is contiguous in the destination, the one before it in the source.
template <class E>
void copy_transposed(E* dst, const E* src, const Axes& axes) {
  const int outer = axes.n - 2;
  const int64_t rows = axes.shape[outer], cols = axes.shape[outer + 1];
  const int64_t dst_row = axes.dst[outer], src_row = axes.src[outer + 1];
  const int64_t panels = (rows + kBlock - 1) / kBlock, units = axes.count(outer) * panels;
  auto copy = [&](int64_t unit) {
    Cursor at(axes, outer, unit / panels);
    const int64_t i = unit % panels * kBlock;
    for (int64_t j = 0; j < cols; j += kBlock) {
      transpose_block(dst + (at.dst + i * dst_row + j), dst_row, src + (at.src + j * src_row + i), src_row,
                      std::min(kBlock, rows - i), std::min(kBlock, cols - j));
    }
  };
  const int64_t panel_bytes = std::min(rows, kBlock) * cols * static_cast<int64_t>(sizeof(E));
  const int64_t group =
      std::max<int64_t>(1, (units * panel_bytes < kParallelBytes ? kParallelBytes : kTileBytes) / panel_bytes);
  parallel_for((units + group - 1) / group, [&](int64_t tile) {
    for (int64_t u = tile * group; u < std::min(units, (tile + 1) * group); ++u) copy(u);
  });
}

// An axis worth transposing against the last one, or -1.
int transposable(const Axes& axes) {
  const int last = axes.n - 1;
  if (last < 1 || axes.dst[last] != 1 || axes.src[last] == 1 || axes.src[last] == 0 || axes.shape[last] < 8) return -1;
  for (int i = 0; i < last; ++i)
    if (axes.src[i] == 1 && axes.shape[i] >= 8) return i;
  return -1;
}

}  // namespace

void copy_strided(void* dst, const int64_t* dst_strides, const void* src, const int64_t* src_strides, int ndim,
                  const int64_t* shape, int64_t element) {
  for (int i = 0; i < ndim; ++i)
    if (shape[i] == 0) return;
  Axes axes = plan(dst_strides, src_strides, ndim, shape);
  if (axes.n == 0) {
    std::memcpy(dst, src, static_cast<size_t>(element));
    return;
  }
  const int axis = transposable(axes);
  if (axis >= 0) axes.move_last(axis, axes.n - 2);
  with_element(element, [&]<class E>() {
    if (axis >= 0) {
      copy_transposed(static_cast<E*>(dst), static_cast<const E*>(src), axes);
    } else {
      copy_rows(static_cast<E*>(dst), static_cast<const E*>(src), axes);
    }
  });
}

void copy_packed(void* dst, const void* src, const int64_t* src_strides, int ndim, const int64_t* shape,
                 int64_t element) {
  int64_t strides[kMaxRank], stride = 1;
  for (int i = ndim - 1; i >= 0; stride *= shape[i--]) strides[i] = stride;
  copy_strided(dst, strides, src, src_strides, ndim, shape, element);
}

void gather_block(void* dst, const void* src, const int64_t* strides, int ndim, const int64_t* shape, int64_t element,
                  int64_t start, int64_t n) {
  if (n <= 0) return;
  Axes axes;
  for (int i = 0; i < ndim; ++i) axes.push(shape[i], 0, strides[i]);
  if (axes.n == 0) {
    std::memcpy(dst, src, static_cast<size_t>(element));
    return;
  }
  const int last = axes.n - 1;
  const int64_t row = axes.shape[last], stride = axes.src[last];
  with_element(element, [&]<class E>() {
    E* out = static_cast<E*>(dst);
    const E* in = static_cast<const E*>(src);
    Cursor at(axes, last, start / row);
    int64_t skip = start % row;  // the first row may begin in its middle
    for (int64_t left = n; left > 0; at.next(), skip = 0) {
      if (is_short(row) && skip == 0 && last > 0 && left >= row) {
        const int64_t rows = std::min(left / row, at.run());
        copy_short_rows(out, row, 1, in + at.src, axes.src[last - 1], stride, row, rows);
        out += rows * row;
        left -= rows * row;
        at.next(rows - 1);
        continue;
      }
      const int64_t count = std::min(left, row - skip);
      copy_row(out, 1, in + (at.src + skip * stride), stride, count);
      out += count;
      left -= count;
    }
  });
}

void fill(void* dst, const void* one, int64_t element, int64_t n) {
  with_element(element, [&]<class E>() {
    const int64_t tile = n * element < kParallelBytes ? n : kTileBytes / element;
    const E value = *static_cast<const E*>(one);
    parallel_for(n == 0 ? 0 : (n + tile - 1) / tile,
                 [&](int64_t t) { fill_row(static_cast<E*>(dst) + t * tile, value, std::min(tile, n - t * tile)); });
  });
}

}  // namespace wengert
