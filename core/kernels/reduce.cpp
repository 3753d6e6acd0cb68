#include "reduce.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "../threads.h"
#include "strided.h"

namespace wengert {

namespace {

constexpr int64_t kTileElements = 32768;  // of work per tile, so that small reductions stay on one thread
constexpr int64_t kColumnRows = 1024;     // rows per partial result of a column reduction
constexpr int64_t kColumnTile = 512;

using Scratch = std::unique_ptr<char[]>;
Scratch scratch(int64_t bytes) { return std::make_unique_for_overwrite<char[]>(static_cast<size_t>(bytes)); }

int64_t tiles_of(int64_t units, int64_t group) { return (units + group - 1) / group; }

struct Axes {
  int n = 0;
  int64_t shape[kMaxRank], strides[kMaxRank];

  void push(int64_t size, int64_t stride) {
    if (size == 1) return;
    if (n > 0 && strides[n - 1] == size * stride) {
      shape[n - 1] *= size;
      strides[n - 1] = stride;
      return;
    }
    shape[n] = size;
    strides[n++] = stride;
  }
  int64_t count() const {
    int64_t c = 1;
    for (int i = 0; i < n; ++i) c *= shape[i];
    return c;
  }
  int64_t offset(int64_t position) const {
    int64_t o = 0;
    for (int i = n - 1; i >= 0; position /= shape[i--]) o += position % shape[i] * strides[i];
    return o;
  }
};

// An array as a matrix: its kept axes number the rows, its reduced axes the columns.
struct Matrix {
  DType dtype;
  const char* data;
  Axes kept, reduced;
  int64_t rows, cols;

