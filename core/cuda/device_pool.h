// Pooling over one to three spatial axes, as kernels/pool.h describes it: a thread for each element that is written,
// which goes through its taps in the order of the windows.
#pragma once
#include "device_index.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// What is known of windows when a kernel is compiled, which saves most divisions: the first of three spatial axes that
// is not one of size 1 which was added, then three numbers each: sizes, strides, paddings and dilations.
template <int kFirstAxis, int64_t... kNumbers>
struct Window {
  static constexpr int kFirst = kFirstAxis;
  static constexpr int64_t kSizes[] = {kNumbers...};
  WENGERT_INLINE static constexpr int64_t window(int i) { return kSizes[i]; }
  WENGERT_INLINE static constexpr int64_t stride(int i) { return kSizes[3 + i]; }
  WENGERT_INLINE static constexpr int64_t padding(int i) { return kSizes[6 + i]; }
  WENGERT_INLINE static constexpr int64_t dilation(int i) { return kSizes[9 + i]; }
  WENGERT_INLINE static constexpr int64_t taps() { return window(0) * window(1) * window(2); }
  WENGERT_INLINE static constexpr bool are_apart() {
    return window(0) <= stride(0) && window(1) <= stride(1) && window(2) <= stride(2);
  }
};

// Words: to, from, taps or 0, elements that are written, then three numbers each: sizes of x, of y; note, op.
template <class W>
struct PoolWords : W {
  const int64_t* words;
  WENGERT_INLINE explicit PoolWords(const int64_t* w) : words(w) {}
  WENGERT_INLINE int64_t x(int i) const { return words[4 + i]; }
  WENGERT_INLINE int64_t y(int i) const { return words[7 + i]; }
  WENGERT_INLINE int64_t plane_of_x() const { return x(0) * x(1) * x(2); }
  WENGERT_INLINE int64_t plane_of_y() const { return y(0) * y(1) * y(2); }

  // Where tap k of window (d, h, w) lies in its plane of x; -1: outside.
  WENGERT_INLINE int64_t place(const int64_t* window_at, const int64_t* k) const {
    int64_t at = 0;
#pragma unroll
    for (int i = W::kFirst; i < 3; ++i) {
      const int64_t p = window_at[i] * W::stride(i) + k[i] * W::dilation(i) - W::padding(i);
      if (p < 0 || p >= x(i)) return -1;
      at = at * x(i) + p;
    }
    return at;
  }
  // The window whose tap k lies at an element of x; -1: there is none.
  WENGERT_INLINE int64_t window_of(const int64_t* element, const int64_t* k) const {
    int64_t at = 0;
#pragma unroll
    for (int i = W::kFirst; i < 3; ++i) {
      const int64_t p = element[i] + W::padding(i) - k[i] * W::dilation(i);
      if (p < 0) return -1;
      const int64_t window = quotient(p, W::stride(i));
      if (window * W::stride(i) != p || window >= y(i)) return -1;
      at = at * y(i) + window;
    }
    return at;
  }
};

// The three coordinates of position `at` in a box.
WENGERT_INLINE void coordinates(int64_t at, const int64_t* size, int64_t* to) {
  const int64_t rows = quotient(at, size[2]);
  to[0] = quotient(rows, size[1]);
  to[1] = rows - to[0] * size[1];
  to[2] = at - rows * size[2];
}

// use(tap, where it lies in its plane of x) for the taps of a window that are inside.
template <class P, class Use>
WENGERT_INLINE void for_taps(const P& p, int64_t window, Use use) {
  int64_t at[3], k[3];
  coordinates(window, p.words + 7, at);
  int64_t tap = 0;
  for (k[0] = 0; k[0] < p.window(0); ++k[0]) {
    for (k[1] = 0; k[1] < p.window(1); ++k[1]) {
      for (k[2] = 0; k[2] < p.window(2); ++k[2], ++tap) {
        const int64_t place = p.place(at, k);
        if (place >= 0) use(tap, place);
      }
    }
  }
}

// use(tap, window) for the windows that an element of x is in, in their order: where their taps are neighbours.
template <class P, class Use>
WENGERT_INLINE void for_near_windows(const P& p, const int64_t* element, Use use) {
  int64_t at[3] = {}, first[3] = {}, last[3] = {}, w[3] = {};
#pragma unroll
  for (int i = P::kFirst; i < 3; ++i) {
    at[i] = element[i] + p.padding(i);
    const int64_t behind = at[i] - p.window(i), latest = quotient(at[i], p.stride(i));
    first[i] = behind < 0 ? 0 : quotient(behind, p.stride(i)) + 1;
    last[i] = latest < p.y(i) ? latest : p.y(i) - 1;
  }
  const auto visit = [&] {
    int64_t tap = 0, window = 0;
#pragma unroll
    for (int i = P::kFirst; i < 3; ++i) {
      tap = tap * p.window(i) + (at[i] - w[i] * p.stride(i));
      window = window * p.y(i) + w[i];
    }
    use(tap, window);
  };
  if constexpr (P::are_apart()) {  // then there is one at most
#pragma unroll
    for (int i = P::kFirst; i < 3; ++i) {
      w[i] = last[i];
      if (first[i] > last[i]) return;
    }
    visit();
  } else {
    for (w[0] = first[0]; w[0] <= last[0]; ++w[0])
      for (w[1] = first[1]; w[1] <= last[1]; ++w[1])
        for (w[2] = first[2]; w[2] <= last[2]; ++w[2]) visit();
  }
}

