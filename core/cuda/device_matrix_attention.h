// Attention and its cotangents by the matrix units (Dao, "FlashAttention-2", 2023). A warp makes 16
// rows of a result in registers: of queries, which go through the keys tile by tile, or of keys, which go through the
// queries. Tiles of the other side are copied to shared memory, the next one while this one is used. Scores and weights
// stay in registers, where the sums of one product are the factors of the next. Every element is summed by one warp in
// the order of the tiles: sums repeat to the bit.
#pragma once
#include "device_attention_call.h"
#include "device_warp_product.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

template <DType D, int kHead, int kWarps, int kBatchAxes, int kPack, AttentionMask kMask, bool kDropout>
struct MatrixAttention {
  using S = Storage<D>;
  using Call = AttentionCall<kBatchAxes>;
  using Product = WarpProduct<S, kHead>;
  using HeadSums = typename Product::Sums;
  using HeadFactors = typename Product::Factors;
  static constexpr int kBlock = 32 * kWarps, kRows = 16 * kWarps;
  static constexpr int kPitch = Product::kPitch, kAcross = 32;
  static constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

  Call call;
  S* shared;
  int64_t batch, first_row;
  float scale;  // of scores as exponents of two
  bool hides_all;

  WENGERT_INLINE MatrixAttention(const int64_t* words, int64_t block_number, bool rows_are_keys)
      : call{words}, shared(static_cast<S*>(dynamic_shared())) {
    const int64_t rows = rows_are_keys ? call.keys() : call.queries(), tiles = (rows + kRows - 1) / kRows;
    const int64_t tile = block_number / call.batches();
    batch = block_number - tile * call.batches();
    // With a causal mask, the tiles with most work come first.
    first_row = (rows_are_keys ? tile : tiles - 1 - tile) * kRows;
    scale = static_cast<float>(call.scale() * 1.4426950408889634);
    hides_all = call.hides_all();
  }

  WENGERT_INLINE static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  WENGERT_INLINE int64_t warp_row() const { return first_row + static_cast<int>(threadIdx.x) / 32 * 16; }

  // A matrix of the batch, and how much there is of it.
  struct Matrix {
    const S* data;
    int64_t row, rows, columns;
  };
  WENGERT_INLINE Matrix matrix(int k) const {
    const bool of_keys = k == Call::kKeys || k == Call::kValues;
    return {call.template data<S>(k, batch), call.matrix(k).row(), of_keys ? call.keys() : call.queries(),
            k == Call::kQueries || k == Call::kKeys ? call.depth() : call.width()};
  }

