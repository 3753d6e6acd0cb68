// Products of tiles that lie in shared memory: y += a bᵀ, where a block's 256 threads hold the elements of y in
// registers. `ScalarTile` computes in float or double. `MatrixTile` has 16-bit factors and sums in float, by the matrix
// units (from sm_80 on). Both say which elements a thread holds: row(i) and column(j) of `at[i][j]`.
#pragma once
#include "device_fragments.h"
#include "device_product.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

template <class T>
struct ScalarTile {
  using Stored = T;  // of factors
  using Sum = T;
  static constexpr int kTile = sizeof(T) == 8 ? 32 : 64, kDepth = 32;  // rows and columns; depth that is staged at once
  static constexpr int kRows = kTile / 16, kColumns = kTile / 16;      // of a thread
  static constexpr int kLanes = 16, kParts = 1;  // neighbouring threads, and groups of warps, that share a row
  WENGERT_INLINE static constexpr int pitch(int depth) { return depth + 1; }  // no two of 16 columns in one bank
  WENGERT_INLINE static int row(int i) { return static_cast<int>(threadIdx.x) / 16 + 16 * i; }
  WENGERT_INLINE static int column(int j) { return static_cast<int>(threadIdx.x) % 16 + 16 * j; }
  WENGERT_INLINE static int part() { return 0; }

  T at[kRows][kColumns] = {};

  // b of kTile rows; both of kDepth elements a row.
  WENGERT_INLINE void multiply(const T* a, int pitch_a, const T* b, int pitch_b) {
#pragma unroll 4
    for (int k = 0; k < kDepth; ++k) {
      T x[kRows], y[kColumns];
#pragma unroll
      for (int i = 0; i < kRows; ++i) x[i] = a[row(i) * pitch_a + k];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) y[j] = b[column(j) * pitch_b + k];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) at[i][j] = libm::fma(x[i], y[j], at[i][j]);
      }
    }
  }
};

template <class S>
struct MatrixTile {
  using Stored = S;
  using Sum = float;
  static constexpr int kTile = 64, kDepth = 64;
  static constexpr int kRows = 2, kColumns = 8;
  static constexpr int kLanes = 4, kParts = 2;
  WENGERT_INLINE static constexpr int pitch(int depth) { return depth + 8; }  // rows of fragments in different banks
  WENGERT_INLINE static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  WENGERT_INLINE static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  WENGERT_INLINE static int row(int i) { return warp() % 4 * 16 + lane() / 4 + 8 * i; }
  WENGERT_INLINE static int column(int j) { return warp() / 4 * 32 + j / 2 * 8 + lane() % 4 * 2 + j % 2; }
  WENGERT_INLINE static int part() { return warp() / 4; }

  float at[kRows][kColumns] = {};

  WENGERT_INLINE static uint32_t pair(const S* from) { return *reinterpret_cast<const uint32_t*>(from); }

  WENGERT_INLINE void multiply(const S* a, int pitch_a, const S* b, int pitch_b) {
    const S* mine = a + row(0) * pitch_a + lane() % 4 * 2;
    const S* theirs = b + (warp() / 4 * 32 + lane() / 4) * pitch_b + lane() % 4 * 2;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      const uint32_t x[4] = {pair(mine + k), pair(mine + 8 * pitch_a + k), pair(mine + k + 8),
                             pair(mine + 8 * pitch_a + k + 8)};
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const uint32_t y[2] = {pair(theirs + n * 8 * pitch_b + k), pair(theirs + n * 8 * pitch_b + k + 8)};
        multiply_fragments<S>(at[0][2 * n], at[0][2 * n + 1], at[1][2 * n], at[1][2 * n + 1], x, y);
      }
    }
  }
};

}  // namespace wengert::WENGERT_ISA_NAMESPACE
