// Normalisation of rows, compiled once per instruction set from vector_rows.cpp. Rows are packed; the order of all sums
// depends on their length only.
#pragma once
#include <cstdint>

namespace wengert {

// Rows that are to have mean 0 and variance 1, in groups: row r is of group r % groups. A row is `layers` stretches,
// which lie `apart` from each other; the first begins at r · stretch(). A stretch has `members` parts of `length`
// numbers, and each part a weight and a bias of its own.
struct RowLayout {
  int64_t groups, members, length, layers, apart;
  int64_t stretch() const { return members * length; }
  int64_t size() const { return layers * stretch(); }
};

// Rows [first, first + count).
struct RowRange {
  int64_t first, count;
};

// Pointers are to the first number of all rows.
template <class T>
struct RowKernels {
  // y = h · weight + bias with h = (x − mean) / √(variance + eps); `centred` false: the mean is taken to be 0.
  void (*standardise)(T* y, T* mean, T* variance, const T* x, const T* weight, const T* bias, RowLayout layout,
                      RowRange rows, T eps, bool centred);
  // Its derivative: P(x_dot) · weight + h · weight_dot + bias_dot, with P(t) = (t − mean t − h · mean (h t)) /
  // √(variance + eps).
  void (*tangent)(T* y_dot, const T* x_dot, const T* weight_dot, const T* bias_dot, const T* x, const T* mean,
                  const T* variance, const T* weight, RowLayout layout, RowRange rows, T eps, bool centred);
  // The transpose: x_bar = P(y_bar · weight); Σ y_bar · h and Σ y_bar of these rows are added to weight_bar and
  // bias_bar. A row of zeros gives zeros, whatever x is.
  void (*cotangent)(T* x_bar, T* weight_bar, T* bias_bar, const T* y_bar, const T* x, const T* mean, const T* variance,
                    const T* weight, RowLayout layout, RowRange rows, T eps, bool centred);
};

const RowKernels<float>& row_kernels(float);
const RowKernels<double>& row_kernels(double);

}  // namespace wengert