  // to[r][c] = m[first + r][c] for kHeight rows; what is outside of m is zero. They are there after the next wait.
  template <int kHeight>
  WENGERT_INLINE static void stage(S* to, const Matrix& m, int64_t first) {
    constexpr int kPacks = kHead / kPack, kCopies = kHeight * kPacks / kBlock;
    static_assert(kCopies * kBlock == kHeight * kPacks);
    const int left = static_cast<int>(m.rows - first < kHeight ? m.rows - first : kHeight);
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (kPack > 1 && kBlock % kPacks == 0) {
      // A thread stays in its column.
      constexpr int kStep = kBlock / kPacks;
      const int row = thread / kPacks, c = thread % kPacks * kPack, end = c < m.columns ? left : 0;
      const S* from = m.data + (first + row) * m.row + c;
      const SharedAddress target = shared_address(to + row * kPitch + c);
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        copy_async<16>(target + i * kStep * kPitch * static_cast<int>(sizeof(S)), from, row + i * kStep < end);
        from += kStep * m.row;
      }
    } else {
#pragma unroll 1
      for (int at = thread; at < kHeight * kPacks; at += kBlock) {
        const int r = at / kPacks, c = at % kPacks * kPack;
        const bool present = r < left && c < m.columns;
        const S* from = m.data + (first + r) * m.row + c;
        if constexpr (kPack > 1) {
          copy_async<16>(shared_address(to + r * kPitch + c), from, present);
        } else {
          to[r * kPitch + c] = present ? *from : S{};
        }
      }
    }
  }

  // The rows of this warp.
  WENGERT_INLINE static S* rows_of_warp(S* tile) { return tile + static_cast<int>(threadIdx.x) / 32 * 16 * kPitch; }

  // The columns from one to another that the given row sees, if the mask says nothing else.
  struct Seen {
    int begin, end;
  };
  template <bool kRowsAreKeys, int kColumns>
  WENGERT_INLINE Seen seen(int64_t row, int64_t first_column) const {
    const int64_t n = (kRowsAreKeys ? call.queries() : call.keys()) - first_column;
    const int64_t diagonal = row - first_column;
    int64_t begin = 0, end = n;
    if (row >= (kRowsAreKeys ? call.keys() : call.queries())) end = 0;
    if (call.causal() && kRowsAreKeys && diagonal > 0) begin = diagonal;
    if (call.causal() && !kRowsAreKeys && diagonal + 1 < end) end = diagonal + 1;
    return {static_cast<int>(begin < kColumns ? begin : kColumns), static_cast<int>(end < kColumns ? end : kColumns)};
  }
  // Scores as exponents of two from products; those that are not seen are −∞.
  template <bool kRowsAreKeys, int kTiles>
  WENGERT_INLINE void finish_scores(WarpSums<kTiles>& x, int64_t first, int64_t first_column) const {
    constexpr int kColumns = 8 * kTiles, kQueries = kRowsAreKeys ? kColumns : 16, kKeys = kRowsAreKeys ? 16 : kColumns;
    const int64_t query = kRowsAreKeys ? first_column : first, key = kRowsAreKeys ? first : first_column;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x.at[t][e] *= scale;
    }
    if (kMask == AttentionMask::one_boolean && key + kKeys <= call.keys() && query + kQueries <= call.queries() &&
        (!call.causal() || key + kKeys <= query + 1))
      return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = first + x.row(half);
      const Seen range = seen<kRowsAreKeys, kColumns>(row, first_column);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int c = x.column(t) + e;
          float& score = x.at[t][2 * half + e];
          const int64_t column = first_column + c;
          score = c >= range.begin && c < range.end
                      ? masked(score, kRowsAreKeys ? column : row, kRowsAreKeys ? row : column)
                      : -Format<float>::kInf;
        }
      }
    }
  }
  WENGERT_INLINE float masked(float score, int64_t query, int64_t key) const {
    const AttentionMatrix m = call.matrix(Call::kMask);
    const int64_t at = query * m.row() + key * m.column();
    if constexpr (kMask == AttentionMask::numbers) {
      return libm::fma(call.template data<float>(Call::kMask, batch)[at], kLog2E, score);
    } else if constexpr (kMask == AttentionMask::booleans) {
      return call.template data<uint8_t>(Call::kMask, batch)[at] ? score : -Format<float>::kInf;
    } else {
      return score;
    }
  }

  // Result number `word`, of packed matrices: x times the factor of its half of the rows.
  WENGERT_INLINE void store(int word, const HeadSums& x, const float (&factor)[2], int64_t rows,
                            int64_t columns) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t r = warp_row() + x.row(half);
      if (r >= rows) continue;
      S* to = address<S>(call.words[word]) + (batch * rows + r) * columns;
