// Reductions of rows and of columns. The order of the operations depends on the shape alone: never on
// threads, strides or the width of the machine's vectors.
#pragma once
#include <cstring>

#include "vector.h"
#include "vector_op_reductions.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// Thirty-two bytes of lanes on every instruction set; narrower machines split them.
template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(32)));
  static constexpr int64_t kLanes = 32 / sizeof(T);
};

// Rows
// -----------------------------------------------------------------------------------------------------------

inline constexpr int64_t kReduceBlock = 1024;

template <class V, class T>
WENGERT_INLINE void load(V& v, const T* x) {
  std::memcpy(&v, x, sizeof(v));
}

// What changes nothing, to the last bit: 0 + (−0) is 0, but −0 + x is x.
template <class Op, class T>
constexpr T neutral() {
  if constexpr (std::is_same_v<Op, reduction::sum> && Float<T>) return -T{0};
  return Op::template identity<T>();
}

// One block, 1 <= n: few elements one after the other, more in lanes, many in eight vectors of lanes. The vectors are
// independent of each other up to the end, where the last one is filled up with what changes nothing.
template <class Op, class T>
WENGERT_INLINE T reduce_block(const T* x, int64_t n) {
  using V = typename VectorOf<T>::type;
  constexpr int64_t kLanes = VectorOf<T>::kLanes, kVectors = 8;
  T y = x[0];
  if (n < 2 * kLanes) {
    for (int64_t i = 1; i < n; ++i) y = Op::apply(y, x[i]);
    return y;
  }
  V w[kVectors], v;
  const V nothing = V{} + neutral<Op, T>();
#pragma GCC unroll 8  // so that the accumulators are registers
  for (int64_t k = 0; k < kVectors; ++k) w[k] = nothing;
  int64_t i = 0;
  for (; i + kVectors * kLanes <= n; i += kVectors * kLanes) {
#pragma GCC unroll 8
    for (int64_t k = 0; k < kVectors; ++k) {
      load(v, x + i + k * kLanes);
      Op::vector(w[k], v);
    }
  }
#pragma GCC unroll 8
  for (int64_t k = 0; k < kVectors; ++k) {
    if (i + kLanes <= n) {
      load(v, x + i);
      Op::vector(w[k], v);
      i += kLanes;
    }
  }
  v = nothing;
  if (i < n) std::memcpy(&v, x + i, static_cast<size_t>(n - i) * sizeof(T));
  Op::vector(w[7], v);
#pragma GCC unroll 4
  for (int64_t k = 0; k < kVectors; k += 2) Op::vector(w[k], w[k + 1]);
  Op::vector(w[0], w[2]);
  Op::vector(w[4], w[6]);
  Op::vector(w[0], w[4]);
  T lanes[kLanes];
  std::memcpy(lanes, &w[0], sizeof(v));
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t k = 0; k < width; ++k) lanes[k] = Op::apply(lanes[k], lanes[k + width]);
  }
  return lanes[0];
}

// Products of complex numbers in four interleaved chains.
template <class Op, ComplexNumber T>
WENGERT_INLINE T reduce_block(const T* x, int64_t n) {
  T y = x[0];
  int64_t i = 1;
  if (n >= 8) {
    T a = x[0], b = x[1], c = x[2], d = x[3];
    for (i = 4; i + 4 <= n; i += 4) {
      a = Op::apply(a, x[i]);
      b = Op::apply(b, x[i + 1]);
      c = Op::apply(c, x[i + 2]);
      d = Op::apply(d, x[i + 3]);
    }
    y = Op::apply(Op::apply(a, b), Op::apply(c, d));
  }
  for (; i < n; ++i) y = Op::apply(y, x[i]);
  return y;
}

// Sums of complex numbers are two sums of real ones, in lanes of both.
template <class Op, ComplexNumber T>
  requires std::is_same_v<Op, reduction::sum>
