// Kernels that move elements: between strides, in pieces, and the ones that write what their position says.
#pragma once
#include "device_group.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

template <int kBytes>
struct Bytes;
template <>
struct Bytes<1> {
  using type = uint8_t;
};
template <>
struct Bytes<2> {
  using type = uint16_t;
};
template <>
struct Bytes<4> {
  using type = uint32_t;
};
template <>
struct Bytes<8> {
  using type = uint64_t;
};
template <>
struct Bytes<16> {
  struct alignas(16) type {
    uint64_t low, high;
  };
};
template <int kBytes>
using BytesOf = typename Bytes<kBytes>::type;

inline constexpr int kThreads = 256;  // of a block, of all kernels here

WENGERT_INLINE int64_t global_thread() { return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; }

// to[...] = from[...]. Words: to, from, n, shape, strides of `to`, strides of `from`.
template <int kBytes, int kAxes, class Index>
WENGERT_INLINE void copy_strided(const int64_t* words) {
  using T = BytesOf<kBytes>;
  const int64_t i = global_thread();
  if (i >= words[2]) return;
  const int64_t* shape = words + 3;
  const Index to = offset_of<kAxes>(static_cast<Index>(i), shape, shape + kAxes);
  const Index from = offset_of<kAxes>(static_cast<Index>(i), shape, shape + 2 * kAxes);
  address<T>(words[0])[to] = address<const T>(words[1])[from];
}

// Pieces of packed memory. Words of each: to, from, bytes, its first block.
template <int kPieces>
WENGERT_INLINE void copy_pieces(const int64_t* words) {
  int piece = 0;
  while (piece + 1 < kPieces && static_cast<int64_t>(blockIdx.x) >= words[4 * (piece + 1) + 3]) ++piece;
  const int64_t* w = words + 4 * piece;
  const int64_t start = ((static_cast<int64_t>(blockIdx.x) - w[3]) * kThreads + threadIdx.x) * 16;
  auto* to = address<char>(w[0]) + start;
  const auto* from = address<const char>(w[1]) + start;
  if (start + 16 <= w[2] && (w[0] | w[1]) % 16 == 0) {
    *reinterpret_cast<BytesOf<16>*>(to) = *reinterpret_cast<const BytesOf<16>*>(from);
    return;
  }
  for (int64_t k = 0; k < 16 && start + k < w[2]; ++k) to[k] = from[k];
}

// Words: to, n, element (two words).
template <int kBytes>
WENGERT_INLINE void fill(const int64_t* words) {
  using T = BytesOf<kBytes>;
  const int64_t i = global_thread();
  if (i < words[1]) address<T>(words[0])[i] = constant<T>(words + 2);
}

// start + i step, computed in C and rounded once. Words: to, n, start, step.
template <DType C, DType D>
WENGERT_INLINE void iota(const int64_t* words) {
  using T = Storage<C>;
  const int64_t i = global_thread();
  if (i >= words[1]) return;
  const T x = constant<T>(words + 2) + static_cast<T>(i) * constant<T>(words + 3);
  address<Storage<D>>(words[0])[i] = convert<C, D>(x);
}

// The upper or lower triangle of matrices. Words: to, from, n, rows, cols, diagonal.
template <bool kUpper, int kBytes>
WENGERT_INLINE void triangle(const int64_t* words) {
  using T = BytesOf<kBytes>;
  const int64_t i = global_thread();
  if (i >= words[2]) return;
  const int64_t col = i % words[4], row = i / words[4] % words[3];
  const bool kept = kUpper ? col - row >= words[5] : col - row <= words[5];
  address<T>(words[0])[i] = kept ? address<const T>(words[1])[i] : T{};
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
