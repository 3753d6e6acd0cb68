// Rows as distributions, compiled once per instruction set from vector_softmax.cpp. Rows are packed; the order of all
// sums depends on their length only.
#pragma once
#include <cstdint>

namespace wengert {

template <class T>
struct SoftmaxRows {
  using Map = void (*)(T* y, const T* x, int64_t rows, int64_t cols);
  // Linear in t. A row of zeros gives zeros, whatever y is.
  using Push = void (*)(T* out, const T* t, const T* y, int64_t rows, int64_t cols);
  Map softmax;            // exp(x − max x) / Σ exp(x − max x)
  Map log_softmax;        // x − max x − ln Σ exp(x − max x)
  Push softmax_push;      // y (t − Σ y t)
  Push log_softmax_push;  // t − Σ eʸ t
  Push log_softmax_pull;  // t − eʸ Σ t
};

const SoftmaxRows<float>& softmax_rows(float);
const SoftmaxRows<double>& softmax_rows(double);

}  // namespace wengert
