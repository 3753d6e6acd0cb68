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

// y = a b, batch by batch. Words: to, a, b, batch, m, n, k, strides of a (batch, row, column), of b.
template <DType D>
WENGERT_INLINE void small_product(const int64_t* words) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  constexpr int kTile = 16, kWarps = kThreads / 32, kRows = 2, kCols = 4;
  const int64_t m = words[4], n = words[5], k = words[6];
  const int64_t across = (n + kTile - 1) / kTile, down = (m + kTile - 1) / kTile;
  const int64_t tile = blockIdx.x % (across * down), batch = blockIdx.x / (across * down);
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
#pragma unroll 4
  for (int64_t p = warp * share; p < end; ++p) {
    A x[kRows], y[kCols];
#pragma unroll
    for (int i = 0; i < kRows; ++i) x[i] = factor<A>(rows[i][p * words[9]]);
#pragma unroll
    for (int j = 0; j < kCols; ++j) y[j] = factor<A>(cols[j][p * words[11]]);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kCols; ++j) sum[i][j] = multiply_add(x[i], y[j], sum[i][j]);
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
  address<S>(words[0])[(batch * m + r) * n + c] = store_as<S>(total);
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
