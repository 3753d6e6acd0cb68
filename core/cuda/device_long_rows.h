// Standardised rows that many blocks share, such as those of a batch norm: a block takes a chunk of a row. What chunks
// found is combined in their order by every block that needs it, so a pass over all of them is one launch.
#pragma once
#include "device_norm_sums.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// A row is `segments` runs of packed elements. Words from `at` on: elements of a run, runs, distance of runs, distance
// of rows, chunks of a row, 1 / elements of a row and eps (doubles).
struct LongRows {
  static constexpr int kEach = 8, kChunk = kThreads * kEach;
  int64_t run, segments, apart, row_apart, chunks;
  const int64_t* numbers;
  WENGERT_INLINE explicit LongRows(const int64_t* w)
      : run(w[0]), segments(w[1]), apart(w[2]), row_apart(w[3]), chunks(w[4]), numbers(w + 5) {}
  WENGERT_INLINE int64_t size() const { return run * segments; }
  WENGERT_INLINE int64_t row(int64_t block) const { return block / chunks; }
  WENGERT_INLINE int64_t chunk(int64_t block) const { return block % chunks; }
  WENGERT_INLINE int64_t elements(int64_t chunk) const {
    const int64_t left = size() - chunk * kChunk;
    return left < kChunk ? left : kChunk;
  }
  template <class A>
  WENGERT_INLINE A share() const {
    return static_cast<A>(constant<double>(numbers));
  }
  template <class A>
  WENGERT_INLINE A eps() const {
    return static_cast<A>(constant<double>(numbers + 1));
  }
};

// The elements of a thread, in packs of kPack neighbours: use(pack, place in memory, which pack of the thread). The
// size of a run is a multiple of kPack.
template <int kPack, class Use>
WENGERT_INLINE void for_packs(const LongRows& rows, int64_t block, Use use) {
  const int64_t begin = rows.chunk(block) * LongRows::kChunk, size = rows.size();
  const int64_t base = rows.row(block) * rows.row_apart;
#pragma unroll
  for (int e = 0; e < LongRows::kEach / kPack; ++e) {
    const int64_t i = begin + (static_cast<int64_t>(e) * kThreads + threadIdx.x) * kPack;
    if (i >= size) break;
    const int64_t segment = rows.segments == 1 ? 0 : i / rows.run;
    use(base + segment * rows.apart + (i - segment * rows.run), e);
  }
}

template <class A>
struct Moments {
  A mean, variance;
};

// Of a row, from the mean of each chunk and its sum of squares about that. All threads of the block come here.
template <bool kCentred, class A>
WENGERT_INLINE Moments<A> combined(const LongRows& rows, const A* of_chunks) {
  A sum = {}, squares = {};
  if constexpr (kCentred) {
    for (int64_t c = threadIdx.x; c < rows.chunks; c += kThreads)
      sum += of_chunks[2 * c] * static_cast<A>(rows.elements(c));
    sum = reduce_threads<reduction::sum, kThreads>(sum) * rows.share<A>();
  }
  for (int64_t c = threadIdx.x; c < rows.chunks; c += kThreads) {
    const A apart = of_chunks[2 * c] - sum;
    squares += of_chunks[2 * c + 1] + (kCentred ? apart * apart * static_cast<A>(rows.elements(c)) : A{});
  }
  return {sum, reduce_threads<reduction::sum, kThreads>(squares) * rows.share<A>()};
}

// Words: mean and sum of squares of each chunk, x, then of LongRows.
template <DType D, int kPack, bool kCentred>
WENGERT_INLINE void long_row_moments(const int64_t* words, int64_t block) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  const LongRows rows(words + 2);
  Pack<S, kPack> x[LongRows::kEach / kPack];
  A sum = {}, squares = {};
  for_packs<kPack>(rows, block, [&](int64_t at, int e) {
    x[e] = *reinterpret_cast<const Pack<S, kPack>*>(address<const S>(words[1]) + at);
    for (int k = 0; k < kPack; ++k) sum += factor<A>(x[e].at[k]);
  });
  A mean = {};
  if constexpr (kCentred)
    mean = reduce_threads<reduction::sum, kThreads>(sum) / static_cast<A>(rows.elements(rows.chunk(block)));
  for_packs<kPack>(rows, block, [&](int64_t, int e) {
    for (int k = 0; k < kPack; ++k) {
      const A apart = factor<A>(x[e].at[k]) - mean;
      squares += apart * apart;
    }
  });
  squares = reduce_threads<reduction::sum, kThreads>(squares);
  if (threadIdx.x != 0) return;
  address<A>(words[0])[2 * block] = mean;
  address<A>(words[0])[2 * block + 1] = squares;
}