WENGERT_INLINE T reduce_block(const T* x, int64_t n) {
  using Part = decltype(T::re);
  using V = typename VectorOf<Part>::type;
  constexpr int64_t kLanes = VectorOf<Part>::kLanes, kVectors = 4, kStep = kVectors * kLanes / 2;
  T y = x[0];
  int64_t i = 1;
  if (n >= kStep) {
    const Part* parts = &x->re;
    V w[kVectors], v;
#pragma GCC unroll 4  // so that the accumulators are registers
    for (int64_t k = 0; k < kVectors; ++k) load(w[k], parts + k * kLanes);
    for (i = kStep; i + kStep <= n; i += kStep) {
#pragma GCC unroll 4
      for (int64_t k = 0; k < kVectors; ++k) {
        load(v, parts + 2 * i + k * kLanes);
        w[k] += v;
      }
    }
    v = (w[0] + w[1]) + (w[2] + w[3]);
    Part lanes[kLanes];
    std::memcpy(lanes, &v, sizeof(v));
    for (int64_t width = kLanes / 2; width > 1; width /= 2) {
      for (int64_t k = 0; k < width; ++k) lanes[k] += lanes[k + width];
    }
    y = {lanes[0], lanes[1]};
  }
  for (; i < n; ++i) y = Op::apply(y, x[i]);
  return y;
}

// 1 <= n <= kReduceBlock.
template <class Op, class S>
WENGERT_INLINE Accumulator<Op, S> reduce_short(const S* x, int64_t n) {
  using A = Accumulator<Op, S>;
  if constexpr (HalfNumber<S>) {
    if (n < 1) __builtin_unreachable();  // for the compiler: the buffer is not read unset
    float buffer[kReduceBlock];
    widen(buffer, x, n);
    return reduce_block<Op>(static_cast<const float*>(buffer), n);
  } else {
    return reduce_block<Op>(reinterpret_cast<const A*>(x), n);  // A is S or its unsigned twin
  }
}

// Blocks are combined pairwise, so that rounding errors grow with the logarithm of the length.
template <class Op, class S>
[[gnu::noinline]] Accumulator<Op, S> reduce_long(const S* x, int64_t n) {
  if (n <= kReduceBlock) return reduce_short<Op, S>(x, n);
  const int64_t blocks = (n + kReduceBlock - 1) / kReduceBlock, half = (blocks + 1) / 2 * kReduceBlock;
  return Op::apply(reduce_long<Op, S>(x, half), reduce_long<Op, S>(x + half, n - half));
}

template <class Op, class S>
WENGERT_INLINE Accumulator<Op, S> reduce_row(const S* x, int64_t n) {
  return n <= kReduceBlock ? reduce_short<Op, S>(x, n) : reduce_long<Op, S>(x, n);
}

template <class Op, class S>
void row_reduce(void* out, const void* in, int64_t rows, int64_t cols, int64_t row_stride) {
  using A = Accumulator<Op, S>;
  auto* y = static_cast<S*>(out);
  const auto* x = static_cast<const S*>(in);
  for (int64_t r = 0; r < rows; ++r, x += row_stride) {
    y[r] = store_as<S>(cols == 0 ? Op::template identity<A>() : reduce_row<Op, S>(x, cols));
  }
}

// Columns
// --------------------------------------------------------------------------------------------------------

// A tile of columns is reduced over blocks of 64 rows, these over groups of 64 blocks, and the groups in
// order: the accumulators stay in the first-level cache, and rounding errors grow slowly.
inline constexpr int64_t kRowsPerBlock = 64;
inline constexpr int64_t kRowsPerGroup = 64 * kRowsPerBlock;
inline constexpr int64_t kTileBytes = 2048;

// Narrow matrices (the gradient of a bias of ten classes) are reduced `fold` rows at a time, as if they were
// one wide row, so that the vectors are full; the folds are added up at the end.
inline constexpr int64_t kFoldedColumns = 64;

