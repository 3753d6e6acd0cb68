// The loops of rows.h for one instruction set.
#include "rows.h"

#include <cmath>

#include "vector_math.h"
#include "vector_reduce.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

// Σ (a − p)(b − q) over a block of a row.
template <class T>
WENGERT_INLINE T sum_products_of_block(const T* a, T p, const T* b, T q, int64_t n) {
  using V = typename VectorOf<T>::type;
  constexpr int64_t kLanes = VectorOf<T>::kLanes, kVectors = 4;
  V sums[kVectors] = {}, u, v;
  int64_t i = 0;
  for (; i + kVectors * kLanes <= n; i += kVectors * kLanes) {
#pragma GCC unroll 4  // so that the accumulators are registers
    for (int64_t k = 0; k < kVectors; ++k) {
      load(u, a + i + k * kLanes);
      load(v, b + i + k * kLanes);
      sums[k] += (u - p) * (v - q);
    }
  }
  for (; i + kLanes <= n; i += kLanes) {
    load(u, a + i);
    load(v, b + i);
    sums[0] += (u - p) * (v - q);
  }
  const V lanes = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  T total{0};
  for (int64_t k = 0; k < kLanes; ++k) total += lanes[k];
  for (; i < n; ++i) total += (a[i] - p) * (b[i] - q);
  return total;
}

template <class T>
WENGERT_INLINE T sum_products(const T* a, T p, const T* b, T q, int64_t n) {
  T total{0};
  for (int64_t start = 0; start < n; start += kReduceBlock) {
    total += sum_products_of_block(a + start, p, b + start, q, n - start < kReduceBlock ? n - start : kReduceBlock);
  }
  return total;
}

template <class T>
void standardise(T* y, T* mean, T* scale, const T* x, int64_t rows, int64_t cols, T eps, bool centred) {
  const T n = static_cast<T>(cols);
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const T m = centred ? reduce_row<reduction::sum, T>(x, cols) / n : T{0};
    const T s = T{1} / std::sqrt(sum_products(x, m, x, m, cols) / n + eps);
    mean[r] = m;
    scale[r] = s;
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) y[i] = (x[i] - m) * s;
  }
}

template <class T>
bool all_zero(const T* t, int64_t n) {
  bool other = false;
  for (int64_t i = 0; i < n; ++i) other |= t[i] != T{0};
  return !other;
}

template <class T>
void standardise_push(T* out, const T* t, const T* x, const T* mean, const T* scale, int64_t rows, int64_t cols,
                      bool centred) {
  const T n = static_cast<T>(cols);
  for (int64_t r = 0; r < rows; ++r, t += cols, x += cols, out += cols) {
    const T m = mean[r], s = scale[r];
    const T shift = centred ? reduce_row<reduction::sum, T>(t, cols) / n : T{0};
    const T along = sum_products(t, T{0}, x, m, cols) / n * s;
    if (!(along - along == T{0}) && all_zero(t, cols)) {
      for (int64_t i = 0; i < cols; ++i) out[i] = T{0};
      continue;
    }
    const T slope = along * s;
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) out[i] = ((t[i] - shift) - (x[i] - m) * slope) * s;
  }
}

template <class T>
constexpr RowKernels<T> kRows = {standardise<T>, standardise_push<T>};

}  // namespace

const RowKernels<float>& row_kernels_f32();
const RowKernels<double>& row_kernels_f64();
const RowKernels<float>& row_kernels_f32() { return kRows<float>; }
const RowKernels<double>& row_kernels_f64() { return kRows<double>; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