// Words: y, mean and variance of each row, moments of chunks, x, weight, bias, groups, members of a group, elements of
// a member, then of LongRows.
template <DType D, int kPack, bool kCentred>
WENGERT_INLINE void long_row_standardise(const int64_t* words, int64_t block) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  const LongRows rows(words + 10);
  const int64_t row = rows.row(block), first = row % words[7] * words[8];
  const Moments<A> m = combined<kCentred>(rows, address<const A>(words[3]) + 2 * row * rows.chunks);
  const A scale = A{1} / libm::sqrt(m.variance + rows.eps<A>());
  for_packs<kPack>(rows, block, [&](int64_t at, int) {
    const auto x = *reinterpret_cast<const Pack<S, kPack>*>(address<const S>(words[4]) + at);
    Pack<S, kPack> y;
    for (int k = 0; k < kPack; ++k) {
      const int64_t p = first + (words[8] == 1 ? 0 : (at + k) / words[9] % words[8]);
      const A h = (factor<A>(x.at[k]) - m.mean) * scale;
      y.at[k] = store_as<S>(h * factor<A>(address<const S>(words[5])[p]) + factor<A>(address<const S>(words[6])[p]));
    }
    *reinterpret_cast<Pack<S, kPack>*>(address<S>(words[0]) + at) = y;
  });
  if (rows.chunk(block) != 0 || threadIdx.x != 0) return;
  address<S>(words[1])[row] = store_as<S>(m.mean);
  address<S>(words[2])[row] = store_as<S>(m.variance);
}

template <class A, class S>
WENGERT_INLINE A scale_of_row(const LongRows& rows, const S* variance, int64_t row) {
  return A{1} / libm::sqrt(factor<A>(variance[row]) + rows.eps<A>());
}

// Sums of chunks. Words: sums, y_bar, x, mean, variance, then of LongRows.
template <DType D, int kPack>
WENGERT_INLINE void long_row_sums(const int64_t* words, int64_t block) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  const LongRows rows(words + 5);
  const int64_t row = rows.row(block);
  const A mean = factor<A>(address<const S>(words[3])[row]);
  const A scale = scale_of_row<A>(rows, address<const S>(words[4]), row);
  NormSums<A> sums = {};
  for_packs<kPack>(rows, block, [&](int64_t at, int) {
    const auto y_bar = *reinterpret_cast<const Pack<S, kPack>*>(address<const S>(words[1]) + at);
    const auto x = *reinterpret_cast<const Pack<S, kPack>*>(address<const S>(words[2]) + at);
    for (int k = 0; k < kPack; ++k) {
      const A t = factor<A>(y_bar.at[k]), h = (factor<A>(x.at[k]) - mean) * scale;
      sums = add_norm_sums::apply(sums, NormSums<A>::of(t, h));
    }
  });
  sums = reduce_threads<add_norm_sums, kThreads>(sums);
  if (threadIdx.x == 0) address<NormSums<A>>(words[0])[block] = sums;
}

// Of rows with one member, whose weight is one number. Words: x_bar, weight_bar, bias_bar, sums of chunks, y_bar, x,
// mean, variance, weight, then of LongRows.
template <DType D, int kPack, bool kCentred>
WENGERT_INLINE void long_row_cotangent(const int64_t* words, int64_t block) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  const LongRows rows(words + 9);
  const int64_t row = rows.row(block);
  const auto* of_chunks = address<const NormSums<A>>(words[3]) + row * rows.chunks;
  NormSums<A> sums = {};
  for (int64_t c = threadIdx.x; c < rows.chunks; c += kThreads) sums = add_norm_sums::apply(sums, of_chunks[c]);
  sums = reduce_threads<add_norm_sums, kThreads>(sums);
  const A weight = factor<A>(address<const S>(words[8])[row]), mean = factor<A>(address<const S>(words[6])[row]);
  const A scale = scale_of_row<A>(rows, address<const S>(words[7]), row);
  const A mean_bar = kCentred ? sums.bar * weight * rows.share<A>() : A{},
          along = sums.along * weight * rows.share<A>();
  for_packs<kPack>(rows, block, [&](int64_t at, int) {
    const auto y_bar = *reinterpret_cast<const Pack<S, kPack>*>(address<const S>(words[4]) + at);
    const auto x = *reinterpret_cast<const Pack<S, kPack>*>(address<const S>(words[5]) + at);
    Pack<S, kPack> x_bar;
    for (int k = 0; k < kPack; ++k) {
      const A h = (factor<A>(x.at[k]) - mean) * scale;
      const A pulled = (factor<A>(y_bar.at[k]) * weight - mean_bar - h * along) * scale;
      x_bar.at[k] = store_as<S>(sums.largest == 0 ? A{} : pulled);
    }
    *reinterpret_cast<Pack<S, kPack>*>(address<S>(words[0]) + at) = x_bar;
  });
  if (rows.chunk(block) != 0 || threadIdx.x != 0) return;
  address<S>(words[1])[row] = store_as<S>(sums.along);
  address<S>(words[2])[row] = store_as<S>(sums.bar);
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
