// Attention and its derivatives, tile by tile: the matrix of all scores never exists (kernels/attention.h has the
// formulas). A block makes a tile of one result, and goes through the tiles of scores that it depends on. The result of
// a key or value is summed by one block, in the order of the queries: sums repeat to the bit.
#pragma once
#include "device_attention_call.h"
#include "device_tile.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

enum class AttentionPart { forward, tangent, queries, keys, values };  // the last three: cotangents

template <DType D, AttentionPart kPart, class Tile, int kBatchAxes, int kPack, bool kDropout>
struct Attention {
  using S = Storage<D>;
  using T = typename Tile::Stored;
  using A = typename Tile::Sum;
  static constexpr int kTile = Tile::kTile, kDepth = Tile::kDepth;
  static constexpr int kPitch = Tile::pitch(kDepth), kWeightPitch = Tile::pitch(kTile);
  static constexpr bool kRowsAreKeys = kPart == AttentionPart::keys || kPart == AttentionPart::values;
  using Call = AttentionCall<kBatchAxes>;

  Call call;
  T *left, *right, *weights;  // tiles in shared memory
  A* of_part;                 // two of each row
  int64_t queries, keys, depth, width, batch = 0, first_row = 0, first_column = 0;
  bool hides_all = false;

  WENGERT_INLINE A scale() const { return static_cast<A>(call.scale()); }
  WENGERT_INLINE bool masked(AttentionMask kind) const { return call.mask() == kind; }
  template <class M>
  WENGERT_INLINE M mask_at(int64_t query, int64_t key) const {
    const AttentionMatrix m = call.matrix(Call::kMask);
    return call.template data<M>(Call::kMask, batch)[query * m.row() + key * m.column()];
  }

  WENGERT_INLINE static A exp(A x) {
#if defined(__CUDA_ARCH__)
    if constexpr (HalfNumber<T>) return __expf(x);  // its error is far below that of 16-bit weights
#endif
    return libm::exp(x);
  }
  WENGERT_INLINE static T staged(S x) {
    if constexpr (std::is_same_v<S, T>) {
      return x;
    } else {
      return factor<T>(x);
    }
  }
  WENGERT_INLINE static T as_factor(A x) {
    if constexpr (HalfNumber<T>) {
      return narrow<T>(x);
    } else {
      return x;
    }
  }

  // to[r][c] = m[first + r][begin + c] for kTile rows and kDepth columns, or transposed: to[c][r] for kDepth rows and
  // kTile columns. What is outside is zero.
  template <bool kTransposed>
  WENGERT_INLINE void stage(T* to, int k, int64_t first, int64_t rows, int64_t begin, int64_t columns) const {
    const int64_t row = call.matrix(k).row();
    const S* from = call.template data<S>(k, batch);
    constexpr int kHeight = kTransposed ? kDepth : kTile, kPacks = (kTransposed ? kTile : kDepth) / kPack;
    for (int at = static_cast<int>(threadIdx.x); at < kHeight * kPacks; at += kThreads) {
      // Neighbours read neighbours, or write them.
      const int r = kTransposed ? at % kHeight : at / kPacks, c = (kTransposed ? at / kHeight : at % kPacks) * kPack;
      Pack<S, kPack> x = {};
      if (first + r < rows && begin + c < columns)
        x = *reinterpret_cast<const Pack<S, kPack>*>(from + (first + r) * row + begin + c);
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[kTransposed ? (c + i) * kPitch + r : r * kPitch + c + i] = staged(x.at[i]);
    }
  }

