// Small matrix products, where a library call costs more than the work: a block makes a tile of 16 by 16 elements, its
// eight warps share the sum over k, and operands go from memory straight to registers.
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

// y = a b, batch by batch; each element goes to `use(position, element)`. Words: to, a, b, batch, m, n, k, strides of a
// (batch, row, column), of b.
template <DType D, class Use>
WENGERT_INLINE void small_product(const int64_t* words, int64_t block_number, Use use) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  constexpr int kTile = 16, kWarps = kThreads / 32, kRows = 2, kCols = 4;
  constexpr int kAhead = sizeof(S) <= 4 ? 8 : sizeof(S) == 8 ? 4 : 2;  // loads on their way before the first is used
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
  for (int i = 0; i < kRows; ++i) {
    const int64_t r = first_row + row + i;
    rows[i] = a + (r < m ? r : m - 1) * words[8];
  }
  for (int j = 0; j < kCols; ++j) {
    const int64_t c = first_col + col + j;
    cols[j] = b + (c < n ? c : n - 1) * words[12];
  }
  A sum[kRows][kCols] = {};
  const int64_t share = (k + kWarps - 1) / kWarps, end = (warp + 1) * share < k ? (warp + 1) * share : k;
  for (int64_t p = warp * share; p < end; p += kAhead) {
    A x[kAhead][kRows], y[kAhead][kCols];
#pragma unroll
    for (int h = 0; h < kAhead; ++h) {
      const int64_t at = p + h < end ? p + h : p;
#pragma unroll
      for (int i = 0; i < kRows; ++i) x[h][i] = factor<A>(rows[i][at * words[9]]);
#pragma unroll
      for (int j = 0; j < kCols; ++j) y[h][j] = factor<A>(cols[j][at * words[11]]);
    }
#pragma unroll
    for (int h = 0; h < kAhead; ++h) {
      if (p + h >= end) break;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kCols; ++j) sum[i][j] = multiply_add(x[h][i], y[h][j], sum[i][j]);
      }
    }
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

template <DType D>
WENGERT_INLINE void small_product(const int64_t* words, int64_t block_number) {
  small_product<D>(words, block_number, [=](int64_t at, Storage<D> y) { address<Storage<D>>(words[0])[at] = y; });
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