// The same for all windows.
template <class P, class Use>
WENGERT_INLINE void for_windows(const P& p, int64_t element, Use use) {
  int64_t at[3], k[3];
  coordinates(element, p.words + 4, at);
  if constexpr (P::dilation(0) == 1 && P::dilation(1) == 1 && P::dilation(2) == 1) return for_near_windows(p, at, use);
  int64_t tap = p.taps();
  for (k[0] = p.window(0); k[0]-- > 0;) {
    for (k[1] = p.window(1); k[1]-- > 0;) {
      for (k[2] = p.window(2); k[2]-- > 0;) {
        --tap;
        const int64_t window = p.window_of(at, k);
        if (window >= 0) use(tap, window);
      }
    }
  }
}

// The tap of the first largest element; of the last NaN, if there is one.
template <DType D, DType Index, class P>
WENGERT_INLINE void pool_argmax(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  const P p(words);
  const int64_t at = global_thread(block_number);
  if (at >= words[3]) return;
  const S* x = address<const S>(words[1]) + quotient(at, p.plane_of_y()) * p.plane_of_x();
  A best = {};
  int64_t found = -1;
  for_taps(p, remainder(at, p.plane_of_y()), [&](int64_t tap, int64_t place) {
    const A here = factor<A>(x[place]);
    if (found >= 0 && !(here > best) && here == here) return;
    best = here;
    found = tap;
  });
  address<Storage<Index>>(words[0])[at] = static_cast<Storage<Index>>(found);
}

// y = x at the tap of each window.
template <DType D, DType Index, class P>
WENGERT_INLINE void pool_take(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  const P p(words);
  const int64_t at = global_thread(block_number);
  if (at >= words[3]) return;
  const int64_t tap = static_cast<int64_t>(address<const Storage<Index>>(words[2])[at]);
  int64_t window[3], k[3], place = -1;
  coordinates(remainder(at, p.plane_of_y()), words + 7, window);
  coordinates(tap, P::kSizes, k);
  if (tap >= 0 && tap < p.taps()) place = p.place(window, k);
  // A tap that is not inside counts as an index out of range.
  if (place < 0) checked_index(tap, tap < p.taps() ? 0 : p.taps(), address<int64_t>(words[10]), words[11]);
  address<S>(words[0])[at] =
      place < 0 ? S{} : address<const S>(words[1])[quotient(at, p.plane_of_y()) * p.plane_of_x() + place];
}

// The transpose: x = the sum of y over the windows whose tap lies here.
template <DType D, DType Index, class P>
WENGERT_INLINE void pool_put(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  const P p(words);
  const int64_t at = global_thread(block_number);
  if (at >= words[3]) return;
  const int64_t plane = quotient(at, p.plane_of_x()) * p.plane_of_y();
  A sum = {};
  for_windows(p, remainder(at, p.plane_of_x()), [&](int64_t tap, int64_t window) {
    if (static_cast<int64_t>(address<const Storage<Index>>(words[2])[plane + window]) == tap)
      sum = sum + factor<A>(address<const S>(words[1])[plane + window]);
  });
  address<S>(words[0])[at] = store_as<S>(sum);
}

template <DType D, class P>
WENGERT_INLINE void pool_sum(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  const P p(words);
  const int64_t at = global_thread(block_number);
  if (at >= words[3]) return;
  const S* x = address<const S>(words[1]) + quotient(at, p.plane_of_y()) * p.plane_of_x();
  A sum = {};
  for_taps(p, remainder(at, p.plane_of_y()), [&](int64_t, int64_t place) { sum = sum + factor<A>(x[place]); });
  address<S>(words[0])[at] = store_as<S>(sum);
}

// Its transpose.
template <DType D, class P>
WENGERT_INLINE void pool_spread(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  const P p(words);
  const int64_t at = global_thread(block_number);
  if (at >= words[3]) return;
  const S* y = address<const S>(words[1]) + quotient(at, p.plane_of_x()) * p.plane_of_y();
  A sum = {};
  for_windows(p, remainder(at, p.plane_of_x()), [&](int64_t, int64_t window) { sum = sum + factor<A>(y[window]); });
  address<S>(words[0])[at] = store_as<S>(sum);
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
