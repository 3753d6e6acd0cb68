// The loops of rows.h for one instruction set.
#include "rows.h"

#include <algorithm>
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

// Of long rows in float64, which costs nothing beside the blocks.
using Totals = Sums<double>;

template <class T, class Terms>
WENGERT_INLINE void add_sums(Totals& total, int64_t begin, int64_t end, Terms terms) {
  for (int64_t start = begin; start < end; start += kReduceBlock) {
    const Sums<T> block = sums_of_block<T>(start, end - start < kReduceBlock ? end : start + kReduceBlock, terms);
    total.plain += static_cast<double>(block.plain);
    total.products += static_cast<double>(block.products);
  }
}

// A parameter along part of a row: one number for all of it, where a pointer has one for each column.
template <class T>
struct UniformParameter {
  T value;
  T operator[](int64_t) const { return value; }
};

// f(begin, end, parameters...) for each part of a stretch, with its parameters; where parts have one number each, for
// all of them at once.
template <class T, class F, class... P>
WENGERT_INLINE void for_parts(RowLayout layout, F f, const P*... parameters) {
  if (layout.length == 1) return f(int64_t{0}, layout.members, parameters...);
  for (int64_t j = 0; j < layout.members; ++j) {
    f(j * layout.length, (j + 1) * layout.length, UniformParameter<T>{parameters[j]}...);
  }
}

// f(where a stretch begins) for each of a row.
template <class F>
WENGERT_INLINE void for_stretches(RowLayout layout, int64_t row, F f) {
  for (int64_t k = 0; k < layout.layers; ++k) f(row * layout.stretch() + k * layout.apart);
}

template <class T>
struct Moments {
  T mean, variance;
};

// The mean is corrected by that of what it leaves, so that a row of equal numbers has variance 0.
template <class T>
WENGERT_INLINE Moments<T> moments_of(const T* x, RowLayout layout, int64_t row, bool centred) {
  const double n = static_cast<double>(layout.size());
  const int64_t stretch = layout.stretch();
  double sum = 0;
  if (centred) {
    for_stretches(layout, row,
                  [&](int64_t at) { sum += static_cast<double>(reduce_row<reduction::sum, T>(x + at, stretch)); });
  }
  const T near = static_cast<T>(sum / n);
  Totals totals;
  for_stretches(layout, row, [&](int64_t at) {
    add_sums<T>(totals, at, at + stretch, [&](int64_t i, auto& u, auto& v) {
      take(u, x + i);
      u = u - near;
      v = u;
    });
  });
  const double rest = centred ? totals.plain / n : 0.0, variance = totals.products / n - rest * rest;
  return {static_cast<T>(near + rest), static_cast<T>(variance < 0.0 ? 0.0 : variance)};
}

template <class T>
T scale_of(T variance, T eps) {
  return T{1} / std::sqrt(variance + eps);
}

template <class T>
void standardise(T* y, T* mean, T* variance, const T* x, const T* weight, const T* bias, RowLayout layout,
                 RowRange rows, T eps, bool centred) {
  for (int64_t r = rows.first; r < rows.first + rows.count; ++r) {
    const Moments<T> moments = moments_of(x, layout, r, centred);
    const T m = mean[r] = moments.mean;
    const T s = scale_of(variance[r] = moments.variance, eps);
    const int64_t group = r % layout.groups * layout.members;
    for_stretches(layout, r, [&](int64_t at) {
      auto part = [&](int64_t begin, int64_t end, auto w, auto b) {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) y[at + i] = (x[at + i] - m) * s * w[i] + b[i];
      };
      for_parts<T>(layout, part, weight + group, bias + group);
    });
  }
}

// Whether a row of zeros may meet a number that is not finite: x is infinite or NaN, or overflowed.
template <class T>
bool unusual(T mean, T scale) {
  return !(mean - mean == T{0}) || !(scale - scale == T{0}) || scale == T{0};
}

template <class T>
bool all_zero(const T* t, RowLayout layout, int64_t row) {
  bool other = false;
  for_stretches(layout, row, [&](int64_t at) {
    for (int64_t i = at; i < at + layout.stretch(); ++i) other |= t[i] != T{0};
  });
  return !other;
}

// The share of the parameters in a tangent, where that of x is nothing: without products of zero and what is not
// finite.
template <class T>
void tangent_of_parameters(T* y_dot, const T* weight_dot, const T* bias_dot, const T* x, T m, T s, RowLayout layout,
                           int64_t row) {
  for_stretches(layout, row, [&](int64_t at) {
    auto part = [&](int64_t begin, int64_t end, auto w_dot, auto b_dot) {
      for (int64_t i = begin; i < end; ++i) {
        y_dot[at + i] = (w_dot[i] == T{0} ? T{0} : (x[at + i] - m) * s * w_dot[i]) + b_dot[i];
      }
    };
    for_parts<T>(layout, part, weight_dot, bias_dot);
  });
}

