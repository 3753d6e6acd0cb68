#include "gather.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "../threads.h"
#include "number.h"
#include "strided.h"
#include "vector.h"

namespace wengert {

namespace {

constexpr int64_t kTileElements = 16384;

int64_t tiles_of(int64_t units, int64_t group) { return (units + group - 1) / group; }

// Positions of the index grouped by ranges of `width` destinations, in order within a range. Ranges are
// disjoint, so they can be written in parallel and duplicates still meet in order.
struct Buckets {
  int shift;  // width is 2^shift: there is a division per index otherwise
  int64_t width, count;
  std::vector<int64_t> starts, positions;

  Buckets(const int64_t* index, int64_t n, AxisExtents e)
      : shift(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(1, kTileElements / e.inner))) - 1),
        width(int64_t{1} << shift),
        count(tiles_of(e.size, width)) {
    starts.assign(static_cast<size_t>(count) + 1, 0);
    for (int64_t p = 0; p < n; ++p) ++starts[(index[p] >> shift) + 1];
    for (int64_t b = 0; b < count; ++b) starts[b + 1] += starts[b];
    positions.resize(static_cast<size_t>(n));
    std::vector<int64_t> next(starts.begin(), starts.end() - 1);
    for (int64_t p = 0; p < n; ++p) positions[next[index[p] >> shift]++] = p;
  }
};

// Calls f(row, outer, position) for rows of an outer × count array, in parallel. No division per row: rows
// may be single elements.
template <class F>
void for_rows(int64_t outer, int64_t count, int64_t inner, F&& f) {
  const int64_t rows = outer * count, group = std::max<int64_t>(1, kTileElements / inner);
  parallel_for(tiles_of(rows, group), [&](int64_t tile) {
    const int64_t first = tile * group, end = std::min(rows, first + group);
    for (int64_t r = first, o = first / count, p = first % count; r < end; ++r) {
      f(r, o, p);
      if (++p == count) {
        p = 0;
        ++o;
      }
    }
  });
}

template <class S, class T>
void add_row(S* sums, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] = Number<S>::narrow(Number<S>::widen(sums[i]) + Number<T>::widen(x[i]));
}

// Calls f(sums) on zeroed accumulators for the n elements of x, which then receives the sums. Half types
// accumulate in float and round once.
template <class T, class F>
void accumulate(T* x, int64_t n, F&& f) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>) {
    std::vector<float> sums(static_cast<size_t>(n), 0.0f);
    f(sums.data());
    for (int64_t i = 0; i < n; ++i) x[i] = Number<T>::narrow(sums[i]);
  } else {
    std::memset(static_cast<void*>(x), 0, static_cast<size_t>(n) * sizeof(T));
    f(x);
  }
}

template <class S, class T>
void add_block(S* sums, const int64_t* strides, const T* x, const int64_t* x_strides, int ndim, const int64_t* shape) {
  if (ndim == 0) return add_row(sums, x, 1);
  for (int64_t i = 0; i < shape[0]; ++i) {
    add_block(sums + i * strides[0], strides + 1, x + i * x_strides[0], x_strides + 1, ndim - 1, shape + 1);
  }
}

// Whether the positions of different entries of the first axis are all different.
bool first_axis_disjoint(const int64_t* strides, int ndim, const int64_t* shape) {
  int64_t span = 0;
  for (int i = 1; i < ndim; ++i) span += std::abs(strides[i]) * (shape[i] - 1);
  return ndim > 0 && std::abs(strides[0]) > span;
}

// The inner extent is cut so that one tile's destinations stay in cache. fn(outer, from, to) per tile.
template <class F>
void for_inner_tiles(AxisExtents e, int64_t count, F&& fn) {
  const int64_t width = std::clamp<int64_t>(kTileElements / std::max<int64_t>(1, e.size), 1, 64);
  const int64_t pieces = tiles_of(e.inner, width), units = e.outer * pieces;
  const int64_t group = std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, std::max(count, e.size) * width));
  parallel_for(tiles_of(units, group), [&](int64_t tile) {
    for (int64_t u = tile * group; u < std::min(units, (tile + 1) * group); ++u) {
      const int64_t from = u % pieces * width;
      fn(u / pieces, from, std::min(e.inner, from + width));
    }
  });
}

}  // namespace

Packed::Packed(const Value* v) : data_(v->data) {
  if (v->contiguous) return;
  copy_ = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(v->bytes()));
  copy_packed(copy_.get(), v->data, v->strides, v->ndim, v->shape, size_of(v->dtype));
  data_ = copy_.get();
}

