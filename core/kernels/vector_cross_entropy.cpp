// The loops of cross_entropy_rows.h for one instruction set.
#include "cross_entropy_rows.h"

#include "vector_pack_rows.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

template <class T>
void losses(T* loss, const ClassRows<T>& in) {
  for_few_rows(in.rows, in.cols, [&](int64_t first, int64_t n) {
    T *shifts = in.largest + first, *log_totals = in.log_total + first;
    T totals[kRowsAtOnce] = {};
    for (int64_t k = 0; k < n; ++k) shifts[k] = largest_of_row(in.x + (first + k) * in.cols, in.cols);
    for (int64_t k = 0; k < n; ++k) {
      const T* x = in.x + (first + k) * in.cols;
      const Pack<T> shift(shifts[k]);
      totals[k] = sum_packs<T>(
          in.cols, [&](int64_t i, auto lanes) { return lanes.only(math::exp(lanes.load(x + i, shifts[k]) - shift)); });
    }
    for (int64_t k = 0; k < kRowsAtOnce; ++k) totals[k] = math::log(totals[k]);
    for (int64_t k = 0; k < n; ++k) {
      const T* x = in.x + (first + k) * in.cols;
      log_totals[k] = totals[k];
      loss[first + k] = totals[k] - (x[in.classes[first + k]] - shifts[k]);
    }
  });
}

template <class T>
bool all_zero(const T* x, int64_t n) {
  bool other = false;
  for (int64_t i = 0; i < n; ++i) other |= x[i] != T{0};
  return !other;
}

template <class T>
void tangents(T* loss_dot, const T* x_dot, const ClassRows<T>& in) {
  for (int64_t r = 0; r < in.rows; ++r) {
    const T *x = in.x + r * in.cols, *t = x_dot + r * in.cols;
    const Pack<T> shift(in.largest[r]), log_total(in.log_total[r]);
    const T sum = sum_packs<T>(in.cols, [&](int64_t i, auto lanes) {
      const Pack<T> p = math::exp((lanes.load(x + i, in.largest[r]) - shift) - log_total);
      return lanes.only(p * lanes.load(t + i, T{0}));
    });
    loss_dot[r] = sum - t[in.classes[r]];
    if (loss_dot[r] - loss_dot[r] != T{0} && all_zero(t, in.cols)) loss_dot[r] = T{0};
  }
}

template <class T>
void cotangents(T* x_bar, const T* loss_bar, const ClassRows<T>& in) {
  for (int64_t r = 0; r < in.rows; ++r) {
    const T* x = in.x + r * in.cols;
    T* to = x_bar + r * in.cols;
    if (loss_bar[r] == T{0}) {
      for (int64_t i = 0; i < in.cols; ++i) to[i] = T{0};
      continue;
    }
    const T shift = in.largest[r], log_total = in.log_total[r];
    const Pack<T> shifts(shift), log_totals(log_total), bars(loss_bar[r]);
    for_packs<T>(in.cols, [&](int64_t i, auto lanes) {
      const Pack<T> p = math::exp((lanes.load(x + i, shift) - shifts) - log_totals);
      lanes.store(to + i, p * bars);
    });
    const int64_t c = in.classes[r];
    to[c] = (math::exp((x[c] - shift) - log_total) - T{1}) * loss_bar[r];
  }
}

template <class T>
constexpr CrossEntropyRows<T> kCrossEntropy = {losses<T>, tangents<T>, cotangents<T>};

}  // namespace

const CrossEntropyRows<float>& cross_entropy_rows_f32();
const CrossEntropyRows<double>& cross_entropy_rows_f64();
const CrossEntropyRows<float>& cross_entropy_rows_f32() { return kCrossEntropy<float>; }
const CrossEntropyRows<double>& cross_entropy_rows_f64() { return kCrossEntropy<double>; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
