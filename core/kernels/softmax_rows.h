// Rows as distributions, compiled once per instruction set from vector_softmax.cpp. Rows are packed; the order of all
// sums depends on their length only.
#pragma once
#include <cstdint>

namespace wengert {

template <class T>
struct SoftmaxRows {
  // y = exp(x − max x) / Σ exp(x − max x)
  void (*softmax)(T* y, const T* x, int64_t rows, int64_t cols);
};

const SoftmaxRows<float>& softmax_rows(float);
const SoftmaxRows<double>& softmax_rows(double);

}  // namespace wengert
