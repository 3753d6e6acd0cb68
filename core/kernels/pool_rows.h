// The inner loops of pooling over the columns of one row, compiled once per instruction set from vector_pool.cpp.
#pragma once
#include <cstdint>

namespace wengert {

template <class T>
struct PoolRows {
  // index[j]: which of first[2j], first[2j + 1], second[2j], second[2j + 1] is largest. The windows of most networks.
  void (*argmax_two_by_two)(uint8_t* index, const T* first, const T* second, int64_t n);
  // Where x[j·step] is larger than best[j], or not a number: best[j] = x[j·step], index[j] = tap.
  void (*maximum)(T* best, int32_t* index, const T* x, int64_t step, int32_t tap, int64_t n);
  void (*gather)(T* sum, const T* x, int64_t step, int64_t n);  // sum[j] += x[j·step]
  // sum[j] = Σ x[offsets[t] + j·step] over `taps` of them, in order: windows that lie inside as a whole
  void (*sum)(T* sum, const T* x, const int64_t* offsets, int64_t taps, int64_t step, int64_t n);
  void (*scatter)(T* x, int64_t step, const T* y, int64_t n);  // x[j·step] += y[j]
};

const PoolRows<float>& pool_rows(float);
const PoolRows<double>& pool_rows(double);

}  // namespace wengert
