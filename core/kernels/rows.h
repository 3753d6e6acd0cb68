// Normalisation of rows, compiled once per instruction set from vector_rows.cpp. Rows are packed; the order of all sums
// depends on their length only.
#pragma once
#include <cstdint>

namespace wengert {

template <class T>
struct RowKernels {
  // y = (x − mean) · scale with scale = 1 / √(mean (x − mean)² + eps); `centred` false: the mean is taken to be 0.
  void (*standardise)(T* y, T* mean, T* scale, const T* x, int64_t rows, int64_t cols, T eps, bool centred);
  // The derivative of that in the direction t: scale · (t − mean t − y · mean (y t)). A row of zeros gives zeros,
  // whatever x is.
  void (*standardise_push)(T* out, const T* t, const T* x, const T* mean, const T* scale, int64_t rows, int64_t cols,
                           bool centred);
};

const RowKernels<float>& row_kernels(float);
const RowKernels<double>& row_kernels(double);

}  // namespace wengert
