// The inner loops of attention for one instruction set; see attention_rows.h.
#include "attention_rows.h"

#include <cstring>
#include <limits>

#include "vector_math.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

constexpr int kBytes = 32, kVectors = 4;  // of the accumulators of a reduction: enough to hide an addition's latency

template <class T>
using Vec [[gnu::vector_size(kBytes)]] = T;

template <class T>
[[gnu::always_inline]] inline Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, kBytes);
  return v;
}

// f(accumulator, element) over a row, first in lanes, then over the lanes, then over what is left.
template <class T, class F>
[[gnu::always_inline]] inline T reduce(const T* x, int64_t n, T start, F f) {
  constexpr int64_t kWidth = kBytes / sizeof(T), kStep = kVectors * kWidth;
  Vec<T> acc[kVectors];
  for (auto& a : acc) a = Vec<T>{} + start;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    for (int v = 0; v < kVectors; ++v) acc[v] = f(acc[v], load(x + i + v * kWidth));
  }
  for (; i + kWidth <= n; i += kWidth) acc[0] = f(acc[0], load(x + i));
  const Vec<T> all = f(f(acc[0], acc[1]), f(acc[2], acc[3]));
  T result = start;
  for (int64_t j = 0; j < kWidth; ++j) result = f(result, all[j]);
  for (; i < n; ++i) result = f(result, x[i]);
  return result;
}

template <class T>
T largest(const T* x, int64_t n) {
  return reduce(x, n, -std::numeric_limits<T>::infinity(),
                [](auto a, auto b) __attribute__((always_inline)) { return (b > a) | (b != b) ? b : a; });
}

template <class T>
T sum(const T* x, int64_t n) {
  return reduce(x, n, T(0), [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}

template <class T>
void exp(T* x, T shift, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = math::exp(x[i] - shift);
}

template <class T>
void multiply(T* __restrict x, const T* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= y[i];
}

template <class T>
void scale(T* y, const T* x, T factor, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

template <class T>
void score_bar(T* __restrict bar, const T* __restrict w, T shift, int64_t n) {
  for (int64_t i = 0; i < n; ++i) bar[i] = w[i] * (bar[i] + shift);
}

template <class T>
constexpr AttentionRows<T> kRows = {largest<T>, exp<T>, sum<T>, multiply<T>, scale<T>, score_bar<T>};

}  // namespace

const AttentionRows<float>& attention_rows_f32();
const AttentionRows<double>& attention_rows_f64();
const AttentionRows<float>& attention_rows_f32() { return kRows<float>; }
const AttentionRows<double>& attention_rows_f64() { return kRows<double>; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