Indices::Indices(const char* op, const Value* index, int axis, int64_t size)
    : packed_(index), data_(reinterpret_cast<const int64_t*>(packed_.data())) {
  int64_t low = 0, high = -1;  // found without branches; who it was is asked for only if there is somebody
  for (int64_t p = 0; p < index->size; ++p) {
    low = std::min(low, data_[p]);
    high = std::max(high, data_[p]);
  }
  if (low < -size || high >= size) {
    const int64_t* bad = std::find_if(data_, data_ + index->size, [&](int64_t i) { return i < -size || i >= size; });
    fail(ErrorKind::index, op,
         "index " + std::to_string(*bad) + " is out of range for axis " + std::to_string(axis) + " with size " +
             std::to_string(size));
  }
  if (low >= 0) return;
  wrapped_.assign(data_, data_ + index->size);
  for (int64_t& i : wrapped_) i += i < 0 ? size : 0;
  data_ = wrapped_.data();
}

AxisExtents around_axis(const int64_t* shape, int ndim, int axis) {
  AxisExtents e{1, shape[axis], 1};
  for (int i = 0; i < axis; ++i) e.outer *= shape[i];
  for (int i = axis + 1; i < ndim; ++i) e.inner *= shape[i];
  return e;
}

void take_slices(void* slices, const void* x, const int64_t* index, int64_t count, AxisExtents e, int64_t element) {
  if (e.outer * count * e.inner == 0) return;
  if (e.inner == 1) {  // a call of memcpy per element would cost more than the element
    with_element(element, [&]<class E>() {
      auto* to = static_cast<E*>(slices);
      const auto* from = static_cast<const E*>(x);
      if (e.outer == 1) {
        parallel_for(tiles_of(count, kTileElements), [&](int64_t tile) {
          const int64_t end = std::min(count, (tile + 1) * kTileElements);
          for (int64_t p = tile * kTileElements; p < end; ++p) to[p] = from[index[p]];
        });
        return;
      }
      for_rows(e.outer, count, 1, [&](int64_t r, int64_t o, int64_t p) { to[r] = from[o * e.size + index[p]]; });
    });
    return;
  }
  const int64_t row_bytes = e.inner * element;
  for_rows(e.outer, count, e.inner, [&](int64_t r, int64_t o, int64_t p) {
    std::memcpy(static_cast<char*>(slices) + r * row_bytes,
                static_cast<const char*>(x) + (o * e.size + index[p]) * row_bytes, static_cast<size_t>(row_bytes));
  });
}

void put_slices(void* x, const void* slices, const int64_t* index, int64_t count, AxisExtents e, int64_t element) {
  if (e.outer * count * e.inner == 0) return;
  const Buckets buckets(index, count, e);
  const size_t row_bytes = static_cast<size_t>(e.inner * element);
  parallel_for(e.outer * buckets.count, [&](int64_t tile) {
    const int64_t o = tile / buckets.count, b = tile % buckets.count;
    char* to = static_cast<char*>(x) + o * e.size * e.inner * element;
    const char* from = static_cast<const char*>(slices) + o * count * e.inner * element;
    for (int64_t k = buckets.starts[b]; k < buckets.starts[b + 1]; ++k) {
      const int64_t p = buckets.positions[k];
      std::memcpy(to + index[p] * row_bytes, from + p * row_bytes, row_bytes);
    }
  });
}

namespace {

// Where all destinations are one bucket.
void add_few_slices(DType dtype, void* x, const void* slices, const int64_t* index, int64_t count, AxisExtents e) {
  with_number(dtype, [&]<class T>() {
    parallel_for(e.outer, [&](int64_t o) {
      const T* from = static_cast<const T*>(slices) + o * count * e.inner;
      accumulate(static_cast<T*>(x) + o * e.size * e.inner, e.size * e.inner, [&](auto* sums) {
        for (int64_t p = 0; p < count; ++p) add_row(sums + index[p] * e.inner, from + p * e.inner, e.inner);
      });
    });
  });
}

}  // namespace

void add_slices(DType dtype, void* x, const void* slices, const int64_t* index, int64_t count, AxisExtents e) {
  if (e.outer * e.size * e.inner == 0) return;
  if (e.size * e.inner <= kTileElements) return add_few_slices(dtype, x, slices, index, count, e);
  const Buckets buckets(index, count, e);
  with_number(dtype, [&]<class T>() {
    parallel_for(e.outer * buckets.count, [&](int64_t tile) {
      const int64_t o = tile / buckets.count, b = tile % buckets.count;
      const int64_t first = b * buckets.width, rows = std::min(buckets.width, e.size - first);
      const T* from = static_cast<const T*>(slices) + o * count * e.inner;
      accumulate(static_cast<T*>(x) + (o * e.size + first) * e.inner, rows * e.inner, [&](auto* sums) {
        for (int64_t k = buckets.starts[b]; k < buckets.starts[b + 1]; ++k) {
          const int64_t p = buckets.positions[k];
          add_row(sums + (index[p] - first) * e.inner, from + p * e.inner, e.inner);
        }
      });
    });
  });
}

