// The loops of rows.h for one instruction set.
#include "rows.h"

#include <cmath>

#include "vector_reduce.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

template <class T>
struct Sums {
  T plain{0}, products{0};
};

template <class T>
WENGERT_INLINE void take(T& into, const T* from) {
  into = *from;
}
template <class T>
WENGERT_INLINE void take(typename VectorOf<T>::type& into, const T* from) {
  load(into, from);
}

// Σ u and Σ u v over a block of a row; terms(i, u, v) sets a vector or a number of each.
template <class T, class Terms>
WENGERT_INLINE Sums<T> sums_of_block(int64_t begin, int64_t end, Terms terms) {
  using V = typename VectorOf<T>::type;
  constexpr int64_t kLanes = VectorOf<T>::kLanes, kVectors = 4;
  V plain[kVectors] = {}, products[kVectors] = {}, u, v;
  int64_t i = begin;
  for (; i + kVectors * kLanes <= end; i += kVectors * kLanes) {
#pragma GCC unroll 4  // so that the accumulators are registers
    for (int64_t k = 0; k < kVectors; ++k) {
      terms(i + k * kLanes, u, v);
      plain[k] += u;
      products[k] += u * v;
    }
  }
  for (; i + kLanes <= end; i += kLanes) {
    terms(i, u, v);
    plain[0] += u;
    products[0] += u * v;
  }
  const V plains = (plain[0] + plain[1]) + (plain[2] + plain[3]);
  const V all = (products[0] + products[1]) + (products[2] + products[3]);
  Sums<T> total;
  for (int64_t k = 0; k < kLanes; ++k) {
    total.plain += plains[k];
    total.products += all[k];
  }
  for (T a, b; i < end; ++i) {
    terms(i, a, b);
    total.plain += a;
    total.products += a * b;
  }
  return total;
}

template <class T, class Terms>
WENGERT_INLINE Sums<T> sums_of(int64_t begin, int64_t end, Terms terms) {
  Sums<T> total;
  for (int64_t start = begin; start < end; start += kReduceBlock) {
    const Sums<T> block = sums_of_block<T>(start, end - start < kReduceBlock ? end : start + kReduceBlock, terms);
    total.plain += block.plain;
    total.products += block.products;
  }
  return total;
}

// A parameter along part of a row: one number for all of it, where a pointer has one for each column.
template <class T>
struct Same {
  T value;
  T operator[](int64_t) const { return value; }
};

// f(begin, end, parameters...) for each part of a row with parameters of its own; where parts have one number each, for
// all of it.
template <class T, class F, class... P>
WENGERT_INLINE void for_parts(RowLayout layout, F f, const P*... parameters) {
  if (layout.length == 1) return f(int64_t{0}, layout.members, parameters...);
  for (int64_t j = 0; j < layout.members; ++j) {
    f(j * layout.length, (j + 1) * layout.length, Same<T>{parameters[j]}...);
  }
}

template <class T>
struct Moments {
  T mean, scale;
};

// The mean is corrected by that of what it leaves, so that a row of equal numbers has variance 0.
template <class T>
WENGERT_INLINE Moments<T> moments_of(const T* x, int64_t cols, T eps, bool centred) {
  const T n = static_cast<T>(cols);
  const T near = centred ? reduce_row<reduction::sum, T>(x, cols) / n : T{0};
  const Sums<T> sums = sums_of<T>(0, cols, [&](int64_t i, auto& u, auto& v) {
    take(u, x + i);
    u = u - near;
    v = u;
  });
  const T rest = centred ? sums.plain / n : T{0};
  return {near + rest, T{1} / std::sqrt((sums.products / n - rest * rest) + eps)};
}

template <class T>
void standardise(T* y, T* mean, T* scale, const T* x, const T* weight, const T* bias, RowLayout layout, int64_t first,
                 int64_t rows, T eps, bool centred) {
  const int64_t cols = layout.cols();
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const auto [m, s] = moments_of(x, cols, eps, centred);
    mean[r] = m;
    scale[r] = s;
    const int64_t group = (first + r) % layout.groups * layout.members;
    auto part = [&, m = m, s = s](int64_t begin, int64_t end, auto w, auto b) {
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) y[i] = (x[i] - m) * s * w[i] + b[i];
    };
    for_parts<T>(layout, part, weight + group, bias + group);
  }
}

