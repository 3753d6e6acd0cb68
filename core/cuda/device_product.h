// Matrix products where a library call costs more than the work, or more than what it saves: `small_product`, where a
// block makes a tile of 16 by 16 elements, its eight warps share the sum over k, and operands go from memory straight
// to registers; and `tiled_product`.
#pragma once
#include "device_memory.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

template <class A, class S>
WENGERT_INLINE A factor(S x) {
  if constexpr (HalfNumber<S>) {
    return widen(x);
  } else {
    return static_cast<A>(x);
  }
}

template <class A>
WENGERT_INLINE A multiply_add(A a, A b, A c) {
  if constexpr (Float<A>) {
    return libm::fma(a, b, c);
  } else if constexpr (ComplexNumber<A>) {
    const A p = complex::mul(a, b);
    return {c.re + p.re, c.im + p.im};
  } else {
    return a * b + c;
  }
}

// Which neighbours of a factor are packed, so that a thread loads them together: along the sum, across it, or none.
enum class Packed { along, across, none };

// x[h][i] = element p + h of line i. Lines that are packed across the sum begin at lines[0]; `apart` is the distance of
// elements along the sum.
template <Packed kPacked, class A, class S, int kAhead, int kLines>
WENGERT_INLINE void bring(A (&x)[kAhead][kLines], const S* const (&lines)[kLines], int64_t p, int64_t apart) {
  if constexpr (kPacked == Packed::along) {
    constexpr int kPack = 16 / sizeof(S) < kAhead ? 16 / sizeof(S) : kAhead;
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
#pragma unroll
      for (int h = 0; h < kAhead; h += kPack) {
        const auto neighbours = *reinterpret_cast<const Pack<S, kPack>*>(lines[i] + p + h);
#pragma unroll
        for (int k = 0; k < kPack; ++k) x[h + k][i] = factor<A>(neighbours.at[k]);
      }
    }
  } else if constexpr (kPacked == Packed::across) {
#pragma unroll
    for (int h = 0; h < kAhead; ++h) {
      const auto neighbours = *reinterpret_cast<const Pack<S, kLines>*>(lines[0] + (p + h) * apart);
#pragma unroll
      for (int i = 0; i < kLines; ++i) x[h][i] = factor<A>(neighbours.at[i]);
    }
  } else {
#pragma unroll
    for (int h = 0; h < kAhead; ++h) {
#pragma unroll
      for (int i = 0; i < kLines; ++i) x[h][i] = factor<A>(lines[i][(p + h) * apart]);
    }
  }
}

// The addresses of neighbouring lines from `first` on; those behind the last one repeat it, in whole packs where they
// are packed across the sum.
template <Packed kPacked, class S, int kLines>
WENGERT_INLINE void find_lines(const S* (&lines)[kLines], const S* from, int64_t first, int64_t count, int64_t stride) {
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
    const int64_t last = kPacked == Packed::across ? count - kLines : count - 1;
    const int64_t line = kPacked == Packed::across ? first : first + i;
    lines[i] = from + (line < last ? line : last) * stride;
  }
}