  // sum += a bᵀ for the rows of two matrices.
  WENGERT_INLINE void multiply(Tile& sum, int a, int64_t a_first, int64_t a_rows, int b, int64_t b_first,
                               int64_t b_rows, int64_t columns) const {
    for (int64_t begin = 0; begin < columns; begin += kDepth) {
      __syncthreads();
      stage<false>(left, a, a_first, a_rows, begin, columns);
      stage<false>(right, b, b_first, b_rows, begin, columns);
      __syncthreads();
      sum.multiply(left, kPitch, right, kPitch);
    }
  }
  // sum += weights · b for kTile rows of b from `first` on, and the columns of this block.
  WENGERT_INLINE void multiply_weights(Tile& sum, int b, int64_t first, int64_t rows, int64_t columns) const {
    for (int begin = 0; begin < kTile; begin += kDepth) {
      __syncthreads();
      stage<true>(right, b, first + begin, rows, first_column, columns);
      __syncthreads();
      sum.multiply(weights + begin, kWeightPitch, right, kPitch);
    }
  }
  WENGERT_INLINE void keep_weights(const Tile& x) const {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kColumns; ++j)
        weights[Tile::row(i) * kWeightPitch + Tile::column(j)] = as_factor(x.at[i][j]);
    }
  }

  // The reduction over the elements of a row, which all threads of the row get.
  template <class Op>
  WENGERT_INLINE A over_row(int i, A x) const {
#pragma unroll
    for (int step = Tile::kLanes / 2; step > 0; step /= 2) x = Op::apply(x, of_other_thread(x, step));
    if constexpr (Tile::kParts == 1) return x;
    __syncthreads();
    of_part[Tile::part() * kTile + Tile::row(i)] = x;
    __syncthreads();
    return Op::apply(of_part[Tile::row(i)], of_part[kTile + Tile::row(i)]);
  }

  WENGERT_INLINE bool is_seen(int64_t query, int64_t key) const {
    if (query >= queries || key >= keys || (call.causal() && key > query) || hides_all) return false;
    return !masked(AttentionMask::booleans) || mask_at<uint8_t>(query, key) != 0;
  }
  // The scores of a tile from its products; those that are not seen are −∞.
  WENGERT_INLINE void finish_scores(Tile& x, int64_t row, int64_t column) const {
    const int64_t first_query = kRowsAreKeys ? column : row, first_key = kRowsAreKeys ? row : column;
    const bool whole = masked(AttentionMask::one_boolean) && !hides_all && first_query + kTile <= queries &&
                       first_key + kTile <= keys && (!call.causal() || first_key + kTile <= first_query + 1);
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kColumns; ++j) {
        const int64_t r = row + Tile::row(i), c = column + Tile::column(j);
        const int64_t query = kRowsAreKeys ? c : r, key = kRowsAreKeys ? r : c;
        if (!whole && !is_seen(query, key)) {
          x.at[i][j] = -Format<A>::kInf;
          continue;
        }
        x.at[i][j] *= scale();
        if (masked(AttentionMask::numbers)) x.at[i][j] += mask_at<A>(query, key);
      }
    }
  }
  WENGERT_INLINE void drop(Tile& x, int64_t row, int64_t column) const {
    if constexpr (!kDropout) return;
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kColumns; ++j) {
        const int64_t r = row + Tile::row(i), c = column + Tile::column(j);
        x.at[i][j] *= call.template kept<A>(batch, kRowsAreKeys ? c : r, kRowsAreKeys ? r : c);
      }
    }
  }
  // exp(scores − lse).
  WENGERT_INLINE void weigh(Tile& x, int64_t row, int64_t column) const {
    finish_scores(x, row, column);
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kColumns; ++j) {
        const int64_t query = kRowsAreKeys ? column + Tile::column(j) : row + Tile::row(i);
        if (x.at[i][j] == -Format<A>::kInf) {
          x.at[i][j] = A{};
          continue;
        }
        x.at[i][j] = exp(x.at[i][j] - address<const A>(call.words[2])[batch * queries + query]);
      }
    }
  }

  // Result element (row, column) of a packed batch of matrices.
  WENGERT_INLINE void store(int i, int j, int64_t rows, int64_t columns, A x) const {
    const int64_t r = first_row + Tile::row(i), c = first_column + Tile::column(j);
    if (r < rows && c < columns) address<S>(call.words[0])[(batch * rows + r) * columns + c] = store_as<S>(x);
  }
  WENGERT_INLINE void store_row(int i, A x) const {
    const int64_t r = first_row + Tile::row(i);
    if (first_column == 0 && Tile::column(0) == 0 && r < queries) address<A>(call.words[1])[batch * queries + r] = x;
  }

  // One past the last key that a query of this block sees.
  WENGERT_INLINE int64_t last_key() const {
    return call.causal() && first_row + kTile < keys ? first_row + kTile : keys;
  }

  WENGERT_INLINE void forward() const {
    Tile sum;
    A largest[Tile::kRows], total[Tile::kRows];
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
      largest[i] = -Format<A>::kInf;
      total[i] = A{};
    }
    for (int64_t j = 0; j < last_key(); j += kTile) {
      Tile x;
      multiply(x, 0, first_row, queries, 1, j, keys, depth);
      finish_scores(x, first_row, j);
#pragma unroll
      for (int i = 0; i < Tile::kRows; ++i) {
        A here = -Format<A>::kInf, added = {};
#pragma unroll
        for (int c = 0; c < Tile::kColumns; ++c) here = reduction::max::apply(here, x.at[i][c]);
        const A now = reduction::max::apply(largest[i], over_row<reduction::max>(i, here));
        const A shift = now == -Format<A>::kInf ? A{} : now, again = exp(largest[i] - shift);
#pragma unroll
        for (int c = 0; c < Tile::kColumns; ++c) {
          x.at[i][c] = x.at[i][c] == -Format<A>::kInf ? A{} : exp(x.at[i][c] - shift);
          added += x.at[i][c];
        }
        total[i] = total[i] * again + over_row<reduction::sum>(i, added);
        largest[i] = now;
#pragma unroll
        for (int c = 0; c < Tile::kColumns; ++c) sum.at[i][c] *= again;
      }
      drop(x, first_row, j);
      keep_weights(x);
      multiply_weights(sum, 2, j, keys, width);
    }
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
      const bool nothing = total[i] == 0;
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c) store(i, c, queries, width, nothing ? A{} : sum.at[i][c] / total[i]);
      store_row(i, nothing ? A{} : largest[i] + libm::log(total[i]));
    }
  }

  WENGERT_INLINE void tangent() const {
    Tile sum;
    A slope[Tile::kRows] = {};
    for (int64_t j = 0; j < last_key(); j += kTile) {
      Tile w, w_dot;
      multiply(w, 0, first_row, queries, 1, j, keys, depth);
      multiply(w_dot, 4, first_row, queries, 1, j, keys, depth);
      multiply(w_dot, 0, first_row, queries, 5, j, keys, depth);
      weigh(w, first_row, j);
#pragma unroll
      for (int i = 0; i < Tile::kRows; ++i) {
        A added = {};
#pragma unroll
        for (int c = 0; c < Tile::kColumns; ++c) {
          w_dot.at[i][c] *= w.at[i][c] * scale();
          added += w_dot.at[i][c];
        }
        slope[i] += over_row<reduction::sum>(i, added);
      }
      drop(w, first_row, j);
      drop(w_dot, first_row, j);
      keep_weights(w);
      multiply_weights(sum, 6, j, keys, width);
      keep_weights(w_dot);
      multiply_weights(sum, 2, j, keys, width);
    }
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
      const int64_t r = first_row + Tile::row(i) < queries ? first_row + Tile::row(i) : queries - 1;
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c) {
        const int64_t column = first_column + Tile::column(c) < width ? first_column + Tile::column(c) : width - 1;
        const A o = factor<A>(address<const S>(call.words[3])[(batch * queries + r) * width + column]);
        store(i, c, queries, width, sum.at[i][c] - slope[i] * o);
      }
      store_row(i, slope[i]);
    }
  }

  // The cotangents of scores from those of weights: w (w_bar + shift).
  WENGERT_INLINE void pull_scores(Tile& bar, const Tile& w, int64_t row, int64_t column) const {
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kColumns; ++j) {
        const int64_t query = kRowsAreKeys ? column + Tile::column(j) : row + Tile::row(i);
        const A shift = query < queries ? address<const A>(call.words[3])[batch * queries + query] : A{};
        bar.at[i][j] = w.at[i][j] * (bar.at[i][j] + shift);
      }
    }
  }

  WENGERT_INLINE void cotangent() const {
    constexpr bool kOfValues = kPart == AttentionPart::values;
    Tile sum;
    const int64_t rows = kRowsAreKeys ? keys : queries, others = kRowsAreKeys ? queries : keys;
    // Queries before the first of these keys see none of them.
    const int64_t begin = kRowsAreKeys && call.causal() ? first_row / kTile * kTile : 0;
    const int64_t end = kRowsAreKeys ? queries : last_key();
    for (int64_t j = begin; j < end; j += kTile) {
      Tile x;
      multiply(x, kRowsAreKeys ? 1 : 0, first_row, rows, kRowsAreKeys ? 0 : 1, j, others, depth);
      weigh(x, first_row, j);
      if constexpr (kOfValues) {
        drop(x, first_row, j);
        keep_weights(x);
      } else {
        Tile bar;
        multiply(bar, kRowsAreKeys ? 2 : 4, first_row, rows, kRowsAreKeys ? 4 : 2, j, others, width);
        drop(bar, first_row, j);
        pull_scores(bar, x, first_row, j);
        keep_weights(bar);
      }
      multiply_weights(sum, kOfValues ? 4 : kRowsAreKeys ? 0 : 1, j, others, kOfValues ? width : depth);
    }
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c)
        store(i, c, rows, kOfValues ? width : depth, kOfValues ? sum.at[i][c] : sum.at[i][c] * scale());
    }
  }

  WENGERT_INLINE void run(int64_t block_number) {
    const int64_t rows = kRowsAreKeys ? keys : queries;
    const int64_t columns = kPart == AttentionPart::queries || kPart == AttentionPart::keys ? depth : width;
    const int64_t tiles = (rows + kTile - 1) / kTile, across = columns > kTile ? (columns + kTile - 1) / kTile : 1;
    const int64_t tile = block_number / (call.batches() * across);
    batch = block_number / across % call.batches();
    // With a causal mask, the tiles with most work come first.
    first_row = (kRowsAreKeys ? tile : tiles - 1 - tile) * kTile;
    first_column = block_number % across * kTile;
    hides_all = call.hides_all();
    if constexpr (kPart == AttentionPart::forward) {
      forward();
    } else if constexpr (kPart == AttentionPart::tangent) {
      tangent();
    } else {
      cotangent();
    }
  }
};