void take_along(void* elements, const void* x, const int64_t* index, int64_t count, AxisExtents e, int64_t element) {
  if (e.outer * count * e.inner == 0) return;
  with_element(element, [&]<class E>() {
    for_rows(e.outer, count, e.inner, [&](int64_t r, int64_t o, int64_t) {
      const E* from = static_cast<const E*>(x) + o * e.size * e.inner;
      const int64_t* at = index + r * e.inner;
      E* to = static_cast<E*>(elements) + r * e.inner;
      for (int64_t i = 0; i < e.inner; ++i) to[i] = from[at[i] * e.inner + i];
    });
  });
}

void put_along(void* x, const void* elements, const int64_t* index, int64_t count, AxisExtents e, int64_t element) {
  if (e.outer * count * e.inner == 0) return;
  with_element(element, [&]<class E>() {
    for_inner_tiles(e, count, [&](int64_t o, int64_t from, int64_t to) {
      E* out = static_cast<E*>(x) + o * e.size * e.inner;
      for (int64_t j = o * count; j < (o + 1) * count; ++j) {
        const E* in = static_cast<const E*>(elements) + j * e.inner;
        for (int64_t i = from; i < to; ++i) out[index[j * e.inner + i] * e.inner + i] = in[i];
      }
    });
  });
}

void add_along(DType dtype, void* x, const void* elements, const int64_t* index, int64_t count, AxisExtents e) {
  if (e.outer * e.size * e.inner == 0) return;
  with_number(dtype, [&]<class T>() {
    using N = Number<T>;
    for_inner_tiles(e, count, [&](int64_t o, int64_t from, int64_t to) {
      const int64_t width = to - from;
      std::vector<typename N::Wide> sums(static_cast<size_t>(e.size * width));
      for (int64_t j = o * count; j < (o + 1) * count; ++j) {
        const T* in = static_cast<const T*>(elements) + j * e.inner;
        for (int64_t i = from; i < to; ++i) sums[index[j * e.inner + i] * width + i - from] += N::widen(in[i]);
      }
      T* out = static_cast<T*>(x) + o * e.size * e.inner + from;
      for (int64_t s = 0; s < e.size; ++s)
        for (int64_t i = 0; i < width; ++i) out[s * e.inner + i] = N::narrow(sums[s * width + i]);
    });
  });
}

void add_strided(DType dtype, void* y, int64_t y_size, const int64_t* strides, int64_t offset, const Value* x) {
  const int ndim = x->ndim;
  const bool parallel = x->size > kTileElements && first_axis_disjoint(strides, ndim, x->shape);
  const int64_t entry = parallel ? x->size / x->shape[0] : x->size;
  const int64_t group = parallel ? std::max<int64_t>(1, kTileElements / entry) : 1;
  with_number(dtype, [&]<class T>() {
    accumulate(static_cast<T*>(y), y_size, [&](auto* sums) {
      const T* in = reinterpret_cast<const T*>(x->data);
      if (x->size == 0) return;
      if (!parallel) return add_block(sums + offset, strides, in, x->strides, ndim, x->shape);
      parallel_for(tiles_of(x->shape[0], group), [&](int64_t tile) {
        for (int64_t i = tile * group; i < std::min(x->shape[0], (tile + 1) * group); ++i) {
          add_block(sums + (offset + i * strides[0]), strides + 1, in + i * x->strides[0], x->strides + 1, ndim - 1,
                    x->shape + 1);
        }
      });
    });
  });
}

void mark_last(bool* last, const int64_t* index, int64_t count, int64_t size) {
  std::vector<bool> seen(static_cast<size_t>(size));
  for (int64_t p = count - 1; p >= 0; --p) {
    last[p] = !seen[index[p]];
    seen[index[p]] = true;
  }
}

Value* nonzero_indices(const Value* x) {
  const Packed packed(x);
  auto set = std::make_unique_for_overwrite<bool[]>(static_cast<size_t>(x->size));
  kernels().cast[static_cast<int>(x->dtype)][static_cast<int>(DType::Bool)](set.get(), packed.data(), x->size);
  const int64_t n = std::count(set.get(), set.get() + x->size, true);
  Value* y = empty(DType::Int64, {Dim(n), Dim(x->ndim)});
  int64_t* row = reinterpret_cast<int64_t*>(y->data);
  if (n == 0) return y;
  const int last = x->ndim - 1;
  const int64_t size = x->ndim == 0 ? 1 : x->shape[last];
  int64_t at[kMaxRank] = {};
  for (const bool* line = set.get(); line < set.get() + x->size; line += size) {
    for (int64_t k = 0; k < size; ++k) {
      if (!line[k]) continue;
      for (int i = 0; i < last; ++i) row[i] = at[i];
      if (last >= 0) row[last] = k;
      row += x->ndim;
    }
    for (int i = last - 1; i >= 0 && ++at[i] == x->shape[i]; --i) at[i] = 0;
  }
  return y;
}

}  // namespace wengert