// y = a b, batch by batch; each element goes to `use(position, element)`. Words: to, a, b, batch, m, n, k, strides of a
// (batch, row, column), of b. kDeep: more loads on their way, for long sums of few elements. The order of a sum depends
// on its length alone.
template <DType D, Packed kA, Packed kB, bool kDeep, class Use>
WENGERT_INLINE void small_product(const int64_t* words, int64_t block_number, Use use) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  constexpr int kTile = 16, kWarps = kThreads / 32, kRows = 2, kCols = 4;
  constexpr int kAhead = (sizeof(S) <= 4 ? 8 : sizeof(S) == 8 ? 4 : 2) * (kDeep ? 2 : 1);
  const int64_t m = words[4], n = words[5], k = words[6];
  const uint32_t across = static_cast<uint32_t>((n + kTile - 1) / kTile), down = (m + kTile - 1) / kTile;
  const uint32_t number = static_cast<uint32_t>(block_number), batch = number / (across * down);
  const uint32_t tile = number - batch * across * down;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = lane / 4 * kRows, col = lane % 4 * kCols;
  const int64_t first_row = tile / across * kTile, first_col = tile % across * kTile;
  const S* a = address<const S>(words[1]) + batch * words[7];
  const S* b = address<const S>(words[2]) + batch * words[10];
  const S* rows[kRows];
  const S* cols[kCols];
  find_lines<kA>(rows, a, first_row + row, m, words[8]);
  find_lines<kB>(cols, b, first_col + col, n, words[12]);
  A sum[kRows][kCols] = {};
  const auto add = [&](const auto& x, const auto& y, int h) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kCols; ++j) sum[i][j] = multiply_add(x[h][i], y[h][j], sum[i][j]);
    }
  };
  const int64_t share = ((k + kWarps - 1) / kWarps + kAhead - 1) / kAhead * kAhead;
  const int64_t end = (warp + 1) * share < k ? (warp + 1) * share : k;
  int64_t p = warp * share;
  for (; p + kAhead <= end; p += kAhead) {
    A x[kAhead][kRows], y[kAhead][kCols];
    bring<kA>(x, rows, p, words[9]);
    bring<kB>(y, cols, p, words[11]);
#pragma unroll
    for (int h = 0; h < kAhead; ++h) add(x, y, h);
  }
  for (; p < end; ++p) {
    A x[1][kRows], y[1][kCols];
    bring<kA == Packed::across ? Packed::across : Packed::none>(x, rows, p, words[9]);
    bring<kB == Packed::across ? Packed::across : Packed::none>(y, cols, p, words[11]);
    add(x, y, 0);
  }
  __shared__ A of_warp[kWarps][kTile * kTile];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kCols; ++j) of_warp[warp][(row + i) * kTile + col + j] = sum[i][j];
  }
  __syncthreads();
  const int64_t r = first_row + threadIdx.x / kTile, c = first_col + threadIdx.x % kTile;
  if (r >= m || c >= n) return;
  A total = of_warp[0][threadIdx.x];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) total = reduction::sum::apply(total, of_warp[w][threadIdx.x]);
  use((static_cast<int64_t>(batch) * m + r) * n + c, store_as<S>(total));
}

// A thread's share of a tile of 64 lines and 16 steps along the sum, which begins at `begin` of k: four neighbours
// where the factor is packed, otherwise such that neighbours read neighbours. What lies outside is 0; of lines that are
// packed across the sum there are a multiple of four.
template <Packed kPacked, class A, class S>
WENGERT_INLINE void bring_tile(A (&x)[4], const S* from, int64_t first, int64_t count, int64_t line_stride,
                               int64_t along_stride, int64_t begin, int64_t k) {
  const int t = static_cast<int>(threadIdx.x);
  const int line = kPacked == Packed::across ? t % 16 * 4 : kPacked == Packed::along ? t / 4 : t % 64;
  const int depth = kPacked == Packed::across ? t / 16 : kPacked == Packed::along ? t % 4 * 4 : t / 64 * 4;
  const int64_t l = first + line, p = begin + depth;
  constexpr bool kAlong = kPacked != Packed::across;  // the four elements follow each other along the sum
  const bool whole = l < count && (kAlong ? p + 4 <= k : p < k);
  if (kPacked != Packed::none && whole) {
    const auto found = *reinterpret_cast<const Pack<S, 4>*>(from + l * line_stride + p * along_stride);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = factor<A>(found.at[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      x[i] = kAlong && l < count && p + i < k ? factor<A>(from[l * line_stride + (p + i) * along_stride]) : A{};
  }
}
template <Packed kPacked, class A, int kPitch>
WENGERT_INLINE void put_tile(A (&to)[16][kPitch], const A (&x)[4]) {
  const int t = static_cast<int>(threadIdx.x);
  if constexpr (kPacked == Packed::across) {
    *reinterpret_cast<Pack<A, 4>*>(&to[t / 16][t % 16 * 4]) = {x[0], x[1], x[2], x[3]};
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kPacked == Packed::along)
        to[t % 4 * 4 + i][t / 4] = x[i];
      else
        to[t / 64 * 4 + i][t % 64] = x[i];
    }
  }
}