template <class T>
void tangent(T* y_dot, const T* x_dot, const T* weight_dot, const T* bias_dot, const T* x, const T* mean,
             const T* scale, const T* weight, RowLayout layout, int64_t first, int64_t rows, bool centred) {
  const int64_t cols = layout.cols();
  const T n = static_cast<T>(cols);
  for (int64_t r = 0; r < rows; ++r, x_dot += cols, x += cols, y_dot += cols) {
    const T m = mean[r], s = scale[r];
    const Sums<T> sums = sums_of<T>(0, cols, [&](int64_t i, auto& u, auto& v) {
      take(u, x_dot + i);
      take(v, x + i);
      v = v - m;
    });
    const T shift = centred ? sums.plain / n : T{0}, slope = sums.products / n * s * s;
    const int64_t group = (first + r) % layout.groups * layout.members;
    auto part = [&](int64_t begin, int64_t end, auto w, auto w_dot, auto b_dot) {
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) {
        const T away = x[i] - m;
        y_dot[i] = ((x_dot[i] - shift) - away * slope) * s * w[i] + (away * s * w_dot[i] + b_dot[i]);
      }
    };
    for_parts<T>(layout, part, weight + group, weight_dot + group, bias_dot + group);
  }
}

// Whether a row of zeros may meet a number that is not finite: x is infinite or NaN, or overflowed.
template <class T>
bool unusual(T mean, T scale) {
  return !(mean - mean == T{0}) || !(scale - scale == T{0}) || scale == T{0};
}

template <class T>
bool all_zero(const T* t, int64_t n) {
  bool other = false;
  for (int64_t i = 0; i < n; ++i) other |= t[i] != T{0};
  return !other;
}

// Σ y_bar · weight and Σ y_bar · weight · (x − m) of a row whose parts have one weight each. What the parts add up to
// is their share of the parameters' gradients.
template <class T>
WENGERT_INLINE Sums<T> weighted_sums_of_parts(const T* y_bar, const T* x, const T* weight, T* weight_bar, T* bias_bar,
                                              RowLayout layout, T m, T s) {
  Sums<T> total;
  for (int64_t j = 0; j < layout.members; ++j) {
    const int64_t begin = j * layout.length;
    const Sums<T> part = sums_of<T>(begin, begin + layout.length, [&](int64_t i, auto& u, auto& v) {
      take(u, y_bar + i);
      take(v, x + i);
      v = v - m;
    });
    total.plain += weight[j] * part.plain;
    total.products += weight[j] * part.products;
    weight_bar[j] += part.products * s;
    bias_bar[j] += part.plain;
  }
  return total;
}

// The same where each number of a row has a weight.
template <class T>
WENGERT_INLINE Sums<T> weighted_sums(const T* y_bar, const T* x, const T* weight, T* weight_bar, T* bias_bar,
                                     int64_t cols, T m, T s) {
#pragma GCC ivdep
  for (int64_t i = 0; i < cols; ++i) {
    weight_bar[i] += y_bar[i] * ((x[i] - m) * s);
    bias_bar[i] += y_bar[i];
  }
  return sums_of<T>(0, cols, [&](int64_t i, auto& u, auto& v) {
    take(u, y_bar + i);
    take(v, weight + i);
    u = u * v;
    take(v, x + i);
    v = v - m;
  });
}

template <class T>
void cotangent(T* x_bar, T* weight_bar, T* bias_bar, const T* y_bar, const T* x, const T* mean, const T* scale,
               const T* weight, RowLayout layout, int64_t first, int64_t rows, bool centred) {
  const int64_t cols = layout.cols();
  const T n = static_cast<T>(cols);
  for (int64_t r = 0; r < rows; ++r, y_bar += cols, x += cols, x_bar += cols) {
    const T m = mean[r], s = scale[r];
    if (unusual(m, s) && all_zero(y_bar, cols)) {
      for (int64_t i = 0; i < cols; ++i) x_bar[i] = T{0};
      continue;
    }
    const int64_t group = (first + r) % layout.groups * layout.members;
    T *w_bar = weight_bar + group, *b_bar = bias_bar + group;
    const Sums<T> sums = layout.length == 1
                             ? weighted_sums(y_bar, x, weight + group, w_bar, b_bar, cols, m, s)
                             : weighted_sums_of_parts(y_bar, x, weight + group, w_bar, b_bar, layout, m, s);
    const T shift = centred ? sums.plain / n : T{0}, slope = sums.products / n * s * s;
    auto part = [&](int64_t begin, int64_t end, auto w) {
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) x_bar[i] = ((y_bar[i] * w[i] - shift) - (x[i] - m) * slope) * s;
    };
    for_parts<T>(layout, part, weight + group);
  }
}

template <class T>
constexpr RowKernels<T> kRows = {standardise<T>, tangent<T>, cotangent<T>};

}  // namespace

const RowKernels<float>& row_kernels_f32();
const RowKernels<double>& row_kernels_f64();
const RowKernels<float>& row_kernels_f32() { return kRows<float>; }
const RowKernels<double>& row_kernels_f64() { return kRows<double>; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
