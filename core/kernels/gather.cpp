#include "gather.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "../threads.h"
#include "number.h"

namespace wengert {

namespace {

constexpr int64_t kTileElements = 16384;

int64_t tiles_of(int64_t units, int64_t group) { return (units + group - 1) / group; }

// Positions of the index grouped by ranges of `width` destinations, in order within a range. Ranges are
// disjoint, so they can be written in parallel and duplicates still meet in order.
struct Buckets {
  int shift;  // width is 2^shift: there is a division per index otherwise
  int64_t width, count;
  std::vector<int64_t> starts, positions;  // no positions if the index ascends: they are in order as they are

  Buckets(const int64_t* index, int64_t n, AxisExtents e)
      : shift(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(1, kTileElements / e.inner))) - 1),
        width(int64_t{1} << shift),
        count(tiles_of(e.size, width)) {
    starts.assign(static_cast<size_t>(count) + 1, 0);
    if (std::is_sorted(index, index + n)) {
      for (int64_t b = 1; b <= count; ++b) starts[b] = std::lower_bound(index, index + n, b * width) - index;
      return;
    }
    for (int64_t p = 0; p < n; ++p) ++starts[(index[p] >> shift) + 1];
    for (int64_t b = 0; b < count; ++b) starts[b + 1] += starts[b];
    positions.resize(static_cast<size_t>(n));
    std::vector<int64_t> next(starts.begin(), starts.end() - 1);
    for (int64_t p = 0; p < n; ++p) positions[next[index[p] >> shift]++] = p;
  }

  template <class F>
  void for_positions(int64_t bucket, F&& f) const {
    const int64_t start = starts[bucket], end = starts[bucket + 1];
    if (positions.empty()) {
      for (int64_t p = start; p < end; ++p) f(p);
    } else {
      for (int64_t k = start; k < end; ++k) f(positions[k]);
    }
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

}  // namespace

void take_slices(void* slices, const void* x, const int64_t* index, int64_t count, AxisExtents e, int64_t element) {
  if (e.outer * count * e.inner == 0) return;
  if (e.inner == 1) {  // a call of memcpy per element would cost more than the element
    with_element(element, [&]<class E>() {
      for_rows(e.outer, count, 1, [&](int64_t r, int64_t o, int64_t p) {
        static_cast<E*>(slices)[r].bits = static_cast<const E*>(x)[o * e.size + index[p]].bits;
      });
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
    buckets.for_positions(b,
                          [&](int64_t p) { std::memcpy(to + index[p] * row_bytes, from + p * row_bytes, row_bytes); });
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
        if (e.inner == 1)
          return buckets.for_positions(b, [&](int64_t p) { add_row(sums + (index[p] - first), from + p, 1); });
        buckets.for_positions(
            b, [&](int64_t p) { add_row(sums + (index[p] - first) * e.inner, from + p * e.inner, e.inner); });
      });
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

}  // namespace wengert