#pragma unroll
      for (int t = 0; t < kHead / 8; ++t) {
        const int c = x.column(t);
        const float left = x.at[t][2 * half] * factor[half], right = x.at[t][2 * half + 1] * factor[half];
        if constexpr (kPack == 1) {
          if (c < columns) to[c] = store_as<S>(left);
          if (c + 1 < columns) to[c + 1] = store_as<S>(right);
        } else {
          if (c < columns) store_pair(to + c, left, right);
        }
      }
    }
  }

  WENGERT_INLINE static void store_pair(S* to, float left, float right) {
    if constexpr (Product::kHalf) {
      *reinterpret_cast<uint32_t*>(to) = pack_pair<S>(left, right);
    } else {
      *reinterpret_cast<Pack<float, 2>*>(to) = {left, right};
    }
  }

  // One past the last key that a query of this block sees.
  WENGERT_INLINE int64_t last_key() const {
    if (hides_all) return 0;
    return call.causal() && first_row + kRows < call.keys() ? first_row + kRows : call.keys();
  }

  // ------------------------------------------------------------------------------------------------ rows of queries

  static constexpr int kStagedKeys = 64;
  static constexpr int kQueryBytes = 4 * kStagedKeys * kPitch * static_cast<int>(sizeof(S));
  static_assert(kRows <= 2 * kStagedKeys);  // of which operands pass through the tiles of keys and values

  WENGERT_INLINE S* key_tile(int64_t number) const { return shared + number % 2 * 2 * kStagedKeys * kPitch; }
  WENGERT_INLINE S* value_tile(int64_t number) const { return key_tile(number) + kStagedKeys * kPitch; }
  WENGERT_INLINE void stage_keys(int64_t number, const Matrix& k, const Matrix& v) const {
    stage<kStagedKeys>(key_tile(number), k, number * kStagedKeys);
    stage<kStagedKeys>(value_tile(number), v, number * kStagedKeys);
  }
  WENGERT_INLINE int64_t key_tiles() const { return (last_key() + kStagedKeys - 1) / kStagedKeys; }
  // The first tile is on its way after this.
  WENGERT_INLINE void start_keys() const {
    if (key_tiles() > 0) stage_keys(0, matrix(Call::kKeys), matrix(Call::kValues));
    commit_copies();
  }
  // Calls step(number) for all tiles of keys that this warp sees, when they are in shared memory.
  template <class Step>
  WENGERT_INLINE void for_keys(Step&& step) const {
    const Matrix k = matrix(Call::kKeys), v = matrix(Call::kValues);
    const int64_t tiles = key_tiles();
    for (int64_t number = 0; number < tiles; ++number) {
      wait_for_copies<0>();
      __syncthreads();
      if (number + 1 < tiles) stage_keys(number + 1, k, v);
      commit_copies();
      if (!call.causal() || number * kStagedKeys < warp_row() + 16) step(number);
    }
  }

  struct Softmax {
    float largest, total;  // the total of what this thread has seen
  };
  // Weights from scores, in relation to the largest score so far; what was summed in relation to the former one is
  // brought to this.
  template <int kTiles>
  WENGERT_INLINE static void weigh(WarpSums<kTiles>& x, Softmax (&rows)[2], HeadSums& sum) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float now = rows[half].largest;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) now = fmaxf(now, fmaxf(x.at[t][2 * half], x.at[t][2 * half + 1]));
      now = fmaxf(now, of_other_thread(now, 1));
      now = fmaxf(now, of_other_thread(now, 2));
      const float shift = now == -Format<float>::kInf ? 0.0f : now;
      const float again = power_of_two(rows[half].largest - shift);
      float added = 0;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          x.at[t][e] = power_of_two(x.at[t][e] - shift);
          added += x.at[t][e];
        }
      }
      rows[half] = {now, libm::fma(rows[half].total, again, added)};
