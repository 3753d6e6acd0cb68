// Reading and writing at indices that are data. Sums at equal indices are taken in the order of the indices. An index
// that is out of range reads and writes nothing; it is noted, and the host raises when it next waits for the device.
#pragma once
#include "device_sort.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// Three words of memory that the host reads: a number that says which op it was, the index, the size of the axis.
WENGERT_INLINE int64_t checked_index(int64_t index, int64_t size, int64_t* note, int64_t op) {
  const int64_t i = index < 0 ? index + size : index;
  if (i >= 0 && i < size) return i;
  note[1] = index;
  note[2] = size;
  note[0] = op;
  return -1;
}

// What has no derivative must not be asked for one: notes a number other than zero, as an index for an axis of size
// −2 − reason. Words: from, n, reason, note, number of the op.
template <DType D>
WENGERT_INLINE void note_unless_zero(const int64_t* words, int64_t block_number) {
  const int64_t at = global_thread(block_number);
  if (at >= words[1] || !map<op::not_equal, D>(address<const Storage<D>>(words[0])[at], Storage<D>{})) return;
  int64_t* note = address<int64_t>(words[3]);
  note[2] = -2 - words[2];
  note[0] = words[4];
}

// Arrays are seen as (outer, axis, inner). Words of all: to, from, indices, outer, size of the axis, inner, number of
// indices, note, number of the op.

// to[o, p, i] = from[o, index[p], i]; `kAlong`: index[o, p, i].
template <bool kAlong, int kBytes>
WENGERT_INLINE void take(const int64_t* words, int64_t block_number) {
  using T = BytesOf<kBytes>;
  const int64_t size = words[4], inner = words[5], count = words[6], at = global_thread(block_number);
  if (at >= words[3] * count * inner) return;
  const int64_t i = at % inner, p = at / inner % count, o = at / inner / count;
  const int64_t index =
      checked_index(address<const int64_t>(words[2])[kAlong ? at : p], size, address<int64_t>(words[7]), words[8]);
  address<T>(words[0])[at] = index < 0 ? T{} : address<const T>(words[1])[(o * size + index) * inner + i];
}

// to[o, index, i] += from[o, p, i] for all p in order, onto what is there. A thread for each (o, i): no two write to
// one place.
template <bool kAlong, DType D>
WENGERT_INLINE void add_at(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  const int64_t size = words[4], inner = words[5], count = words[6], at = global_thread(block_number);
  if (at >= words[3] * inner) return;
  const int64_t i = at % inner, o = at / inner;
  for (int64_t p = 0; p < count; ++p) {
    const int64_t from = (o * count + p) * inner + i;
    const int64_t index =
        checked_index(address<const int64_t>(words[2])[kAlong ? from : p], size, address<int64_t>(words[7]), words[8]);
    if (index < 0) continue;
    S& to = address<S>(words[0])[(o * size + index) * inner + i];
    to = map<op::add, D>(to, address<const S>(words[1])[from]);
  }
}

// The same where there are few indices for each place: a thread for each element of `to` looks for those that mean it.
// Nothing was there before.
template <bool kAlong, DType D>
WENGERT_INLINE void collect_at(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  const int64_t size = words[4], inner = words[5], count = words[6], at = global_thread(block_number);
  if (at >= words[3] * size * inner) return;
  const int64_t i = at % inner, a = at / inner % size, o = at / inner / size;
  S sum = {};
  for (int64_t p = 0; p < count; ++p) {
    const int64_t from = (o * count + p) * inner + i;
    const int64_t index =
        checked_index(address<const int64_t>(words[2])[kAlong ? from : p], size, address<int64_t>(words[7]), words[8]);
    if (index == a) sum = map<op::add, D>(sum, address<const S>(words[1])[from]);
  }
  address<S>(words[0])[at] = sum;
}

// index[p] as a number from 0 on, or -1 where it is out of range. Words: to, from, how many, size of the axis, note,
// op.
WENGERT_INLINE void check_indices(const int64_t* words, int64_t block_number) {
  const int64_t at = global_thread(block_number);
  if (at >= words[2]) return;
  address<int64_t>(words[0])[at] =
      checked_index(address<const int64_t>(words[1])[at], words[3], address<int64_t>(words[4]), words[5]);
}

// to[o, a, i] = the sum of from[o, p, i] over all p with index a, in their order. The indices are sorted, and `places`
// says which p each was. Words: to, from, indices, places, outer, size of the axis, inner, number of indices.
template <DType D>
WENGERT_INLINE void sum_at(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  const int64_t size = words[5], inner = words[6], count = words[7], at = global_thread(block_number);
  if (at >= words[4] * size * inner) return;
  const int64_t i = at % inner, a = at / inner % size, o = at / inner / size;
  const int64_t* index = address<const int64_t>(words[2]);
  S sum = {};
  for (int64_t q = count_before<false>(index, count, a, false); q < count && index[q] == a; ++q) {
    const int64_t p = address<const uint32_t>(words[3])[q];
    sum = map<op::add, D>(sum, address<const S>(words[1])[(o * count + p) * inner + i]);
  }
  address<S>(words[0])[at] = sum;
}

// to[p] = whether no later index is the same. Words: to, indices in order, places, how many.
WENGERT_INLINE void mark_last(const int64_t* words, int64_t block_number) {
  const int64_t q = global_thread(block_number), count = words[3];
  if (q >= count) return;
  const int64_t* index = address<const int64_t>(words[1]);
  address<uint8_t>(words[0])[address<const uint32_t>(words[2])[q]] = q + 1 == count || index[q + 1] != index[q];
}

// to[o, a, i] = from[o, p, i] of the last p with index a, or what was there.
template <int kBytes>
WENGERT_INLINE void last_at(const int64_t* words, int64_t block_number) {
  using T = BytesOf<kBytes>;
  const int64_t size = words[5], inner = words[6], count = words[7], at = global_thread(block_number);
  if (at >= words[4] * size * inner) return;
  const int64_t i = at % inner, a = at / inner % size, o = at / inner / size;
  const int64_t* index = address<const int64_t>(words[2]);
  const int64_t q = count_before<false>(index, count, a, true) - 1;
  if (q < 0 || index[q] != a) return;
  const int64_t p = address<const uint32_t>(words[3])[q];
  address<T>(words[0])[at] = address<const T>(words[1])[(o * count + p) * inner + i];
}

// to[o, index, i] = from[o, p, i] for all p in order: the last one stays.
template <bool kAlong, int kBytes>
WENGERT_INLINE void put_at(const int64_t* words, int64_t block_number) {
  using T = BytesOf<kBytes>;
  const int64_t size = words[4], inner = words[5], count = words[6], at = global_thread(block_number);
  if (at >= words[3] * inner) return;
  const int64_t i = at % inner, o = at / inner;
  for (int64_t p = 0; p < count; ++p) {
    const int64_t from = (o * count + p) * inner + i;
    const int64_t index =
        checked_index(address<const int64_t>(words[2])[kAlong ? from : p], size, address<int64_t>(words[7]), words[8]);
    if (index >= 0) address<T>(words[0])[(o * size + index) * inner + i] = address<const T>(words[1])[from];
  }
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
