// The inner loops of attention over a row of scores, compiled once per instruction set from vector_attention.cpp.
#pragma once
#include <cstdint>

namespace wengert {

template <class T>
struct AttentionRows {
  T (*largest)(const T* x, int64_t n);                        // −∞ of nothing; a NaN is largest
  void (*exp)(T* x, T shift, int64_t n);                      // x = exp(x − shift)
  T (*sum)(const T* x, int64_t n);                            // in an order that depends on n only
  void (*multiply)(T* x, const T* y, int64_t n);              // x = x · y
  void (*scale)(T* y, const T* x, T factor, int64_t n);       // y = x · factor; may be x itself
  void (*score_bar)(T* bar, const T* w, T shift, int64_t n);  // bar = w · (bar + shift)
};

const AttentionRows<float>& attention_rows(float);
const AttentionRows<double>& attention_rows(double);

}  // namespace wengert