  int64_t element() const { return size_of(dtype); }
  bool rows_contiguous() const { return reduced.n == 0 || (reduced.n == 1 && reduced.strides[0] == 1); }
  bool columns_contiguous() const { return kept.n > 0 && kept.strides[kept.n - 1] == 1 && reduced.n == 1; }
};

Matrix as_matrix(const Value* x, uint32_t mask) {
  Matrix m{x->dtype, x->data, {}, {}, 0, 0};
  int order[kMaxRank], n = 0;
  for (int i = 0; i < x->ndim; ++i) {
    if (!(mask >> i & 1)) {
      m.kept.push(x->shape[i], x->strides[i]);
      continue;
    }
    // Reduced axes are taken in the order of memory, so that more of them merge.
    int at = n++;
    for (; at > 0 && std::abs(x->strides[order[at - 1]]) < std::abs(x->strides[i]); --at) order[at] = order[at - 1];
    order[at] = i;
  }
  for (int i = 0; i < n; ++i) m.reduced.push(x->shape[order[i]], x->strides[order[i]]);
  m.rows = m.kept.count();
  m.cols = m.reduced.count();
  return m;
}

// Packs elements [start, start + n) of the matrix in row-major order.
void gather(const Matrix& m, void* dst, int64_t start, int64_t n) {
  Axes all;
  for (int i = 0; i < m.kept.n; ++i) all.push(m.kept.shape[i], m.kept.strides[i]);
  for (int i = 0; i < m.reduced.n; ++i) all.push(m.reduced.shape[i], m.reduced.strides[i]);
  gather_block(dst, m.data, all.strides, all.n, all.shape, m.element(), start, n);
}

// Calls f(data, first, count, row_stride) for runs of rows that lie at a constant stride with contiguous
// columns, packing them where the array itself has none. Rows are at most kReduceChunk long where they must
// be packed.
template <class F>
void for_row_runs(const Matrix& m, int64_t first, int64_t end, F&& f) {
  if (!m.rows_contiguous()) {
    const int64_t group = std::max<int64_t>(1, kReduceChunk / m.cols);
    Scratch packed = scratch(std::min(group, end - first) * m.cols * m.element());
    for (int64_t r = first; r < end; r += group) {
      const int64_t count = std::min(group, end - r);
      gather(m, packed.get(), r * m.cols, count * m.cols);
      f(packed.get(), r, count, m.cols);
    }
    return;
  }
  const int last = m.kept.n - 1;
  const int64_t run = m.kept.n ? m.kept.shape[last] : 1, stride = m.kept.n ? m.kept.strides[last] : 0;
  for (int64_t r = first; r < end;) {
    const int64_t count = std::min(end - r, run - r % run);
    f(m.data + m.kept.offset(r) * m.element(), r, count, stride);
    r += count;
  }
}

// The dtype that partial results are kept in: sums and products of half types round once, at the end.
DType partial_dtype(Reduction reduction, DType dtype) {
  const bool widens = is_half(dtype) && (reduction == Reduction::sum || reduction == Reduction::prod);
  return widens ? DType::Float32 : dtype;
}

RowReduceFn row_kernel(Reduction r, DType d) { return kernels().row_reduce[static_cast<int>(r)][static_cast<int>(d)]; }
ColReduceFn col_kernel(Reduction r, DType d) { return kernels().col_reduce[static_cast<int>(r)][static_cast<int>(d)]; }
CastFn cast_kernel(DType from, DType to) { return kernels().cast[static_cast<int>(from)][static_cast<int>(to)]; }

void reduce_short_rows(Reduction reduction, const Matrix& m, char* y) {
  const RowReduceFn kernel = row_kernel(reduction, m.dtype);
  const int64_t group = std::max<int64_t>(1, kTileElements / m.cols);
  parallel_for(tiles_of(m.rows, group), [&](int64_t tile) {
    for_row_runs(m, tile * group, std::min(m.rows, (tile + 1) * group),
                 [&](const char* data, int64_t first, int64_t count, int64_t stride) {
                   kernel(y + first * m.element(), data, count, m.cols, stride);
                 });
  });
}

void reduce_long_rows(Reduction reduction, const Matrix& m, char* y) {
  const DType partial = partial_dtype(reduction, m.dtype);
  const int64_t chunks = tiles_of(m.cols, kReduceChunk), width = size_of(partial);
  const RowReduceFn kernel = row_kernel(reduction, partial);
  Scratch partials = scratch(m.rows * chunks * width);
  parallel_for(m.rows * chunks, [&](int64_t unit) {
    const int64_t row = unit / chunks, from = unit % chunks * kReduceChunk;
    const int64_t n = std::min(kReduceChunk, m.cols - from);
    const char* data = m.data + (m.kept.offset(row) + from) * m.element();
    Scratch packed, widened;
    if (!m.rows_contiguous()) {
      packed = scratch(n * m.element());
      gather(m, packed.get(), row * m.cols + from, n);
      data = packed.get();
    }
    if (partial != m.dtype) {
      widened = scratch(n * width);
      cast_kernel(m.dtype, partial)(widened.get(), data, n);
      data = widened.get();
    }
    kernel(partials.get() + unit * width, data, 1, n, n);
  });
  if (partial == m.dtype) return kernel(y, partials.get(), m.rows, chunks, chunks);
  Scratch results = scratch(m.rows * width);
  kernel(results.get(), partials.get(), m.rows, chunks, chunks);
  cast_kernel(partial, m.dtype)(y, results.get(), m.rows);
}

// One tile of columns over one range of rows, its elements converted to the dtype of the partial results.
void reduce_widened_columns(Reduction reduction, const Matrix& m, DType partial, char* y, const char* data,
                            int64_t rows, int64_t cols) {
  const int64_t width = size_of(partial);
  Scratch widened = scratch(rows * cols * width);
  for (int64_t r = 0; r < rows; ++r) {
    cast_kernel(m.dtype, partial)(widened.get() + r * cols * width, data + r * m.reduced.strides[0] * m.element(),
                                  cols);
  }
  col_kernel(reduction, partial)(y, widened.get(), rows, cols, cols);
}

void reduce_columns(Reduction reduction, const Matrix& m, char* y) {
  const int64_t cols = m.kept.shape[m.kept.n - 1], outer = m.rows / cols;
  const int64_t chunks = tiles_of(m.cols, kColumnRows), stride = m.reduced.strides[0];
  const DType partial = chunks > 1 ? partial_dtype(reduction, m.dtype) : m.dtype;
  const bool widens = partial != m.dtype;
  const int64_t width = size_of(partial);
  Scratch partials = chunks > 1 ? scratch(outer * chunks * cols * width) : nullptr;
  char* results = chunks > 1 ? partials.get() : y;
  const int64_t tile_cols = widens ? 32 : kColumnTile, pieces = tiles_of(cols, tile_cols);
  const int64_t unit_work = std::min(m.cols, kColumnRows) * std::min(cols, tile_cols);
  const int64_t units = outer * chunks * pieces, group = std::max<int64_t>(1, kTileElements / unit_work);
  parallel_for(tiles_of(units, group), [&](int64_t tile) {
    for (int64_t u = tile * group; u < std::min(units, (tile + 1) * group); ++u) {
      const int64_t o = u / pieces / chunks, chunk = u / pieces % chunks, from = u % pieces * tile_cols;
      const int64_t n = std::min(tile_cols, cols - from), row = chunk * kColumnRows;
      const int64_t rows = std::min(kColumnRows, m.cols - row);
      const char* data = m.data + (m.kept.offset(o * cols + from) + row * stride) * m.element();
      char* out = results + (u / pieces * cols + from) * width;
      if (widens) {
        reduce_widened_columns(reduction, m, partial, out, data, rows, n);
      } else {
        col_kernel(reduction, m.dtype)(out, data, rows, n, stride);
      }
    }
  });
  if (chunks == 1) return;
  Scratch wide = widens ? scratch(m.rows * width) : nullptr;
  char* combined = widens ? wide.get() : y;
  for (int64_t o = 0; o < outer; ++o) {
    col_kernel(reduction, partial)(combined + o * cols * width, partials.get() + o * chunks * cols * width, chunks,
                                   cols, cols);
  }
  if (widens) cast_kernel(partial, m.dtype)(y, combined, m.rows);
}

void fill_identity(Reduction reduction, DType dtype, int64_t n, char* y) {
  alignas(16) char one[16];
  set_scalar_int(dtype, one, reduction == Reduction::prod || reduction == Reduction::all);
  fill(y, one, size_of(dtype), n);
}

// Positions within chunks, then the position of the best chunk. The candidates' values decide through the
// same kernel, so that ties and NaNs are settled as in one call.
void arg_reduce_long(ArgReduceFn kernel, const Matrix& m, int64_t* y) {
  const int64_t chunks = tiles_of(m.cols, kReduceChunk), element = m.element();
  auto positions = std::make_unique_for_overwrite<int64_t[]>(static_cast<size_t>(m.rows * chunks));
  Scratch candidates = scratch(m.rows * chunks * element);
  parallel_for(m.rows * chunks, [&](int64_t unit) {
    const int64_t row = unit / chunks, from = unit % chunks * kReduceChunk;
    const int64_t n = std::min(kReduceChunk, m.cols - from);
    const char* data = m.data + (m.kept.offset(row) + from) * element;
    Scratch packed;
    if (!m.rows_contiguous()) {
      packed = scratch(n * element);
      gather(m, packed.get(), row * m.cols + from, n);
      data = packed.get();
    }
    kernel(&positions[unit], data, 1, n, n);
    std::memcpy(candidates.get() + unit * element, data + positions[unit] * element, static_cast<size_t>(element));
    positions[unit] += from;
  });
  kernel(y, candidates.get(), m.rows, chunks, chunks);
  for (int64_t r = 0; r < m.rows; ++r) y[r] = positions[r * chunks + y[r]];
}

}  // namespace

void reduce(Reduction reduction, const Value* x, uint32_t mask, void* y) {
  const Matrix m = as_matrix(x, mask);
  char* out = static_cast<char*>(y);
  if (m.rows == 0) return;
  if (m.cols == 0) return fill_identity(reduction, m.dtype, m.rows, out);
  if (!m.rows_contiguous() && m.columns_contiguous()) return reduce_columns(reduction, m, out);
  if (m.cols <= kReduceChunk) return reduce_short_rows(reduction, m, out);
  reduce_long_rows(reduction, m, out);
}

void arg_reduce(bool largest, const Value* x, int axis, int64_t* y) {
  const Matrix m = as_matrix(x, 1u << axis);
  const ArgReduceFn kernel = (largest ? kernels().argmax : kernels().argmin)[static_cast<int>(m.dtype)];
  if (m.rows == 0) return;
  if (m.cols > kReduceChunk) return arg_reduce_long(kernel, m, y);
  const int64_t group = std::max<int64_t>(1, kTileElements / m.cols);
  parallel_for(tiles_of(m.rows, group), [&](int64_t tile) {
    for_row_runs(m, tile * group, std::min(m.rows, (tile + 1) * group),
                 [&](const char* data, int64_t first, int64_t count, int64_t stride) {
                   kernel(y + first, data, count, m.cols, stride);
                 });
  });
}

}  // namespace wengert
