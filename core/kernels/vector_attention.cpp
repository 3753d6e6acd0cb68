// The inner loops of attention for one instruction set; see attention_rows.h.
#include "attention_rows.h"

#include "vector_math.h"
#include "vector_reduce.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

template <class T>
T largest(const T* x, int64_t n) {
  return n == 0 ? -Format<T>::kInf : reduce_row<reduction::max, T>(x, n);
}

template <class T>
T sum(const T* x, int64_t n) {
  return n == 0 ? T{0} : reduce_row<reduction::sum, T>(x, n);
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
