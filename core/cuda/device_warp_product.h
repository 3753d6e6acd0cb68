// Products of matrices in shared memory by single warps and their matrix units (sm_80 and later): 16 rows of a result
// in registers. Factors have 16 bits, or are float: then each is the sum of two numbers of 11 bits, and three of their
// four products are summed, the smaller ones first, which is nearly as exact as float's own products (the scheme of
// Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores", 2022).
#pragma once
#include "device_fragments.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// 16 rows and 8 kTiles columns of a product, in the threads of a warp: at[t][0] and [1] are neighbours in row lane / 4,
// at[t][2] and [3] are eight rows below them.
template <int kTiles>
struct WarpSums {
  float at[kTiles][4] = {};
  WENGERT_INLINE static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  WENGERT_INLINE static int row(int half) { return lane() / 4 + 8 * half; }
  WENGERT_INLINE static int column(int t) { return 8 * t + lane() % 4 * 2; }
};

// Matrices with rows of kWidth elements, kPitch apart, of which kStep are multiplied at once.
template <class S, int kWidth>
struct WarpProduct {
  static constexpr bool kHalf = sizeof(S) == 2;
  static constexpr int kPitch = kWidth + 8;  // what a warp loads together lies in different banks
  static constexpr int kStep = kHalf ? 16 : 8, kSteps = kWidth / kStep;
  using Factors = uint32_t[kSteps][4];  // 16 rows as left factors
  using Sums = WarpSums<kWidth / 8>;
  // Where the elements of a thread begin, or the row of which it tells its warp. Of float factors, numbers t and t + 4
  // of a step, which are the same thread's, are columns 2 t and 2 t + 1: sums are factors as they are.
  using Place = std::conditional_t<kHalf, SharedAddress, const S*>;

  WENGERT_INLINE static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  WENGERT_INLINE static Place place(S* tile, int row, int column) {
    if constexpr (kHalf) {
      return shared_address(tile + row * kPitch + column);
    } else {
      return tile + row * kPitch + column;
    }
  }
  WENGERT_INLINE static Place in_rows(S* tile) {
    return kHalf ? place(tile, lane() / 16 * 8 + lane() % 8, lane() / 8 % 2 * 8)
                 : place(tile, lane() / 4, lane() % 4 * 2);
  }
  WENGERT_INLINE static Place in_columns(S* tile) {
    return kHalf ? place(tile, lane() % 16, lane() / 16 * 8) : place(tile, lane() % 4 * 2, lane() / 4);
  }
  WENGERT_INLINE static Place in_left(S* tile) { return kHalf ? in_columns(tile) : in_rows(tile); }
  WENGERT_INLINE static Place behind(Place at, int row, int column) {
    return at + (row * kPitch + column) * (kHalf ? static_cast<int>(sizeof(S)) : 1);
  }
  WENGERT_INLINE static void load_pair(uint32_t& left, uint32_t& right, const float* from) {
    const auto pair = *reinterpret_cast<const Pack<uint32_t, 2>*>(from);
    left = pair.at[0];
    right = pair.at[1];
  }

