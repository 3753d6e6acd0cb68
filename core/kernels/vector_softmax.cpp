// The loops of softmax_rows.h for one instruction set.
#include "softmax_rows.h"

#include "vector_math.h"
#include "vector_reduce.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

template <class T>
void softmax(T* y, const T* x, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const T largest = reduce_row<reduction::max, T>(x, cols);
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) y[i] = math::exp(x[i] - largest);
    const T total = reduce_row<reduction::sum, T>(y, cols);
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) y[i] = y[i] / total;
  }
}

template <class T>
constexpr SoftmaxRows<T> kSoftmax = {softmax<T>};

}  // namespace

const SoftmaxRows<float>& softmax_rows_f32();
const SoftmaxRows<double>& softmax_rows_f64();
const SoftmaxRows<float>& softmax_rows_f32() { return kSoftmax<float>; }
const SoftmaxRows<double>& softmax_rows_f64() { return kSoftmax<double>; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
