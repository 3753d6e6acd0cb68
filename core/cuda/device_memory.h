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

// A kernel may run the blocks of several functions: each is told the number of its own.
WENGERT_INLINE int64_t global_thread(int64_t block_number) { return block_number * kThreads + threadIdx.x; }

// a / n of numbers that are not negative, by 32 bits where they fit: a division of 64 bits takes several times as long.
WENGERT_INLINE int64_t quotient(int64_t a, int64_t n) {
  if (n == 1) return a;
  return ((a | n) >> 32) == 0 ? static_cast<uint32_t>(a) / static_cast<uint32_t>(n) : a / n;
}
WENGERT_INLINE int64_t remainder(int64_t a, int64_t n) { return a - quotient(a, n) * n; }

// to[...] = from[...]. Words: to, from, n, shape, strides of `to`, strides of `from`.
template <int kBytes, int kAxes, class Index>
WENGERT_INLINE void copy_strided(const int64_t* words, int64_t block_number) {
  using T = BytesOf<kBytes>;
  const int64_t i = global_thread(block_number);
  if (i >= words[2]) return;
  const int64_t* shape = words + 3;
  const Index to = offset_of<kAxes>(static_cast<Index>(i), shape, shape + kAxes);
  const Index from = offset_of<kAxes>(static_cast<Index>(i), shape, shape + 2 * kAxes);
  address<T>(words[0])[to] = address<const T>(words[1])[from];
}

// Words: to, n, element (two words).
template <int kBytes, int kPack>
WENGERT_INLINE void fill(const int64_t* words, int64_t block_number) {
  using T = BytesOf<kBytes>;
  const int64_t i = global_thread(block_number) * kPack;
  if (i >= words[1]) return;
  Pack<T, kPack> x;
  for (int k = 0; k < kPack; ++k) x.at[k] = constant<T>(words + 2);
  store<kPack>(address<T>(words[0]), i, words[1], x);
}

// start + i step, computed in C and rounded once. Words: to, n, start, step.
template <DType C, DType D>
WENGERT_INLINE void iota(const int64_t* words, int64_t block_number) {
  using T = Storage<C>;
  const int64_t i = global_thread(block_number);
  if (i >= words[1]) return;
  const T x = constant<T>(words + 2) + static_cast<T>(i) * constant<T>(words + 3);
  address<Storage<D>>(words[0])[i] = convert<C, D>(x);
}

// The upper or lower triangle of matrices. Words: to, from, n, rows, cols, diagonal.
template <bool kUpper, int kBytes>
WENGERT_INLINE void triangle(const int64_t* words, int64_t block_number) {
  using T = BytesOf<kBytes>;
  const int64_t i = global_thread(block_number);
  if (i >= words[2]) return;
  const int64_t col = i % words[4], row = i / words[4] % words[3];
  const bool kept = kUpper ? col - row >= words[5] : col - row <= words[5];
  address<T>(words[0])[i] = kept ? address<const T>(words[1])[i] : T{};
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