  // Step k of 16 rows as left factors.
  WENGERT_INLINE static void load_left(uint32_t (&a)[4], Place tile, int k) {
    if constexpr (kHalf) {
      load_fragments<false>(a, behind(tile, 0, kStep * k));
    } else {
      load_pair(a[0], a[2], behind(tile, 0, kStep * k));
      load_pair(a[1], a[3], behind(tile, 8, kStep * k));
    }
  }
  WENGERT_INLINE static void load_left(Factors& a, S* tile) {
    const Place from = in_left(tile);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) load_left(a[k], from, k);
  }
  // Right factors of two tiles of eight columns, which are rows of the tile.
  WENGERT_INLINE static void load_rows(uint32_t (&b)[4], Place tile, int t, int k) {
    if constexpr (kHalf) {
      load_fragments<false>(b, behind(tile, 8 * t, kStep * k));
    } else {
      load_pair(b[0], b[1], behind(tile, 8 * t, kStep * k));
      load_pair(b[2], b[3], behind(tile, 8 * t + 8, kStep * k));
    }
  }
  WENGERT_INLINE static void load_columns(uint32_t (&b)[4], Place tile, int t, int k) {
    if constexpr (kHalf) {
      load_fragments<true>(b, behind(tile, kStep * k, 8 * t));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) b[i] = std::bit_cast<uint32_t>(*behind(tile, kStep * k + i % 2, 8 * t + i / 2 * 8));
    }
  }

  // The nearest number of 11 bits, and what is left.
  WENGERT_INLINE static void split(uint32_t x, uint32_t& high, uint32_t& low) {
    high = (x + 0x1000u) & 0xffffe000u;
    low = std::bit_cast<uint32_t>(std::bit_cast<float>(x) - std::bit_cast<float>(high));
  }
  WENGERT_INLINE static void multiply_step(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const uint32_t b[2] = {b0, b1};
    if constexpr (kHalf) {
      multiply_fragments<S>(sum[0], sum[1], sum[2], sum[3], a, b);
    } else {
      uint32_t a_high[4], a_low[4], b_high[2], b_low[2];
#pragma unroll
      for (int i = 0; i < 4; ++i) split(a[i], a_high[i], a_low[i]);
#pragma unroll
      for (int i = 0; i < 2; ++i) split(b[i], b_high[i], b_low[i]);
      multiply_truncated(sum, a_low, b_high);
      multiply_truncated(sum, a_high, b_low);
      multiply_truncated(sum, a_high, b_high);
    }
  }
  template <int kTiles>
  WENGERT_INLINE static void multiply_pair(WarpSums<kTiles>& sum, int t, const uint32_t (&a)[4],
                                           const uint32_t (&b)[4]) {
    multiply_step(sum.at[t], a, b[0], b[1]);
    multiply_step(sum.at[t + 1], a, b[2], b[3]);
  }

  // sum += a bᵀ for 8 kTiles rows of b.
  template <int kTiles>
  WENGERT_INLINE static void multiply_rows(WarpSums<kTiles>& sum, const uint32_t (&a)[4], Place b, int k) {
#pragma unroll
    for (int t = 0; t < kTiles; t += 2) {
      uint32_t y[4];
      load_rows(y, b, t, k);
      multiply_pair(sum, t, a, y);
    }
  }
  template <int kTiles>
  WENGERT_INLINE static void multiply_rows(WarpSums<kTiles>& sum, const Factors& a, S* b) {
    const Place from = in_rows(b);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) multiply_rows(sum, a[k], from, k);
  }
  // The same where the left factors stay in shared memory.
  template <int kTiles>
  WENGERT_INLINE static void multiply_rows(WarpSums<kTiles>& sum, S* a, S* b) {
    const Place left = in_left(a), from = in_rows(b);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t x[4];
      load_left(x, left, k);
      multiply_rows(sum, x, from, k);
    }
  }
  // Columns of sums as left factors: step k.
  template <int kTiles>
  WENGERT_INLINE static void as_factors(uint32_t (&a)[4], const WarpSums<kTiles>& x, int k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kHalf) {
        const float (&pair)[4] = x.at[2 * k + i / 2];
        a[i] = pack_pair<S>(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
      } else {
        a[i] = std::bit_cast<uint32_t>(x.at[k][i % 2 * 2 + i / 2]);
      }
    }
  }
  // sum += a b for 8 kTiles rows of b.
  template <int kTiles>
  WENGERT_INLINE static void multiply_columns(Sums& sum, const WarpSums<kTiles>& a, S* b) {
    const Place from = in_columns(b);
#pragma unroll
    for (int k = 0; k < 8 * kTiles / kStep; ++k) {
      uint32_t x[4];
      as_factors(x, a, k);
#pragma unroll
      for (int t = 0; t < kWidth / 8; t += 2) {
        uint32_t y[4];
        load_columns(y, from, t, k);
        multiply_pair(sum, t, x, y);
      }
    }
  }
};

}  // namespace wengert::WENGERT_ISA_NAMESPACE