#pragma unroll
      for (int t = 0; t < kHead / 8; ++t) {
        sum.at[t][2 * half] *= again;
        sum.at[t][2 * half + 1] *= again;
      }
    }
  }
  template <bool kRowsAreKeys>
  WENGERT_INLINE float kept(int64_t row, int64_t column) const {
    return call.template kept<float>(batch, kRowsAreKeys ? column : row, kRowsAreKeys ? row : column);
  }

  WENGERT_INLINE void forward() const {
    HeadFactors q;
    stage<kRows>(key_tile(1), matrix(Call::kQueries), first_row);
    commit_copies();
    start_keys();
    wait_for_copies<1>();
    __syncthreads();
    Product::load_left(q, rows_of_warp(key_tile(1)));
    HeadSums sum;
    Softmax rows[2] = {{-Format<float>::kInf, 0}, {-Format<float>::kInf, 0}};
    for_keys([&](int64_t number) {
      const int64_t first_key = number * kStagedKeys;
      WarpSums<kStagedKeys / 8> x;
      Product::multiply_rows(x, q, key_tile(number));
      finish_scores<false>(x, warp_row(), first_key);
      weigh(x, rows, sum);
      if constexpr (kDropout) {
        for (int t = 0; t < kStagedKeys / 8; ++t) {
          for (int e = 0; e < 4; ++e)
            x.at[t][e] *= kept<false>(warp_row() + x.row(e / 2), first_key + x.column(t) + e % 2);
        }
      }
      Product::multiply_columns(sum, x, value_tile(number));
    });
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = rows[half].total;
      total += of_other_thread(total, 1);
      total += of_other_thread(total, 2);
      factor[half] = total == 0 ? 0.0f : 1.0f / total;
      const int64_t r = warp_row() + sum.row(half);
      if (lane() % 4 == 0 && r < call.queries())
        address<float>(call.words[1])[batch * call.queries() + r] =
            total == 0 ? 0.0f : libm::fma(rows[half].largest, kLn2, libm::log(total));
    }
    store(0, sum, factor, call.queries(), call.width());
  }

  // A number of each query, at word k.
  WENGERT_INLINE const float* of_queries(int k) const {
    return address<const float>(call.words[k]) + batch * call.queries();
  }

  WENGERT_INLINE void query_cotangents() const {
    HeadFactors q, o_bar;
    stage<kRows>(key_tile(0), matrix(Call::kQueries), first_row);
    stage<kRows>(key_tile(1), matrix(Call::kResultBar), first_row);
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    Product::load_left(q, rows_of_warp(key_tile(0)));
    Product::load_left(o_bar, rows_of_warp(key_tile(1)));
    __syncthreads();
    start_keys();
    HeadSums sum;
    float lse[2], shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t r = warp_row() + sum.row(half), there = r < call.queries() ? r : call.queries() - 1;
      lse[half] = of_queries(2)[there] * kLog2E;
      shift[half] = of_queries(3)[there];
    }
    const auto add_part = [&](int64_t number, int part) {
      const int64_t first_key = number * kStagedKeys + part;
      S* keys = key_tile(number) + part * kPitch;
      WarpSums<kAcross / 8> x, bar;
      Product::multiply_rows(x, q, keys);
      finish_scores<false>(x, warp_row(), first_key);
      Product::multiply_rows(bar, o_bar, value_tile(number) + part * kPitch);
#pragma unroll
      for (int t = 0; t < kAcross / 8; ++t) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if constexpr (kDropout)
            bar.at[t][e] *= kept<false>(warp_row() + x.row(e / 2), first_key + x.column(t) + e % 2);
          x.at[t][e] = power_of_two(x.at[t][e] - lse[e / 2]) * (bar.at[t][e] + shift[e / 2]);
        }
      }
      Product::multiply_columns(sum, x, keys);
    };
    for_keys([&](int64_t number) {
      if constexpr (Product::kHalf) {
#pragma unroll
        for (int part = 0; part < kStagedKeys; part += kAcross) add_part(number, part);
      } else {
#pragma unroll 1  // two parts at once have more registers than there are
        for (int part = 0; part < kStagedKeys; part += kAcross) add_part(number, part);
      }
    });
    const float factor = static_cast<float>(call.scale());
    store(0, sum, {factor, factor}, call.queries(), call.depth());
  }

  // --------------------------------------------------------------------------------------------------- rows of keys

  static constexpr int kStagedQueries = kHead > 96 || !Product::kHalf ? 32 : 64;
  static constexpr bool kKept = kHead <= 64 && Product::kHalf;  // in registers are keys and values, too
  static_assert(kStagedQueries % kAcross == 0);
  static constexpr int kKeyBytes = (2 * kRows + 4 * kStagedQueries) * kPitch * static_cast<int>(sizeof(S)) +
                                   4 * kStagedQueries * static_cast<int>(sizeof(float));

  WENGERT_INLINE S* query_tile(int64_t number) const {
    return shared + (2 * kRows + number % 2 * 2 * kStagedQueries) * kPitch;
  }
  WENGERT_INLINE S* bar_tile(int64_t number) const { return query_tile(number) + kStagedQueries * kPitch; }
  // The logarithms of the queries of a tile, then their shifts.
  WENGERT_INLINE float* row_numbers(int64_t number) const {
    return reinterpret_cast<float*>(shared + (2 * kRows + 4 * kStagedQueries) * kPitch) +
           number % 2 * 2 * kStagedQueries;
  }
  WENGERT_INLINE void stage_queries(int64_t number, const Matrix& q, const Matrix& o_bar) const {
    const int64_t first = number * kStagedQueries;
    stage<kStagedQueries>(query_tile(number), q, first);
    stage<kStagedQueries>(bar_tile(number), o_bar, first);
    for (int i = static_cast<int>(threadIdx.x); i < 2 * kStagedQueries; i += kBlock) {
      const int64_t query = first + i % kStagedQueries;
      const float* from = of_queries(i < kStagedQueries ? 2 : 3);
      const bool present = query < call.queries();
      copy_async<4>(shared_address(row_numbers(number) + i), from + (present ? query : 0), present);
    }
    commit_copies();
  }

  // Queries behind the last have rows of zeros, and change no sum.
  WENGERT_INLINE void key_cotangents() const {
    const Matrix q = matrix(Call::kQueries), o_bar = matrix(Call::kResultBar);
    S *k = shared, *v = shared + kRows * kPitch;
    HeadFactors kept_keys, kept_values;
    HeadSums of_keys, of_values;
    // Queries before the first of these keys see none of them.
    const int64_t begin = call.causal() ? first_row / kStagedQueries : 0;
    const int64_t end = hides_all ? 0 : (call.queries() + kStagedQueries - 1) / kStagedQueries;
    if (begin < end) {
      stage<kRows>(k, matrix(Call::kKeys), first_row);
      stage<kRows>(v, matrix(Call::kValues), first_row);
      stage_queries(begin, q, o_bar);
      wait_for_copies<0>();
      __syncthreads();
      if constexpr (kKept) {
        Product::load_left(kept_keys, rows_of_warp(k));
        Product::load_left(kept_values, rows_of_warp(v));
      }
    }
    for (int64_t number = begin; number < end; ++number) {
      wait_for_copies<0>();
      __syncthreads();
      if (number + 1 < end) stage_queries(number + 1, q, o_bar);
#pragma unroll
      for (int part = 0; part < kStagedQueries; part += kAcross) {
        const int64_t first_query = number * kStagedQueries + part;
        if (call.causal() && first_query + kAcross <= warp_row()) continue;
        S *queries = query_tile(number) + part * kPitch, *bars = bar_tile(number) + part * kPitch;
        WarpSums<kAcross / 8> x, bar;
        if constexpr (kKept) {
          Product::multiply_rows(x, kept_keys, queries);
          Product::multiply_rows(bar, kept_values, bars);
        } else {
          Product::multiply_rows(x, rows_of_warp(k), queries);
          Product::multiply_rows(bar, rows_of_warp(v), bars);
        }
        finish_scores<true>(x, warp_row(), first_query);
        pull_scores(x, bar, row_numbers(number) + part, first_query);
        Product::multiply_columns(of_values, x, bars);
        Product::multiply_columns(of_keys, bar, queries);
      }
    }
    const float factor = static_cast<float>(call.scale());
    store(0, of_keys, {factor, factor}, call.keys(), call.depth());
    store(1, of_values, {1.0f, 1.0f}, call.keys(), call.width());
  }
  // Weights from scores, and the cotangents of scores from those of weights.
  WENGERT_INLINE void pull_scores(WarpSums<kAcross / 8>& x, WarpSums<kAcross / 8>& bar, const float* numbers,
                                  int64_t first_query) const {
#pragma unroll
    for (int t = 0; t < kAcross / 8; ++t) {
      const auto lse = *reinterpret_cast<const Pack<float, 2>*>(numbers + x.column(t));
      const auto shift = *reinterpret_cast<const Pack<float, 2>*>(numbers + kStagedQueries + x.column(t));
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float w = power_of_two(libm::fma(lse.at[e % 2], -kLog2E, x.at[t][e]));
        float keep = 1;
        if constexpr (kDropout) keep = kept<true>(warp_row() + x.row(e / 2), first_query + x.column(t) + e % 2);
        x.at[t][e] = kDropout ? w * keep : w;
        bar.at[t][e] = w * (kDropout ? libm::fma(bar.at[t][e], keep, shift.at[e % 2]) : bar.at[t][e] + shift.at[e % 2]);
      }
    }
  }
};