template <class Op, class S>
class ColumnReducer {
 public:
  using A = Accumulator<Op, S>;
  static constexpr int64_t kTile = kTileBytes / static_cast<int64_t>(sizeof(A));

  // `width` columns of `fold` rows of `cols` columns each; fold > 1 only if width = fold * cols.
  ColumnReducer(const S* in, int64_t row_stride, int64_t cols, int64_t fold, int64_t width)
      : in_(in), row_stride_(row_stride), cols_(cols), fold_(fold), width_(width) {}

  // total_[c] of `rows` >= 1 wide rows.
  const A* run(int64_t rows) {
    for (int64_t group = 0; group < rows; group += kRowsPerGroup) {
      const int64_t group_end = group + kRowsPerGroup < rows ? group + kRowsPerGroup : rows;
      A* into_group = group == 0 ? total_ : group_;
      for (int64_t block = group; block < group_end; block += kRowsPerBlock) {
        const int64_t block_end = block + kRowsPerBlock < group_end ? block + kRowsPerBlock : group_end;
        A* into_block = block == group ? into_group : block_;
        reduce_rows(into_block, block, block_end);
        if (into_block != into_group) combine(into_group, into_block);
      }
      if (into_group != total_) combine(total_, into_group);
    }
    return total_;
  }

 private:
  // One wide row as contiguous accumulators: where it lies, or gathered and converted into a buffer.
  WENGERT_INLINE const A* row(int64_t r, int slot) {
    const S* x = in_ + r * fold_ * row_stride_;
    if constexpr (!HalfNumber<S>) {
      if (fold_ == 1 || row_stride_ == cols_) return reinterpret_cast<const A*>(x);
    }
    A* buffer = rows_[slot];
    const int64_t n = fold_ == 1 ? width_ : cols_;
    for (int64_t k = 0; k < fold_; ++k, x += row_stride_) {
      if constexpr (HalfNumber<S>) {
        widen(buffer + k * n, x, n);
      } else {
        std::memcpy(buffer + k * n, x, static_cast<size_t>(n) * sizeof(A));
      }
    }
    return buffer;
  }

  void reduce_rows(A* y, int64_t begin, int64_t end) {
    std::memcpy(y, row(begin, 0), static_cast<size_t>(width_) * sizeof(A));
    int64_t r = begin + 1;
    for (; r + 4 <= end; r += 4) {
      const A *a = row(r, 0), *b = row(r + 1, 1), *c = row(r + 2, 2), *d = row(r + 3, 3);
#pragma GCC ivdep
      for (int64_t i = 0; i < width_; ++i) {
        y[i] = Op::apply(y[i], Op::apply(Op::apply(a[i], b[i]), Op::apply(c[i], d[i])));
      }
    }
    for (; r < end; ++r) combine(y, row(r, 0));
  }

  void combine(A* y, const A* x) {
#pragma GCC ivdep
    for (int64_t i = 0; i < width_; ++i) y[i] = Op::apply(y[i], x[i]);
  }

  const S* in_;
  int64_t row_stride_, cols_, fold_, width_;
  A total_[kTile], group_[kTile], block_[kTile], rows_[4][kTile];
};

