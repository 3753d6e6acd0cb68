// The loops of softmax_rows.h for one instruction set.
#include "softmax_rows.h"

#include "vector_pack_rows.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

// a / b with a reciprocal of b that is correctly rounded: so is the quotient after one correction (Markstein,
// "Computation of elementary functions on the IBM RISC System/6000 processor", 1990).
template <class T>
WENGERT_INLINE Pack<T> quotient(const Pack<T>& a, const Pack<T>& b, const Pack<T>& reciprocal) {
  if constexpr (!kFused) return Pack<T>(a.v / b.v);
  const Pack<T> q = a * reciprocal;
  return madd(madd(T{0} - q, b, a), reciprocal, q);
}

// Exponentials of short rows wait in whole packs: what was stored with a mask is slow to read again at once.
template <class T>
void softmax(T* y, const T* x, int64_t rows, int64_t cols) {
  constexpr int64_t kLanes = Pack<T>::kLanes;
  alignas(64) T waiting[kElementsAtOnce + kRowsAtOnce * kLanes];
  const int64_t padded = (cols + kLanes - 1) / kLanes * kLanes;
  const bool wait = cols <= kElementsAtOnce;
  for_few_rows(rows, cols, [&](int64_t first, int64_t n) {
    const auto exponentials_of = [&](int64_t k) { return wait ? waiting + k * padded : y + (first + k) * cols; };
    T shifts[kRowsAtOnce], totals[kRowsAtOnce];
    for (int64_t k = 0; k < n; ++k) shifts[k] = largest_of_row(x + (first + k) * cols, cols);
    for (int64_t k = 0; k < n; ++k) {
      const T* from = x + (first + k) * cols;
      T* to = exponentials_of(k);
      const Pack<T> shift(shifts[k]);
      totals[k] = sum_packs<T>(cols, [&](int64_t i, auto lanes) {
        const Pack<T> e = lanes.only(math::exp(lanes.load(from + i, shifts[k]) - shift));
        wait ? store_pack(to + i, e) : lanes.store(to + i, e);
        return e;
      });
    }
    for (int64_t k = 0; k < n; ++k) {
      const T* from = exponentials_of(k);
      T* to = y + (first + k) * cols;
      const Pack<T> total(totals[k]), reciprocal(T{1} / totals[k]);
      for_packs<T>(cols, [&](int64_t i, auto lanes) {
        const Pack<T> e = wait ? load_pack(from + i) : lanes.load(from + i, T{0});
        lanes.store(to + i, quotient(e, total, reciprocal));
      });
    }
  });
}

template <class T>
void log_softmax(T* y, const T* x, int64_t rows, int64_t cols) {
  for_few_rows(rows, cols, [&](int64_t first, int64_t n) {
    T shifts[kRowsAtOnce], totals[kRowsAtOnce] = {};
    for (int64_t k = 0; k < n; ++k) shifts[k] = largest_of_row(x + (first + k) * cols, cols);
    for (int64_t k = 0; k < n; ++k) {
      const T* from = x + (first + k) * cols;
      const Pack<T> shift(shifts[k]);
      totals[k] = sum_packs<T>(
          cols, [&](int64_t i, auto lanes) { return lanes.only(math::exp(lanes.load(from + i, shifts[k]) - shift)); });
    }
    for (int64_t k = 0; k < kRowsAtOnce; ++k) totals[k] = math::log(totals[k]);
    for (int64_t k = 0; k < n; ++k) {
      const T* from = x + (first + k) * cols;
      T* to = y + (first + k) * cols;
      const Pack<T> shift(shifts[k]), log_total(totals[k]);
      for_packs<T>(
          cols, [&](int64_t i, auto lanes) { lanes.store(to + i, (lanes.load(from + i, T{0}) - shift) - log_total); });
    }
  });
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
  for_few_rows(rows, cols, [&](int64_t first, int64_t n) {
    T sums[kRowsAtOnce];
    for (int64_t k = 0; k < n; ++k) {
      const T *u = t + (first + k) * cols, *v = y + (first + k) * cols;
      sums[k] =
          sum_packs<T>(cols, [&](int64_t i, auto lanes) { return lanes.load(u + i, T{0}) * lanes.load(v + i, T{0}); });
    }
    for (int64_t k = 0; k < n; ++k) {
      const T *u = t + (first + k) * cols, *v = y + (first + k) * cols;
      T* to = out + (first + k) * cols;
      if (came_from_zeros(sums[k], u, cols)) {
        for (int64_t i = 0; i < cols; ++i) to[i] = T{0};
        continue;
      }
      const Pack<T> along(sums[k]);
      for_packs<T>(cols, [&](int64_t i, auto lanes) {
        lanes.store(to + i, lanes.load(v + i, T{0}) * (lanes.load(u + i, T{0}) - along));
      });
    }
  });
}

template <class T>
void log_softmax_push(T* out, const T* t, const T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, t += cols, y += cols, out += cols) {
    T sum = sum_packs<T>(
        cols, [&](int64_t i, auto lanes) { return math::exp(lanes.load(y + i, T{0})) * lanes.load(t + i, T{0}); });
    if (came_from_zeros(sum, t, cols)) sum = T{0};
    const Pack<T> along(sum);
    for_packs<T>(cols, [&](int64_t i, auto lanes) { lanes.store(out + i, lanes.load(t + i, T{0}) - along); });
  }
}

template <class T>
void log_softmax_pull(T* out, const T* t, const T* y, int64_t rows, int64_t cols) {
  for_few_rows(rows, cols, [&](int64_t first, int64_t n) {
    T totals[kRowsAtOnce];
    for (int64_t k = 0; k < n; ++k) {
      const T* u = t + (first + k) * cols;
      totals[k] = sum_packs<T>(cols, [&](int64_t i, auto lanes) { return lanes.load(u + i, T{0}); });
    }
    for (int64_t k = 0; k < n; ++k) {
      const T *u = t + (first + k) * cols, *v = y + (first + k) * cols;
      T* to = out + (first + k) * cols;
      if (totals[k] == T{0}) {  // whatever y is
        for_packs<T>(cols, [&](int64_t i, auto lanes) { lanes.store(to + i, lanes.load(u + i, T{0})); });
        continue;
      }
      const Pack<T> total(totals[k]);
      for_packs<T>(cols, [&](int64_t i, auto lanes) {
        lanes.store(to + i, lanes.load(u + i, T{0}) - math::exp(lanes.load(v + i, T{0})) * total);
      });
    }
  });
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
