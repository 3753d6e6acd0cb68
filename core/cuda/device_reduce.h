// Reductions over any axes, in an order that depends on the shape alone: parts of a chunk by the threads of a block,
// chunks one after the other by a second kernel.
#pragma once
#include "device_memory.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// Words: to, from, kept elements, reduced elements, elements of a chunk, shape and strides of the kept axes, then of
// the reduced ones. A block reduces one chunk: of 32 kept elements side by side, whose neighbours are neighbours in
// memory
// (`kColumns`), or of one. Chunk c of kept element k goes to to[c * kept + k].
template <class Op, DType D, DType Out, bool kColumns, int kKept, int kReduced>
WENGERT_INLINE void reduce_chunks(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  using A = Accumulator<Op, S>;
  constexpr int kSide = kColumns ? 32 : 1, kParts = kThreads / kSide;
  const int64_t kept = words[2], reduced = words[3], chunk = words[4];
  const int64_t tiles = (kept + kSide - 1) / kSide;
  const int64_t tile = block_number % tiles, number = block_number / tiles;
  const int side = static_cast<int>(threadIdx.x) % kSide, part = static_cast<int>(threadIdx.x) / kSide;
  const int64_t wanted = tile * kSide + side, k = wanted < kept ? wanted : kept - 1;
  const int64_t* shape = words + 5;
  const int64_t* within = shape + 2 * kKept;
  const S* from = address<const S>(words[1]) + offset_of<kKept>(k, shape, shape + kKept);
  const int64_t end = (number + 1) * chunk < reduced ? (number + 1) * chunk : reduced;
  A a = Op::template identity<A>();
  for (int64_t r = number * chunk + part; r < end; r += kParts)
    a = Op::apply(a, accumulated<A>(from[offset_of<kReduced>(r, within, within + kReduced)]));
  __shared__ A of_part[kThreads];
  of_part[threadIdx.x] = a;
  __syncthreads();
  for (int step = kParts / 2; step > 0; step /= 2) {
    if (part < step) of_part[threadIdx.x] = Op::apply(of_part[threadIdx.x], of_part[threadIdx.x + step * kSide]);
    __syncthreads();
  }
  if (part == 0 && wanted < kept)
    address<Storage<Out>>(words[0])[number * kept + k] = store_as<Storage<Out>>(of_part[side]);
}

// Columns of a matrix whose rows lie apart: a block reduces a chunk of the rows of kAcross packs of columns, and that
// many threads take a row of it together. Words: to, from, columns, rows, rows of a chunk, stride of the rows. Chunk c
// of column k goes to to[c * columns + k].
template <class Op, DType D, DType Out, int kPack, int kAcross>
WENGERT_INLINE void reduce_columns(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  using A = Accumulator<Op, S>;
  constexpr int kParts = kThreads / kAcross, kAhead = 8;  // rows on their way before the first is used
  const int64_t columns = words[2], rows = words[3], chunk = words[4], stride = words[5];
  const int64_t tiles = (columns + kAcross * kPack - 1) / (kAcross * kPack);
  const int64_t tile = block_number % tiles, number = block_number / tiles;
  const int lane = static_cast<int>(threadIdx.x) % kAcross, part = static_cast<int>(threadIdx.x) / kAcross;
  const int64_t wanted = (tile * kAcross + lane) * kPack, column = wanted < columns ? wanted : columns - kPack;
  const S* from = address<const S>(words[1]) + column;
  const int64_t end = (number + 1) * chunk < rows ? (number + 1) * chunk : rows;
  A sum[kPack];
#pragma unroll
  for (int k = 0; k < kPack; ++k) sum[k] = Op::template identity<A>();
  for (int64_t first = number * chunk + part; first < end; first += kAhead * kParts) {
    Pack<S, kPack> x[kAhead];
#pragma unroll
    for (int h = 0; h < kAhead; ++h) {
      const int64_t r = first + h * kParts;
      x[h] = *reinterpret_cast<const Pack<S, kPack>*>(from + (r < end ? r : first) * stride);
    }
#pragma unroll
    for (int h = 0; h < kAhead; ++h) {
      if (first + h * kParts >= end) break;
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] = Op::apply(sum[k], accumulated<A>(x[h].at[k]));
    }
  }
  __shared__ A of_part[kParts][kAcross * kPack];
#pragma unroll
  for (int k = 0; k < kPack; ++k) of_part[part][k * kAcross + lane] = sum[k];
  __syncthreads();
  // Column (lane, k) lies at k * kAcross + lane, so that neighbours write to different banks.
  for (int at = static_cast<int>(threadIdx.x); at < kAcross * kPack; at += kThreads) {
    const int64_t k = (tile * kAcross + at % kAcross) * kPack + at / kAcross;
    if (k >= columns) continue;
    A total = of_part[0][at];
#pragma unroll
    for (int p = 1; p < kParts; ++p) total = Op::apply(total, of_part[p][at]);
    address<Storage<Out>>(words[0])[number * columns + k] = store_as<Storage<Out>>(total);
  }
}

// The position of the first largest (smallest) element along an axis; a NaN counts as both. Words: to, from, kept
// elements, reduced elements, stride of the reduced axis, shape and strides of the kept axes.
template <bool kLargest, DType D, int kKept>
WENGERT_INLINE void arg_reduce(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  const int64_t kept = block_number;
  const auto value = [&](int64_t r) {
    const S x = (address<const S>(words[1]) + offset_of<kKept>(kept, words + 5, words + 5 + kKept))[r * words[4]];
    if constexpr (HalfNumber<S>) {
      return widen(x);
    } else {
      return x;
    }
  };
  const auto better = [&](int64_t other, int64_t best) {  // whether `other` is to be taken
    if (best < 0) return other >= 0;
    if (other < 0) return false;
    const auto x = value(other), y = value(best);
    if (y != y) return x != x && other < best;
    if (x != x || (kLargest ? x > y : x < y)) return true;
    return x == y && other < best;
  };
  int64_t best = -1;
  for (int64_t r = threadIdx.x; r < words[3]; r += kThreads)
    if (better(r, best)) best = r;
  __shared__ int64_t of_thread[kThreads];
  of_thread[threadIdx.x] = best;
  __syncthreads();
  for (int step = kThreads / 2; step > 0; step /= 2) {
    if (threadIdx.x < step && better(of_thread[threadIdx.x + step], of_thread[threadIdx.x]))
      of_thread[threadIdx.x] = of_thread[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) address<int64_t>(words[0])[kept] = of_thread[0];
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