template <class Op, class S>
void col_reduce(void* out, const void* in, int64_t rows, int64_t cols, int64_t row_stride) {
  using A = Accumulator<Op, S>;
  constexpr int64_t kTile = ColumnReducer<Op, S>::kTile;
  auto* y = static_cast<S*>(out);
  const auto* x = static_cast<const S*>(in);
  if (rows == 0) {
    for (int64_t c = 0; c < cols; ++c) y[c] = store_as<S>(Op::template identity<A>());
    return;
  }
  const bool narrow_matrix = cols > 0 && cols < kFoldedColumns / 2 && rows * cols >= kFoldedColumns;
  const int64_t fold = narrow_matrix ? kFoldedColumns / cols : 1;
  if (fold > 1) {
    ColumnReducer<Op, S> reducer(x, row_stride, cols, fold, fold * cols);
    const A* total = reducer.run(rows / fold);
    const int64_t rest = rows % fold;
    x += (rows - rest) * row_stride;
    for (int64_t c = 0; c < cols; ++c) {
      A a = total[c];
      for (int64_t k = 1; k < fold; ++k) a = Op::apply(a, total[k * cols + c]);
      for (int64_t r = 0; r < rest; ++r) {
        if constexpr (HalfNumber<S>) {
          a = Op::apply(a, widen(x[r * row_stride + c]));
        } else {
          a = Op::apply(a, static_cast<A>(x[r * row_stride + c]));
        }
      }
      y[c] = store_as<S>(a);
    }
    return;
  }
  for (int64_t start = 0; start < cols; start += kTile) {
    const int64_t width = cols - start < kTile ? cols - start : kTile;
    ColumnReducer<Op, S> reducer(x + start, row_stride, cols, 1, width);
    const A* total = reducer.run(rows);
    for (int64_t c = 0; c < width; ++c) y[start + c] = store_as<S>(total[c]);
  }
}

// Positions of extremes
// ------------------------------------------------------------------------------------------

// Short rows in one pass; long ones by their extreme, which is a vector loop, and a search for its first
// place.
template <class Op, class S>
void arg_reduce(int64_t* out, const void* in, int64_t rows, int64_t cols, int64_t row_stride) {
  using A = Accumulator<Op, S>;
  constexpr int64_t kShort = 16, kBlock = 64;
  const auto* x = static_cast<const S*>(in);
  const auto value = [](S s) -> A {
    if constexpr (HalfNumber<S>) {
      return widen(s);
    } else {
      return s;
    }
  };
  for (int64_t r = 0; r < rows; ++r, x += row_stride) {
    int64_t place = 0;
    if (cols <= kShort) {
      A best = cols > 0 ? value(x[0]) : A{};
      for (int64_t i = 1; i < cols; ++i) {
        const A next = Op::apply(best, value(x[i]));
        const bool better = (next != best) & (best == best);  // strictly, or the first NaN
        place = better ? i : place;
        best = better ? next : best;
      }
    } else {
      const A best = reduce_row<Op, S>(x, cols);
      const auto found = [&](S s) {
        const A a = value(s);
        return (a == best) | (a != a);
      };
      for (; place + kBlock <= cols; place += kBlock) {
        uint8_t hit = 0;
        for (int64_t i = 0; i < kBlock; ++i) hit |= static_cast<uint8_t>(found(x[place + i]));
        if (hit != 0) break;
      }
      while (place < cols - 1 && !found(x[place])) ++place;
    }
    out[r] = place;
  }
}

// The table
// ------------------------------------------------------------------------------------------------------

constexpr void fill_reduce(VectorKernels& table) {
  for_each_dtype([&]<DType D>(std::integral_constant<DType, D>) {
    using S = Storage<D>;
    const int d = static_cast<int>(D);
    const auto set = [&]<class Op>(Reduction reduction, Op) {
      table.row_reduce[static_cast<int>(reduction)][d] = row_reduce<Op, S>;
      table.col_reduce[static_cast<int>(reduction)][d] = col_reduce<Op, S>;
    };
    if constexpr (D == DType::Bool) {
      set(Reduction::any, reduction::any{});
      set(Reduction::all, reduction::all{});
    } else {
      set(Reduction::sum, reduction::sum{});
      set(Reduction::prod, reduction::prod{});
    }
    if constexpr (!is_complex(D)) {
      set(Reduction::max, reduction::max{});
      set(Reduction::min, reduction::min{});
      table.argmax[d] = arg_reduce<reduction::max, S>;
      table.argmin[d] = arg_reduce<reduction::min, S>;
    }
  });
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
