// What generated kernels are made of: the functors of elementwise ops and reductions applied to one element, loads and
// stores of packs, and reductions over the threads of a row. A kernel has one parameter: words of 8 bytes (addresses,
// sizes, constants).
#pragma once
#include <cstring>

#include "device_half_functions.h"
#include "vector_op_reductions.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

template <int kCount>
struct Words {
  int64_t at[kCount];
};

// The first thing in every kernel. Its blocks are there before the launch before it has ended, which saves the time
// that starting them takes; all of that launch's writes are seen from here on. The next launch may come as early.
WENGERT_INLINE void wait_for_launch_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

template <class T>
WENGERT_INLINE T* address(int64_t word) {
  return reinterpret_cast<T*>(word);
}

// Neighbours that one thread loads and stores together.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount <= 16 ? sizeof(T) * kCount : 16) Pack {
  T at[kCount];
};

// Elements [i, i + kCount) of n; those behind the end are not loaded.
template <int kCount, class T, class Index>
WENGERT_INLINE Pack<T, kCount> load(const T* from, Index i, Index n) {
  if (i + kCount <= n) return *reinterpret_cast<const Pack<T, kCount>*>(from + i);
  Pack<T, kCount> x = {};
  for (int k = 0; k < kCount; ++k) {
    if (i + k < n) x.at[k] = from[i + k];
  }
  return x;
}
template <int kCount, class T, class Index>
WENGERT_INLINE void store(T* to, Index i, Index n, const Pack<T, kCount>& x) {
  if (i + kCount <= n) {
    *reinterpret_cast<Pack<T, kCount>*>(to + i) = x;
    return;
  }
  for (int k = 0; k < kCount; ++k) {
    if (i + k < n) to[i + k] = x.at[k];
  }
}
// What brings packs of an array to a kernel that lets others do so, and what uses packs that it makes.
template <class T, int kCount>
WENGERT_INLINE auto packs_from(int64_t word) {
  return [=](int64_t at) { return *reinterpret_cast<const Pack<T, kCount>*>(address<const T>(word) + at); };
}
template <class T, int kCount>
WENGERT_INLINE auto packs_to(int64_t word) {
  return [=](int64_t at, const Pack<T, kCount>& y) { *reinterpret_cast<Pack<T, kCount>*>(address<T>(word) + at) = y; };
}

// Neighbours along an axis with this stride.
template <int kCount, class T, class Index>
WENGERT_INLINE Pack<T, kCount> load_apart(const T* from, Index stride) {
  Pack<T, kCount> x;
#pragma unroll
  for (int k = 0; k < kCount; ++k) x.at[k] = from[k * stride];
  return x;
}

// Where position i of an array of this shape lies. Sizes and strides are words, outermost first.
template <int kAxes, class Index>
WENGERT_INLINE Index offset_of(Index i, const int64_t* shape, const int64_t* strides) {
  Index offset = 0;
#pragma unroll
  for (int k = kAxes - 1; k > 0; --k) {
    const Index size = static_cast<Index>(shape[k]), rest = i / size;
    offset += (i - rest * size) * static_cast<Index>(strides[k]);
    i = rest;
  }
  return offset + i * static_cast<Index>(strides[0]);
}

// Of a register to the type that a reduction accumulates in.
template <class A, class S>
WENGERT_INLINE A accumulated(S x) {
  if constexpr (HalfNumber<S>) {
    return widen(x);
  } else {
    return static_cast<A>(x);
  }
}

template <class A>
WENGERT_INLINE A of_other_thread(A a, int step) {
  constexpr int kWords = (sizeof(A) + 3) / 4;
  uint32_t words[kWords] = {};
  memcpy(words, &a, sizeof(A));
#pragma unroll
  for (int k = 0; k < kWords; ++k) words[k] = __shfl_xor_sync(0xffffffffu, words[k], step);
  memcpy(&a, words, sizeof(A));
  return a;
}

// The reduction over the kThreads neighbouring threads of a row, which all get the same: a tree over the threads of a
// warp, then the warps of a block in order. All threads of the block must come here.
template <class Op, int kThreads, class A>
WENGERT_INLINE A reduce_threads(A a) {
  constexpr int kWithin = kThreads < 32 ? kThreads : 32;
#pragma unroll
  for (int step = kWithin / 2; step > 0; step /= 2) a = Op::apply(a, of_other_thread(a, step));
  if constexpr (kThreads > 32) {
    __shared__ A of_warp[kThreads / 32];
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = a;
    __syncthreads();
    a = of_warp[0];
#pragma unroll
    for (int w = 1; w < kThreads / 32; ++w) a = Op::apply(a, of_warp[w]);
    __syncthreads();
  }
  return a;
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