// The same in tiles of 64 by 64 elements, for products whose results are many and sums short: factors go through shared
// memory, and what is done with the elements, such as an optimizer's step, is done while others still compute. With
// kPacks, `use` is given packs of four neighbours, which begin at aligned positions; otherwise elements.
template <DType D, Packed kA, Packed kB, bool kPacks, class Use>
WENGERT_INLINE void tiled_product(const int64_t* words, int64_t block_number, Use use) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  constexpr int kTile = 64, kDepth = 16, kEach = 4, kSide = 16, kPitch = kTile + kEach;
  const int64_t m = words[4], n = words[5], k = words[6];
  const uint32_t across = static_cast<uint32_t>((n + kTile - 1) / kTile), down = (m + kTile - 1) / kTile;
  const uint32_t number = static_cast<uint32_t>(block_number), batch = number / (across * down);
  const uint32_t tile = number - batch * across * down;
  const int64_t first_row = tile / across * kTile, first_col = tile % across * kTile;
  const S* a = address<const S>(words[1]) + batch * words[7];
  const S* b = address<const S>(words[2]) + batch * words[10];
  alignas(16) __shared__ A left[kDepth][kPitch], right[kDepth][kPitch];
  const int t = static_cast<int>(threadIdx.x);
  A x[kEach], y[kEach];
  const auto fetch = [&](int64_t begin) {
    bring_tile<kA>(x, a, first_row, m, words[8], words[9], begin, k);
    bring_tile<kB>(y, b, first_col, n, words[12], words[11], begin, k);
  };
  A sum[kEach][kEach] = {};
  const int row_at = t / kSide * kEach, col_at = t % kSide * kEach;
  fetch(0);
  for (int64_t begin = 0; begin < k; begin += kDepth) {
    put_tile<kA>(left, x);
    put_tile<kB>(right, y);
    __syncthreads();
    if (begin + kDepth < k) fetch(begin + kDepth);
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const auto rows = *reinterpret_cast<const Pack<A, kEach>*>(left[d] + row_at);
      const auto columns = *reinterpret_cast<const Pack<A, kEach>*>(right[d] + col_at);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) sum[i][j] = multiply_add(rows.at[i], columns.at[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
  const int64_t c = first_col + col_at;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t r = first_row + row_at + i;
    if (r >= m || c >= n) break;
    Pack<S, kEach> made;
#pragma unroll
    for (int j = 0; j < kEach; ++j) made.at[j] = store_as<S>(sum[i][j]);
    const int64_t at = (static_cast<int64_t>(batch) * m + r) * n + c;
    if constexpr (kPacks) {
      use(at, made);
    } else {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        if (c + j < n) use(at + j, made.at[j]);
      }
    }
  }
}
template <DType D, Packed kA, Packed kB, bool kPacks>
WENGERT_INLINE void tiled_product(const int64_t* words, int64_t block_number) {
  if constexpr (kPacks) {
    tiled_product<D, kA, kB, true>(words, block_number, packs_to<Storage<D>, 4>(words[0]));
  } else {
    tiled_product<D, kA, kB, false>(words, block_number,
                                    [=](int64_t at, Storage<D> y) { address<Storage<D>>(words[0])[at] = y; });
  }
}

template <DType D, Packed kA, Packed kB, bool kDeep>
WENGERT_INLINE void small_product(const int64_t* words, int64_t block_number) {
  small_product<D, kA, kB, kDeep>(words, block_number,
                                  [=](int64_t at, Storage<D> y) { address<Storage<D>>(words[0])[at] = y; });
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
