// The inner loops of pooling for one instruction set; see pool_rows.h. Steps of 1 and 2 are known to the compiler,
// which then reads whole vectors.
#include "pool_rows.h"

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

template <class T>
void scatter(T* __restrict x, int64_t step, const T* __restrict y, int64_t n) {
  with_step(step, [=](int64_t s) __attribute__((always_inline)) {
    for (int64_t j = 0; j < n; ++j) x[j * s] += y[j];
  });
}

template <class T>
constexpr PoolRows<T> kRows = {maximum<T>, gather<T>, scatter<T>};

}  // namespace

const PoolRows<float>& pool_rows_f32();
const PoolRows<double>& pool_rows_f64();
const PoolRows<float>& pool_rows_f32() { return kRows<float>; }
const PoolRows<double>& pool_rows_f64() { return kRows<double>; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
