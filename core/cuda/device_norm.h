// The derivative of standardised rows that lie packed, by x and by the parameters in one pass: a block takes a few
// rows, one after the other, and each thread sums what its columns contribute to the parameters.
#pragma once
#include "device_norm_sums.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// Words: x_bar, sums of blocks (groups of threads of all blocks, weight and bias, columns), y_bar, x, mean, variance,
// weight, rows, columns, rows of a block, 1 / columns and eps (doubles). kRowThreads: 32, or all of a block.
// Packs of y_bar are brought by bring(position), those of x_bar are given to use(position, pack).
template <DType D, int kPack, int kEach, int kRowThreads, bool kCentred, class Bring, class Use>
struct NormCotangent {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  static constexpr int kGroups = kThreads / kRowThreads;

  struct Row {
    Pack<S, kPack> y_bar[kEach], x[kEach];
    A mean, scale;
  };

  const int64_t* words;
  Bring bring;
  Use use;
  int64_t rows, columns;
  int thread;

  WENGERT_INLINE int64_t column(int e) const { return static_cast<int64_t>(e * kRowThreads + thread) * kPack; }

  WENGERT_INLINE Row fetch(int64_t r) const {
    Row row;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      row.y_bar[e] = column(e) < columns ? bring(r * columns + column(e)) : Pack<S, kPack>{};
      row.x[e] = load<kPack>(address<const S>(words[3]) + r * columns, column(e), columns);
    }
    row.mean = factor<A>(address<const S>(words[4])[r]);
    const A spread = factor<A>(address<const S>(words[5])[r]) + static_cast<A>(constant<double>(words + 11));
    row.scale = A{1} / libm::sqrt(spread);
    return row;
  }

  WENGERT_INLINE void run(int64_t block_number) {
    const int group = static_cast<int>(threadIdx.x) / kRowThreads;
    thread = static_cast<int>(threadIdx.x) % kRowThreads;
    const int64_t first = block_number * words[9], end = first + words[9] < rows ? first + words[9] : rows;
    const A share = static_cast<A>(constant<double>(words + 10));
    A weight[kEach][kPack], of_weight[kEach][kPack] = {}, of_bias[kEach][kPack] = {};
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const auto w = load<kPack>(address<const S>(words[6]), column(e), columns);
#pragma unroll
      for (int k = 0; k < kPack; ++k) weight[e][k] = factor<A>(w.at[k]);
    }
    const auto clamped = [=](int64_t r) { return r < end ? r : end - 1; };
    Row next = fetch(clamped(first + group));
    for (int64_t begin = first; begin < end; begin += kGroups) {
      const int64_t r = begin + group;
      const Row row = next;
      next = fetch(clamped(r + kGroups));
      NormSums<A> sums = {};
      A h[kEach][kPack];
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
#pragma unroll
        for (int k = 0; k < kPack; ++k) {
          h[e][k] = (factor<A>(row.x[e].at[k]) - row.mean) * row.scale;
          if (column(e) + k >= columns) continue;
          const A t = factor<A>(row.y_bar[e].at[k]) * weight[e][k];
          sums = add_norm_sums::apply(sums, NormSums<A>::of(t, h[e][k]));
        }
      }
      sums = reduce_threads<add_norm_sums, kRowThreads>(sums);
      const A mean = kCentred ? sums.bar * share : A{}, along = sums.along * share;
      if (r >= end) continue;
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        Pack<S, kPack> x_bar;
#pragma unroll
        for (int k = 0; k < kPack; ++k) {
          const A y_bar = factor<A>(row.y_bar[e].at[k]);
          const A pulled = (y_bar * weight[e][k] - mean - h[e][k] * along) * row.scale;
          x_bar.at[k] = store_as<S>(sums.largest == 0 ? A{} : pulled);
          of_weight[e][k] += strong_term(y_bar, h[e][k]);
          of_bias[e][k] += y_bar;
        }
        if (column(e) < columns) use(r * columns + column(e), x_bar);
      }
    }
    A* to = address<A>(words[1]) + (block_number * kGroups + group) * 2 * columns;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const int64_t c = column(e) + k;
        if (c >= columns) continue;
        to[c] = of_weight[e][k];
        to[columns + c] = of_bias[e][k];
      }
    }
  }
};

template <DType D, int kPack, int kEach, int kRowThreads, bool kCentred, class Bring, class Use>
WENGERT_INLINE void norm_cotangent(const int64_t* words, int64_t block_number, Bring bring, Use use) {
  NormCotangent<D, kPack, kEach, kRowThreads, kCentred, Bring, Use>{words, bring, use, words[7], words[8], 0}.run(
      block_number);
}
template <DType D, int kPack, int kEach, int kRowThreads, bool kCentred>
WENGERT_INLINE void norm_cotangent(const int64_t* words, int64_t block_number) {
  norm_cotangent<D, kPack, kEach, kRowThreads, kCentred>(words, block_number, packs_from<Storage<D>, kPack>(words[2]),
                                                         packs_to<Storage<D>, kPack>(words[0]));
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