// kShared: bytes of shared memory that the launch gives.
template <DType D, int kHead, int kWarps, int kBatchAxes, int kPack, AttentionMask kMask, bool kDropout, int kShared>
WENGERT_INLINE void matrix_attention(const int64_t* words, int64_t block_number) {
  using Kernel = MatrixAttention<D, kHead, kWarps, kBatchAxes, kPack, kMask, kDropout>;
  static_assert(kShared == Kernel::kQueryBytes);
  Kernel(words, block_number, false).forward();
}
template <DType D, int kHead, int kWarps, int kBatchAxes, int kPack, AttentionMask kMask, bool kDropout, int kShared>
WENGERT_INLINE void matrix_attention_queries(const int64_t* words, int64_t block_number) {
  using Kernel = MatrixAttention<D, kHead, kWarps, kBatchAxes, kPack, kMask, kDropout>;
  static_assert(kShared == Kernel::kQueryBytes);
  Kernel(words, block_number, false).query_cotangents();
}
template <DType D, int kHead, int kWarps, int kBatchAxes, int kPack, AttentionMask kMask, bool kDropout, int kShared>
WENGERT_INLINE void matrix_attention_keys(const int64_t* words, int64_t block_number) {
  using Kernel = MatrixAttention<D, kHead, kWarps, kBatchAxes, kPack, kMask, kDropout>;
  static_assert(kShared == Kernel::kKeyBytes);
  Kernel(words, block_number, true).key_cotangents();
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
