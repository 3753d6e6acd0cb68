// Sorting of lines, stably: pieces of 256 elements by counting who comes before whom, then runs of twice the length,
// each element finding its place in its neighbour's run. And places in sorted lines.
#pragma once
#include "device_product.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// Whether a stands before b. NaN is larger than every number.
template <bool kDescending, class S>
WENGERT_INLINE bool stands_before(S a, S b) {
  if constexpr (HalfNumber<S>) {
    return stands_before<kDescending>(widen(a), widen(b));
  } else {
    const S low = kDescending ? b : a, high = kDescending ? a : b;
    return high != high ? low == low : low < high;
  }
}

// Elements of a line that stand before x or, with `equal`, not after it.
template <bool kDescending, class S>
WENGERT_INLINE int64_t count_before(const S* line, int64_t n, S x, bool equal) {
  int64_t low = 0;
  while (n > 0) {
    const int64_t half = n / 2;
    const bool before =
        equal ? !stands_before<kDescending>(x, line[low + half]) : stands_before<kDescending>(line[low + half], x);
    low = before ? low + half + 1 : low;
    n = before ? n - half - 1 : half;
  }
  return low;
}

// A NaN, which has no place in an order, is noted if a note is given: as an index for an axis of negative size.
template <class S>
WENGERT_INLINE void note_nan(S x, int64_t* note, int64_t op) {
  bool nan = false;
  if constexpr (HalfNumber<S>) {
    nan = widen(x) != widen(x);
  } else {
    nan = x != x;
  }
  if (!nan || !note) return;
  note[2] = -1;
  note[0] = op;
}

// Words: values, positions, from, elements of a line, between neighbours of it, pieces of a line, note or 0, op. Values
// and positions are packed line by line.
template <bool kDescending, DType D>
WENGERT_INLINE void sort_pieces(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  const int64_t n = words[3], inner = words[4], line = block_number / words[5];
  const int64_t start = block_number % words[5] * kThreads;
  const int count = static_cast<int>(n - start < kThreads ? n - start : kThreads), t = static_cast<int>(threadIdx.x);
  __shared__ S piece[kThreads];
  S x = {};
  if (t < count) {
    x = address<const S>(words[2])[line / inner * n * inner + line % inner + (start + t) * inner];
    piece[t] = x;
    note_nan(x, address<int64_t>(words[6]), words[7]);
  }
  __syncthreads();
  if (t >= count) return;
  int place = 0;
  for (int k = 0; k < count; ++k)
    place += k < t ? !stands_before<kDescending>(x, piece[k]) : k > t && stands_before<kDescending>(piece[k], x);
  address<S>(words[0])[line * n + start + place] = x;
  address<uint32_t>(words[1])[line * n + start + place] = static_cast<uint32_t>(start + t);
}

// Words: values, positions, from both, elements of a line, of a run, in all.
template <bool kDescending, DType D>
WENGERT_INLINE void merge_runs(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  const int64_t at = global_thread(block_number), n = words[4], run = words[5];
  if (at >= words[6]) return;
  const int64_t line = at / n * n, i = at - line, mine = i / run * run;
  const bool right = i / run % 2 != 0;
  const int64_t other = right ? mine - run : mine + run;
  const S* from = address<const S>(words[2]) + line;
  const S x = from[i];
  int64_t to = i;
  if (other < n) {
    const int64_t length = n - other < run ? n - other : run;
    to = (right ? other : mine) + (i - mine) + count_before<kDescending>(from + other, length, x, right);
  }
  address<S>(words[0])[line + to] = x;
  address<uint32_t>(words[1])[line + to] = address<const uint32_t>(words[3])[at];
}

// The first `keep` of each line, where they belong. Words: values or 0, indices or 0, from both, elements of a line,
// between neighbours of it, how many are kept, elements that are written.
template <DType D>
WENGERT_INLINE void sorted_lines(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  const int64_t at = global_thread(block_number), n = words[4], inner = words[5], keep = words[6];
  if (at >= words[7]) return;
  const int64_t k = at / inner % keep, line = at / inner / keep * inner + at % inner;
  if (words[0]) address<S>(words[0])[at] = address<const S>(words[2])[line * n + k];
  if (words[1]) address<int64_t>(words[1])[at] = address<const uint32_t>(words[3])[line * n + k];
}

// Words: places, sorted lines, values, elements of a line, values of a line, values in all, whether equal ones stand
// before, note or 0, op. Of the sorted lines only the ends are looked at for NaN, as on the CPU.
template <DType D>
WENGERT_INLINE void search_lines(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  const int64_t at = global_thread(block_number), n = words[3];
  if (at >= words[5]) return;
  const S* line = address<const S>(words[1]) + at / words[4] * n;
  const S x = address<const S>(words[2])[at];
  int64_t* note = address<int64_t>(words[7]);
  note_nan(x, note, words[8]);
  if (n > 0) note_nan(line[0], note, words[8]);
  if (n > 0) note_nan(line[n - 1], note, words[8]);
  address<int64_t>(words[0])[at] = count_before<false>(line, n, x, words[6] != 0);
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