template <class T>
void tangent(T* y_dot, const T* x_dot, const T* weight_dot, const T* bias_dot, const T* x, const T* mean,
             const T* variance, const T* weight, RowLayout layout, RowRange rows, T eps, bool centred) {
  const double n = static_cast<double>(layout.size());
  for (int64_t r = rows.first; r < rows.first + rows.count; ++r) {
    const T m = mean[r], s = scale_of(variance[r], eps);
    const int64_t group = r % layout.groups * layout.members;
    if (unusual(m, s) && all_zero(x_dot, layout, r)) {
      tangent_of_parameters(y_dot, weight_dot + group, bias_dot + group, x, m, s, layout, r);
      continue;
    }
    Totals totals;
    for_stretches(layout, r, [&](int64_t at) {
      add_sums<T>(totals, at, at + layout.stretch(), [&](int64_t i, auto& u, auto& v) {
        take(u, x_dot + i);
        take(v, x + i);
        v = v - m;
      });
    });
    const T shift = centred ? static_cast<T>(totals.plain / n) : T{0};
    const T slope = static_cast<T>(totals.products / n) * s * s;
    for_stretches(layout, r, [&](int64_t at) {
      auto part = [&](int64_t begin, int64_t end, auto w, auto w_dot, auto b_dot) {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) {
          const T away = x[at + i] - m;
          y_dot[at + i] = ((x_dot[at + i] - shift) - away * slope) * s * w[i] + (away * s * w_dot[i] + b_dot[i]);
        }
      };
      for_parts<T>(layout, part, weight + group, weight_dot + group, bias_dot + group);
    });
  }
}

// Σ y_bar · weight and Σ y_bar · weight · (x − m) of a stretch whose parts have one weight each. What the parts add up
// to is their share of the parameters' gradients.
template <class T>
WENGERT_INLINE void add_weighted_sums_of_parts(Totals& totals, const T* y_bar, const T* x, const T* weight,
                                               T* weight_bar, T* bias_bar, RowLayout layout, T m, T s) {
  for (int64_t j = 0; j < layout.members; ++j) {
    Totals part;
    add_sums<T>(part, j * layout.length, (j + 1) * layout.length, [&](int64_t i, auto& u, auto& v) {
      take(u, y_bar + i);
      take(v, x + i);
      v = v - m;
    });
    totals.plain += static_cast<double>(weight[j]) * part.plain;
    totals.products += static_cast<double>(weight[j]) * part.products;
    weight_bar[j] += static_cast<T>(part.products) * s;
    bias_bar[j] += static_cast<T>(part.plain);
  }
}

// The same where each number of a stretch has a weight.
template <class T>
WENGERT_INLINE void add_weighted_sums(Totals& totals, const T* y_bar, const T* x, const T* weight, T* weight_bar,
                                      T* bias_bar, int64_t stretch, T m, T s) {
#pragma GCC ivdep
  for (int64_t i = 0; i < stretch; ++i) {
    weight_bar[i] += y_bar[i] * ((x[i] - m) * s);
    bias_bar[i] += y_bar[i];
  }
  add_sums<T>(totals, 0, stretch, [&](int64_t i, auto& u, auto& v) {
    take(u, y_bar + i);
    take(v, weight + i);
    u = u * v;
    take(v, x + i);
    v = v - m;
  });
}

template <class T>
void cotangent(T* x_bar, T* weight_bar, T* bias_bar, const T* y_bar, const T* x, const T* mean, const T* variance,
               const T* weight, RowLayout layout, RowRange rows, T eps, bool centred) {
  const double n = static_cast<double>(layout.size());
  for (int64_t r = rows.first; r < rows.first + rows.count; ++r) {
    const T m = mean[r], s = scale_of(variance[r], eps);
    if (unusual(m, s) && all_zero(y_bar, layout, r)) {
      for_stretches(layout, r, [&](int64_t at) { std::fill_n(x_bar + at, layout.stretch(), T{0}); });
      continue;
    }
    const int64_t group = r % layout.groups * layout.members;
    T *w_bar = weight_bar + group, *b_bar = bias_bar + group;
    Totals totals;
    for_stretches(layout, r, [&](int64_t at) {
      if (layout.length == 1) {
        add_weighted_sums(totals, y_bar + at, x + at, weight + group, w_bar, b_bar, layout.stretch(), m, s);
      } else {
        add_weighted_sums_of_parts(totals, y_bar + at, x + at, weight + group, w_bar, b_bar, layout, m, s);
      }
    });
    const T shift = centred ? static_cast<T>(totals.plain / n) : T{0};
    const T slope = static_cast<T>(totals.products / n) * s * s;
    for_stretches(layout, r, [&](int64_t at) {
      auto part = [&](int64_t begin, int64_t end, auto w) {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) {
          x_bar[at + i] = ((y_bar[at + i] * w[i] - shift) - (x[at + i] - m) * slope) * s;
        }
      };
      for_parts<T>(layout, part, weight + group);
    });
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
