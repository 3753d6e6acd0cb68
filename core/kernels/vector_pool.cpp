// The inner loops of pooling for one instruction set; see pool_rows.h. Steps of 1 and 2 are known to the compiler,
// which then reads whole vectors.
#include "pool_rows.h"

#include <cstring>
#include <utility>

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

template <class F>
[[gnu::always_inline]] inline void with_step(int64_t step, F f) {
  if (step == 1) {
    f(1);
  } else if (step == 2) {
    f(2);
  } else {
    f(step);
  }
}

// Which element of a window is largest cannot be predicted, so there is no branch, and `n` windows of a vector go
// together. T: float or double, I: the signed integer of its size.
template <class T, class I, int Bytes, size_t... Lane>
[[gnu::always_inline]] inline void argmax_windows(uint8_t* index, const T* first, const T* second,
                                                  std::index_sequence<Lane...>) {
  using Vec [[gnu::vector_size(Bytes)]] = T;
  using Mask [[gnu::vector_size(Bytes)]] = I;
  using Taps [[gnu::vector_size(Bytes / sizeof(T))]] = uint8_t;
  Vec row[2];
  Mask tap[2];
  for (int i = 0; i < 2; ++i) {
    Vec low, high;
    std::memcpy(&low, i == 0 ? first : second, Bytes);
    std::memcpy(&high, (i == 0 ? first : second) + Bytes / sizeof(T), Bytes);
    const Vec even = __builtin_shufflevector(low, high, 2 * Lane...);
    const Vec odd = __builtin_shufflevector(low, high, 2 * Lane + 1 ...);
    const Mask right = (odd > even) | (odd != odd);
    row[i] = right ? odd : even;
    tap[i] = (right & 1) + 2 * i;
  }
  const Mask below = (row[1] > row[0]) | (row[1] != row[1]);
  const Taps taps = __builtin_convertvector(below ? tap[1] : tap[0], Taps);
  std::memcpy(index, &taps, sizeof(taps));
}

// All windows of a row in vectors, the last of which may repeat some of the one before. Returns false if there are too
// few windows for one.
template <class T, class I, int Bytes>
[[gnu::always_inline]] inline bool argmax_row(uint8_t* index, const T* first, const T* second, int64_t n) {
  constexpr int64_t lanes = Bytes / sizeof(T);
  if (n < lanes) return false;
  for (int64_t j = 0; j < n; j += lanes) {
    if (j > n - lanes) j = n - lanes;
    argmax_windows<T, I, Bytes>(index + j, first + 2 * j, second + 2 * j, std::make_index_sequence<lanes>{});
  }
  return true;
}

template <class T, class I>
void argmax_two_by_two(uint8_t* index, const T* first, const T* second, int64_t n) {
  if (argmax_row<T, I, 32>(index, first, second, n) || argmax_row<T, I, 16>(index, first, second, n)) return;
  for (int64_t j = 0; j < n; ++j, first += 2, second += 2) {
    const int upper = (first[1] > first[0]) | (first[1] != first[1]);
    const int lower = (second[1] > second[0]) | (second[1] != second[1]);
    const T a = first[upper], b = second[lower];
    const int below = (b > a) | (b != b);
    index[j] = static_cast<uint8_t>(upper + below * (2 + lower - upper));
  }
}

template <class T>
void maximum(T* __restrict best, int32_t* __restrict index, const T* __restrict x, int64_t step, int32_t tap,
             int64_t n) {
  with_step(step, [=](int64_t s) __attribute__((always_inline)) {
    for (int64_t j = 0; j < n; ++j) {
      const T v = x[j * s];
      const bool wins = (v > best[j]) | (v != v);
      best[j] = wins ? v : best[j];
      index[j] = wins ? tap : index[j];
    }
  });
}

template <class T>
void gather(T* __restrict sum, const T* __restrict x, int64_t step, int64_t n) {
  with_step(step, [=](int64_t s) __attribute__((always_inline)) {
    for (int64_t j = 0; j < n; ++j) sum[j] += x[j * s];
  });
}

// `N` elements of every window, added to what is there or, if they are the first, to zero.
template <int N, class T>
[[gnu::always_inline]] inline void sum_taps(T* __restrict sum, const T* __restrict x, const int64_t* offsets,
                                            bool first, int64_t step, int64_t n) {
  const T* from[N];
  for (int t = 0; t < N; ++t) from[t] = x + offsets[t];
  with_step(step, [=](int64_t s) __attribute__((always_inline)) {
    for (int64_t j = 0; j < n; ++j) {
      T total = first ? T(0) : sum[j];
      for (int t = 0; t < N; ++t) total += from[t][j * s];
      sum[j] = total;
    }
  });
}

template <class T>
void sum(T* sum, const T* x, const int64_t* offsets, int64_t taps, int64_t step, int64_t n) {
  int64_t t = 0;
  for (; t + 4 <= taps; t += 4) sum_taps<4>(sum, x, offsets + t, t == 0, step, n);
  for (; t < taps; ++t) sum_taps<1>(sum, x, offsets + t, t == 0, step, n);
}

template <class T>
void scatter(T* __restrict x, int64_t step, const T* __restrict y, int64_t n) {
  with_step(step, [=](int64_t s) __attribute__((always_inline)) {
    for (int64_t j = 0; j < n; ++j) x[j * s] += y[j];
  });
}

template <class T, class I>
constexpr PoolRows<T> kRows = {argmax_two_by_two<T, I>, maximum<T>, gather<T>, sum<T>, scatter<T>};

}  // namespace

const PoolRows<float>& pool_rows_f32();
const PoolRows<double>& pool_rows_f64();
const PoolRows<float>& pool_rows_f32() { return kRows<float, int32_t>; }
const PoolRows<double>& pool_rows_f64() { return kRows<double, int64_t>; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
