// Running sums, products, sums of exponentials and extrema along an axis: a block for each line, 256 elements at a
// time, as a tree whose shape depends on the length alone. Linear recurrences, whose products may leave the range of
// numbers where their results do not, are computed in order, a thread for each line.
#pragma once
#include "device_product.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// What a line is accumulated in: float32 in double, as on the CPU.
template <class S>
using Running = std::conditional_t<std::is_same_v<S, float>, double, Accumulator<reduction::sum, S>>;

template <class S, class A>
WENGERT_INLINE S of_running(A a) {
  if constexpr (std::is_same_v<S, float>) {
    return static_cast<float>(a);
  } else {
    return store_as<S>(a);
  }
}

namespace scanned {

template <class Op, class S>
struct Reduced {
  using T = Running<S>;
  WENGERT_INLINE static T lift(S x, int64_t) { return factor<T>(x); }
  WENGERT_INLINE static T join(T a, T b) { return Op::apply(a, b); }
  WENGERT_INLINE static void store(const int64_t* words, int64_t at, T a) {
    address<S>(words[0])[at] = of_running<S>(a);
  }
};

// ln Σ eˣ as m + ln s, where m is the largest x so far and s the sum of e^(x − m): nothing overflows.
template <class S>
struct Exponentials {
  using A = Running<S>;
  struct T {
    A largest, sum;
  };
  WENGERT_INLINE static T lift(S x, int64_t) { return {factor<A>(x), A{1}}; }
  WENGERT_INLINE static T join(T a, T b) {
    if (a.largest == b.largest) return {a.largest, a.sum + b.sum};  // also of two infinities
    if (a.largest > b.largest) return {a.largest, a.sum + b.sum * libm::exp(b.largest - a.largest)};
    return {b.largest, b.sum + a.sum * libm::exp(a.largest - b.largest)};  // NaN enters here, and stays
  }
  WENGERT_INLINE static void store(const int64_t* words, int64_t at, T a) {
    address<S>(words[0])[at] = of_running<S>(a.largest + libm::log(a.sum));
  }
};

// The largest (smallest) element so far, and where it first was. A NaN is kept from where it appears.
template <bool kLargest, class S>
struct Extremum {
  struct T {
    S value;
    int64_t at;
  };
  WENGERT_INLINE static auto number(S x) {
    if constexpr (HalfNumber<S>) {
      return widen(x);
    } else {
      return x;
    }
  }
  WENGERT_INLINE static T lift(S x, int64_t k) { return {x, k}; }
  WENGERT_INLINE static T join(T a, T b) {
    const auto before = number(a.value), now = number(b.value);
    return (kLargest ? now > before : now < before) || (now != now && before == before) ? b : a;
  }
  WENGERT_INLINE static void store(const int64_t* words, int64_t at, T a) {
    address<S>(words[0])[at] = a.value;
    address<int64_t>(words[1])[at] = a.at;
  }
};

}  // namespace scanned

// Words: to, indices or 0, from, elements of a line, elements between neighbours of it, whether backwards.
template <class Op, DType D>
WENGERT_INLINE void scan_line(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  using T = typename Op::T;
  const int64_t n = words[3], inner = words[4];
  const int64_t first = block_number / inner * n * inner + block_number % inner;
  const int t = static_cast<int>(threadIdx.x);
  __shared__ T shared[kThreads];
  T before = {};
  for (int64_t start = 0; start < n; start += kThreads) {
    const int64_t k = start + t, at = first + (words[5] ? n - 1 - k : k) * inner;
    T value = {};
    if (k < n) value = Op::lift(address<const S>(words[2])[at], k);
    shared[t] = value;
    __syncthreads();
    for (int step = 1; step < kThreads; step *= 2) {
      T left = {};
      if (t >= step) left = shared[t - step];
      __syncthreads();
      if (t >= step) shared[t] = value = Op::join(left, value);
      __syncthreads();
    }
    if (start > 0) value = Op::join(before, value);
    if (k < n) Op::store(words, at, value);
    shared[t] = value;
    __syncthreads();
    before = shared[kThreads - 1];
    __syncthreads();
  }
}

// h[k] = a[k] h[k - 1] + b[k]. Words: to, a, b, elements of a line, between neighbours of it, whether backwards, lines.
template <DType D>
WENGERT_INLINE void recur(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  using A = Running<S>;
  const int64_t line = global_thread(block_number), n = words[3], inner = words[4];
  if (line >= words[6]) return;
  const int64_t first = line / inner * n * inner + line % inner;
  A h = {};
  for (int64_t k = 0; k < n; ++k) {
    const int64_t at = first + (words[5] ? n - 1 - k : k) * inner;
    const A b = factor<A>(address<const S>(words[2])[at]);
    h = k == 0 ? b : multiply_add(factor<A>(address<const S>(words[1])[at]), h, b);
    address<S>(words[0])[at] = of_running<S>(h);
  }
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
