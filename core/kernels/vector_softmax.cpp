// The loops of softmax_rows.h for one instruction set.
#include "softmax_rows.h"

#include "vector_math.h"
#include "vector_reduce.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

// y = exp(x − max x); gives max x and Σ y.
template <class T>
struct Exponentials {
  T largest, total;
  WENGERT_INLINE Exponentials(T* y, const T* x, int64_t n) : largest(reduce_row<reduction::max, T>(x, n)) {
    const T shift = largest;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = math::exp_not_positive(x[i] - shift);
    total = reduce_row<reduction::sum, T>(y, n);
  }
};

// a / b with a reciprocal of b that is correctly rounded: so is the quotient after one correction (Markstein,
// "Computation of elementary functions on the IBM RISC System/6000 processor", 1990). Three products cost less than a
// division.
template <class T>
WENGERT_INLINE T quotient(T a, T b, T reciprocal) {
  if constexpr (!kFused) return a / b;
  const T q = a * reciprocal;
  return madd(madd(-q, b, a), reciprocal, q);
}

template <class T>
void softmax(T* y, const T* x, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const T total = Exponentials<T>(y, x, cols).total, reciprocal = T{1} / total;
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) y[i] = quotient(y[i], total, reciprocal);
  }
}

template <class T>
void log_softmax(T* y, const T* x, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const Exponentials<T> e(y, x, cols);  // y is written over
    const T shift = e.largest, log_total = math::log(e.total);
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) y[i] = (x[i] - shift) - log_total;
  }
}

template <class T>
WENGERT_INLINE T sum_products_of_block(const T* a, const T* b, int64_t n) {
  using V = typename VectorOf<T>::type;
  constexpr int64_t kLanes = VectorOf<T>::kLanes, kVectors = 4;
  V sums[kVectors] = {}, u, v;
  int64_t i = 0;
  for (; i + kVectors * kLanes <= n; i += kVectors * kLanes) {
#pragma GCC unroll 4  // so that the accumulators are registers
    for (int64_t k = 0; k < kVectors; ++k) {
      load(u, a + i + k * kLanes);
      load(v, b + i + k * kLanes);
      sums[k] += u * v;
    }
  }
  for (; i + kLanes <= n; i += kLanes) {
    load(u, a + i);
    load(v, b + i);
    sums[0] += u * v;
  }
  const V lanes = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  T total{0};
  for (int64_t k = 0; k < kLanes; ++k) total += lanes[k];
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

template <class T>
WENGERT_INLINE T sum_products(const T* a, const T* b, int64_t n) {
  T total{0};
  for (int64_t start = 0; start < n; start += kReduceBlock) {
    total += sum_products_of_block(a + start, b + start, n - start < kReduceBlock ? n - start : kReduceBlock);
  }
  return total;
}

// Whether a sum of products with t is not finite although t is zero.
template <class T>
bool came_from_zeros(T sum, const T* t, int64_t n) {
  if (sum - sum == T{0}) return false;
  bool other = false;
  for (int64_t i = 0; i < n; ++i) other |= t[i] != T{0};
  return !other;
}

template <class T>
void softmax_push(T* out, const T* t, const T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, t += cols, y += cols, out += cols) {
    const T along = sum_products(t, y, cols);
    if (came_from_zeros(along, t, cols)) {
      for (int64_t i = 0; i < cols; ++i) out[i] = T{0};
      continue;
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) out[i] = y[i] * (t[i] - along);
  }
}

template <class T>
void log_softmax_push(T* out, const T* t, const T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, t += cols, y += cols, out += cols) {
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) out[i] = math::exp(y[i]);  // written over
    T along = sum_products(static_cast<const T*>(out), t, cols);
    if (came_from_zeros(along, t, cols)) along = T{0};
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) out[i] = t[i] - along;
  }
}

template <class T>
void log_softmax_pull(T* out, const T* t, const T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, t += cols, y += cols, out += cols) {
    const T total = reduce_row<reduction::sum, T>(t, cols);
    if (total == T{0}) {
      for (int64_t i = 0; i < cols; ++i) out[i] = t[i];
      continue;
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) out[i] = t[i] - math::exp(y[i]) * total;
  }
}

template <class T>
constexpr SoftmaxRows<T> kSoftmax = {softmax<T>, log_softmax<T>, softmax_push<T>, log_softmax_push<T>,
                                     log_softmax_pull<T>};

}  // namespace

const SoftmaxRows<float>& softmax_rows_f32();
const SoftmaxRows<double>& softmax_rows_f64();
const SoftmaxRows<float>& softmax_rows_f32() { return kSoftmax<float>; }
const SoftmaxRows<double>& softmax_rows_f64() { return kSoftmax<double>; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
