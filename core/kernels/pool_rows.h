// The inner loops of pooling over the columns of one row, compiled once per instruction set from vector_pool.cpp.
#pragma once
#include <cstdint>

namespace wengert {

template <class T>
struct PoolRows {
  // Where x[j·step] is larger than best[j], or not a number: best[j] = x[j·step], index[j] = tap.
  void (*maximum)(T* best, int32_t* index, const T* x, int64_t step, int32_t tap, int64_t n);
  void (*gather)(T* sum, const T* x, int64_t step, int64_t n);  // sum[j] += x[j·step]
  void (*scatter)(T* x, int64_t step, const T* y, int64_t n);   // x[j·step] += y[j]
};

const PoolRows<float>& pool_rows(float);
const PoolRows<double>& pool_rows(double);

}  // namespace wengert
