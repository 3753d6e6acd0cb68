// Maps, sums and maxima of rows, pack by pack. A step f(i, lanes) reads and writes elements from i on through `lanes`:
// all of a pack, or the first few at the end of a row; `only` makes the others zero.
#pragma once
#include "vector_pack.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

struct AllLanes {
  template <class T>
  WENGERT_INLINE Pack<T> load(const T* p, T) const {
    return load_pack(p);
  }
  template <class T>
  WENGERT_INLINE void store(T* p, const Pack<T>& x) const {
    store_pack(p, x);
  }
  template <class T>
  WENGERT_INLINE Pack<T> only(const Pack<T>& x) const {
    return x;
  }
};

struct FirstLanes {
  int64_t n;
  template <class T>
  WENGERT_INLINE Pack<T> load(const T* p, T rest) const {
    return load_first(p, n, rest);
  }
  template <class T>
  WENGERT_INLINE void store(T* p, const Pack<T>& x) const {
    store_first(p, n, x);
  }
  template <class T>
  WENGERT_INLINE Pack<T> only(const Pack<T>& x) const {
    return first(x, n);
  }
};

template <class T, class Step>
WENGERT_INLINE void for_packs(int64_t n, Step step) {
  constexpr int64_t kLanes = Pack<T>::kLanes;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step(i, AllLanes{});
  if (i < n) step(i, FirstLanes{n - i});
}

// Σ terms, which are zero in lanes beyond the row. In four sums of a block, so that additions need not wait for each
// other; the order depends on n only.
template <class T, class Term>
WENGERT_INLINE T sum_packs(int64_t n, Term term) {
  constexpr int64_t kLanes = Pack<T>::kLanes, kBlock = 256 * kLanes;
  Pack<T> total(T{0});
  for (int64_t i = 0, end = 0; i < n;) {
    end = n - end < kBlock ? n : end + kBlock;
    Pack<T> a(T{0}), b(T{0}), c(T{0}), d(T{0});
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      a = a + term(i, AllLanes{});
      b = b + term(i + kLanes, AllLanes{});
      c = c + term(i + 2 * kLanes, AllLanes{});
      d = d + term(i + 3 * kLanes, AllLanes{});
    }
    for (; i + kLanes <= end; i += kLanes) a = a + term(i, AllLanes{});
    if (i < end) {
      b = b + term(i, FirstLanes{end - i});
      i = end;
    }
    total = total + ((a + b) + (c + d));
  }
  return join_lanes(total, [](auto& x, const auto& y) { x += y; });
}

// The largest element of a row; of a row with a NaN, any of its elements.
template <class T>
WENGERT_INLINE T largest_of_row(const T* x, int64_t n) {
  constexpr int64_t kLanes = Pack<T>::kLanes;
  constexpr T kLeast = -Format<T>::kInf;
  Pack<T> a(kLeast), b(kLeast);
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a = larger(a, load_pack(x + i));
    b = larger(b, load_pack(x + i + kLanes));
  }
  if (i + kLanes <= n) {
    a = larger(a, load_pack(x + i));
    i += kLanes;
  }
  if (i < n) b = larger(b, load_first(x + i, n - i, kLeast));
  return join_lanes(larger(a, b), [](auto& u, const auto& v) { u = u > v ? u : v; });
}

// Steps over rows are taken for a few rows at a time, row after row: the end of a sum waits for its last addition, and
// meanwhile the processor begins with the next row.
inline constexpr int64_t kRowsAtOnce = 16, kElementsAtOnce = 2048;

// f(first row, number of rows)
template <class F>
WENGERT_INLINE void for_few_rows(int64_t rows, int64_t cols, F&& f) {
  const int64_t fit = kElementsAtOnce / cols, most = fit < 1 ? 1 : fit > kRowsAtOnce ? kRowsAtOnce : fit;
  for (int64_t first = 0; first < rows; first += most) f(first, rows - first < most ? rows - first : most);
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