template <DType D, AttentionPart kPart, class Tile, int kBatchAxes, int kPack, bool kDropout>
WENGERT_INLINE void attention(const int64_t* words, int64_t block_number) {
  using T = typename Tile::Stored;
  using A = typename Tile::Sum;
  constexpr int kStaged = Tile::kTile * Tile::pitch(Tile::kDepth);
  alignas(16) __shared__ T left[kStaged], right[kStaged], weights[Tile::kTile * Tile::pitch(Tile::kTile)];
  __shared__ A of_part[2 * Tile::kTile];
  const AttentionCall<kBatchAxes> call{words};
  Attention<D, kPart, Tile, kBatchAxes, kPack, kDropout>{
      call, left, right, weights, of_part, call.queries(), call.keys(), call.depth(), call.width()}
      .run(block_number);
}

// lse_bar − Σ o_bar ∘ o of each row, by kLanes threads. Words: to, lse_bar, o, rows, width, sizes of the batch, rows of
// one batch, then o_bar as a matrix. A thread has the same elements whether it loads them together (`kPacked`) or not.
template <DType D, int kBatchAxes, int kLanes, bool kPacked>
WENGERT_INLINE void attention_shift(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  constexpr int kEach = 16 / sizeof(S);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t wanted = global_thread(block_number) / kLanes, rows = words[3], width = words[4];
  const int64_t row = wanted < rows ? wanted : rows - 1, in_batch = words[5 + kBatchAxes];
  const AttentionMatrix m{words + 6 + kBatchAxes};
  const S* bar = m.of<S, kBatchAxes>(row / in_batch, words + 5) + row % in_batch * m.row();
  const S* o = address<const S>(words[2]) + row * width;
  A sum = {};
  for (int64_t c = lane * kEach; c < width; c += kLanes * kEach) {
    Pack<S, kEach> x = {}, y = {};
    if constexpr (kPacked) {
      x = *reinterpret_cast<const Pack<S, kEach>*>(bar + c);
      y = *reinterpret_cast<const Pack<S, kEach>*>(o + c);
    } else {
      for (int i = 0; i < kEach && c + i < width; ++i) {
        x.at[i] = bar[c + i];
        y.at[i] = o[c + i];
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum = multiply_add(factor<A>(x.at[i]), factor<A>(y.at[i]), sum);
  }
  sum = reduce_threads<reduction::sum, kLanes>(sum);
  if (lane == 0 && wanted < rows) address<A>(words[0])[row] = address<const A>(words[1])[row] - sum;
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
