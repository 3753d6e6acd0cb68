// LSTM and GRU over whole sequences, and their derivatives (kernels/recurrent.h has the formulas). A block takes a few
// rows of the batch through all steps: what a step needs of the one before lies in its own rows. Sums run over the
// depth in an order that depends on the number of hidden units alone.
#pragma once
#include "device_product.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// Words of all: what is written, …, then steps, batch, hidden units. Arrays are packed: time, batch, features.
struct RecurrentWords {
  int64_t steps, batch, hidden;
  WENGERT_INLINE RecurrentWords(const int64_t* words, int at)
      : steps(words[at]), batch(words[at + 1]), hidden(words[at + 2]) {}
  // Where row `row` of step t of an array with this many groups of features begins.
  WENGERT_INLINE int64_t row(int64_t t, int64_t r, int groups) const { return (t * batch + r) * groups * hidden; }
};

// The rows of a block, one batch index upon another; those behind the last one are not there.
template <int kRows>
struct BlockRows {
  int64_t first, count;
  WENGERT_INLINE BlockRows(int64_t block_number, int64_t batch)
      : first(block_number * kRows), count(batch - first < kRows ? batch - first : kRows) {}
};

// use(row, column, total) for all columns: total = start(row, column) + Σ over k of x(row)[k] · w[k · columns +
// column].
template <class T, int kRows, class Start, class X, class Use>
WENGERT_INLINE void multiply_rows(int count, int64_t depth, int64_t columns, const T* w, Start start, X x, Use use) {
  for (int64_t j = threadIdx.x; j < columns; j += kThreads) {
    const T* from[kRows];
    T sum[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      from[r] = x(r < count ? r : 0);
      sum[r] = start(r < count ? r : 0, j);
    }
#pragma unroll 8
    for (int64_t k = 0; k < depth; ++k) {
      const T weight = w[k * columns + j];
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum[r] = libm::fma(from[r][k], weight, sum[r]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r < count) use(r, j, sum[r]);
    }
  }
}

// to(row)[column] = [to +] Σ over k of x(row)[k] · w[k · columns + column], where the sum over a few columns is shared
// by all threads of the block. All of them must come here.
template <class T, int kRows, bool kOnto, class X, class To>
WENGERT_INLINE void multiply_back(int count, int64_t depth, int64_t columns, const T* w, X x, To to) {
  if (columns > kThreads / 2) {
    multiply_rows<T, kRows>(
        count, depth, columns, w, [&](int r, int64_t j) { return kOnto ? to(r)[j] : T{}; }, x,
        [&](int r, int64_t j, T total) { to(r)[j] = total; });
    return;
  }
  const int parts = kThreads / static_cast<int>(columns), part = threadIdx.x / static_cast<int>(columns);
  const int64_t j = threadIdx.x % static_cast<int>(columns), share = (depth + parts - 1) / parts;
  __shared__ T of_part[kThreads];
  for (int r = 0; r < count; ++r) {
    T sum = {};
    const T* from = x(r);
    const int64_t end = (part + 1) * share < depth ? (part + 1) * share : depth;
    if (part < parts) {
#pragma unroll 8
      for (int64_t k = part * share; k < end; ++k) sum = libm::fma(from[k], w[k * columns + j], sum);
    }
    of_part[threadIdx.x] = sum;
    __syncthreads();
    if (part == 0) {
      T total = kOnto ? to(r)[j] : T{};
      for (int p = 0; p < parts; ++p) total += of_part[p * columns + j];
      to(r)[j] = total;
    }
    __syncthreads();
  }
}

// use(row, unit) for all units of all rows of the block.
template <class Use>
WENGERT_INLINE void for_units(int count, int64_t hidden, Use use) {
  for (int64_t i = threadIdx.x; i < count * hidden; i += kThreads) use(static_cast<int>(i / hidden), i % hidden);
}

template <class T>
WENGERT_INLINE T gate(T x) {
  return op::sigmoid::apply(x);
}

// Words: h, c, gates (the input's share on entry), h0, c0, wᵀ.
template <DType D, int kRows>
WENGERT_INLINE void lstm(const int64_t* words, int64_t block_number) {
  using T = Storage<D>;
  const RecurrentWords s(words, 6);
  const BlockRows<kRows> rows(block_number, s.batch);
  const int count = static_cast<int>(rows.count);
  const int64_t n = s.hidden;
  T *h = address<T>(words[0]), *c = address<T>(words[1]), *all = address<T>(words[2]);
  for (int64_t t = 0; t < s.steps; ++t) {
    const auto before = [&](const T* x, int64_t initial, int64_t r) {
      return t == 0 ? address<const T>(initial) + r * n : x + s.row(t - 1, r, 1);
    };
    const auto gates = [&](int r) { return all + s.row(t, rows.first + r, 4); };
    multiply_rows<T, kRows>(
        count, n, 4 * n, address<const T>(words[5]), [&](int r, int64_t j) { return gates(r)[j]; },
        [&](int r) { return before(h, words[3], rows.first + r); },
        [&](int r, int64_t j, T total) { gates(r)[j] = j / n == 2 ? math::tanh(total) : gate(total); });
    __syncthreads();
    for_units(count, n, [&](int r, int64_t k) {
      const T* g = gates(r) + k;
      const int64_t at = s.row(t, rows.first + r, 1) + k;
      const T cell = g[n] * before(c, words[4], rows.first + r)[k] + g[0] * g[2 * n];
      c[at] = cell;
      h[at] = g[3 * n] * math::tanh(cell);
    });
    __syncthreads();
  }
}

// Words: h_dot, c_dot, scratch (batch, 4 hidden), pre_dot, h0_dot, c0_dot, wᵀ, gates, c, c0.
template <DType D, int kRows>
WENGERT_INLINE void lstm_tangent(const int64_t* words, int64_t block_number) {
  using T = Storage<D>;
  const RecurrentWords s(words, 10);
  const BlockRows<kRows> rows(block_number, s.batch);
  const int count = static_cast<int>(rows.count);
  const int64_t n = s.hidden;
  T *h_dot = address<T>(words[0]), *c_dot = address<T>(words[1]);
  for (int64_t t = 0; t < s.steps; ++t) {
    const auto before = [&](const T* x, int64_t initial, int64_t r) {
      return t == 0 ? address<const T>(initial) + r * n : x + s.row(t - 1, r, 1);
    };
    const auto scratch = [&](int r) { return address<T>(words[2]) + s.row(0, rows.first + r, 4); };
    multiply_rows<T, kRows>(
        count, n, 4 * n, address<const T>(words[6]),
        [&](int r, int64_t j) { return address<const T>(words[3])[s.row(t, rows.first + r, 4) + j]; },
        [&](int r) { return before(h_dot, words[4], rows.first + r); },
        [&](int r, int64_t j, T total) { scratch(r)[j] = total; });
    __syncthreads();
    for_units(count, n, [&](int r, int64_t k) {
      const int64_t at = s.row(t, rows.first + r, 1) + k;
      const T *gates = address<const T>(words[7]) + s.row(t, rows.first + r, 4) + k, *total = scratch(r) + k;
      const T i = gates[0], f = gates[n], g = gates[2 * n], o = gates[3 * n];
      const T y = math::tanh(address<const T>(words[8])[at]);
      const T i_dot = i * (1 - i) * total[0], f_dot = f * (1 - f) * total[n];
      const T g_dot = (1 - g * g) * total[2 * n], o_dot = o * (1 - o) * total[3 * n];
      const T c_before = before(address<const T>(words[8]), words[9], rows.first + r)[k];
      const T cell_dot = f_dot * c_before + f * before(c_dot, words[5], rows.first + r)[k] + i_dot * g + i * g_dot;
      c_dot[at] = cell_dot;
      h_dot[at] = o_dot * y + o * (1 - y * y) * cell_dot;
    });
    __syncthreads();
  }
}

// Words: pre_bar, h0_bar, c0_bar, h_bar, c_bar, w, gates, c, c0. What is carried to the step before lies in h0_bar and
// c0_bar.
template <DType D, int kRows>
WENGERT_INLINE void lstm_cotangent(const int64_t* words, int64_t block_number) {
  using T = Storage<D>;
  const RecurrentWords s(words, 9);
  const BlockRows<kRows> rows(block_number, s.batch);
  const int count = static_cast<int>(rows.count);
  const int64_t n = s.hidden;
  T *h_carry = address<T>(words[1]) + rows.first * n, *c_carry = address<T>(words[2]) + rows.first * n;
  for_units(count, n, [&](int r, int64_t k) { h_carry[r * n + k] = c_carry[r * n + k] = T{}; });
  __syncthreads();
  for (int64_t t = s.steps; t-- > 0;) {
    const auto pre_bar = [&](int r) { return address<T>(words[0]) + s.row(t, rows.first + r, 4); };
    for_units(count, n, [&](int r, int64_t k) {
      const int64_t at = s.row(t, rows.first + r, 1) + k;
      const T* gates = address<const T>(words[6]) + s.row(t, rows.first + r, 4) + k;
      const T i = gates[0], f = gates[n], g = gates[2 * n], o = gates[3 * n];
      const T y = math::tanh(address<const T>(words[7])[at]);
      const T c_before = t == 0 ? address<const T>(words[8])[(rows.first + r) * n + k]
                                : address<const T>(words[7])[s.row(t - 1, rows.first + r, 1) + k];
      const T h = address<const T>(words[3])[at] + h_carry[r * n + k];
      const T cell = address<const T>(words[4])[at] + c_carry[r * n + k] + h * o * (1 - y * y);
      T* to = pre_bar(r) + k;
      to[0] = cell * g * (i * (1 - i));
      to[n] = cell * c_before * (f * (1 - f));
      to[2 * n] = cell * i * (1 - g * g);
      to[3 * n] = h * y * (o * (1 - o));
      c_carry[r * n + k] = cell * f;
    });
    __syncthreads();
    multiply_back<T, kRows, false>(count, 4 * n, n, address<const T>(words[5]), pre_bar,
                                   [&](int r) { return h_carry + r * n; });
    __syncthreads();
  }
}

// Words: h, gates, the input's share of the first three groups (steps, batch, 3 hidden), h0, wᵀ, the last group's bias.
template <DType D, int kRows>
WENGERT_INLINE void gru(const int64_t* words, int64_t block_number) {
  using T = Storage<D>;
  const RecurrentWords s(words, 6);
  const BlockRows<kRows> rows(block_number, s.batch);
  const int count = static_cast<int>(rows.count);
  const int64_t n = s.hidden;
  T* h = address<T>(words[0]);
  for (int64_t t = 0; t < s.steps; ++t) {
    const auto before = [&](int r) {
      return t == 0 ? address<const T>(words[3]) + (rows.first + r) * n : h + s.row(t - 1, rows.first + r, 1);
    };
    const auto gates = [&](int r) { return address<T>(words[1]) + s.row(t, rows.first + r, 4); };
    const auto input = [&](int r) { return address<const T>(words[2]) + s.row(t, rows.first + r, 3); };
    multiply_rows<T, kRows>(
        count, n, 3 * n, address<const T>(words[4]),
        [&](int r, int64_t j) { return j < 2 * n ? input(r)[j] : address<const T>(words[5])[j - 2 * n]; }, before,
        [&](int r, int64_t j, T total) { gates(r)[j < 2 * n ? j : j + n] = j < 2 * n ? gate(total) : total; });
    __syncthreads();
    for_units(count, n, [&](int r, int64_t k) {
      T* g = gates(r) + k;
      const T made = math::tanh(input(r)[2 * n + k] + g[0] * g[3 * n]);
      g[2 * n] = made;
      h[s.row(t, rows.first + r, 1) + k] = made + g[n] * (before(r)[k] - made);
    });
    __syncthreads();
  }
}

// Words: h_dot, scratch (batch, 3 hidden), pre_dot, h0_dot, wᵀ, gates, h, h0.
template <DType D, int kRows>
WENGERT_INLINE void gru_tangent(const int64_t* words, int64_t block_number) {
  using T = Storage<D>;
  const RecurrentWords s(words, 8);
  const BlockRows<kRows> rows(block_number, s.batch);
  const int count = static_cast<int>(rows.count);
  const int64_t n = s.hidden;
  T* h_dot = address<T>(words[0]);
  for (int64_t t = 0; t < s.steps; ++t) {
    const auto before = [&](const T* x, int64_t initial, int r) {
      return t == 0 ? address<const T>(initial) + (rows.first + r) * n : x + s.row(t - 1, rows.first + r, 1);
    };
    const auto scratch = [&](int r) { return address<T>(words[1]) + s.row(0, rows.first + r, 3); };
    const auto pre = [&](int r) { return address<const T>(words[2]) + s.row(t, rows.first + r, 4); };
    multiply_rows<T, kRows>(
        count, n, 3 * n, address<const T>(words[4]), [&](int r, int64_t j) { return pre(r)[j < 2 * n ? j : j + n]; },
        [&](int r) { return before(h_dot, words[3], r); }, [&](int r, int64_t j, T total) { scratch(r)[j] = total; });
    __syncthreads();
    for_units(count, n, [&](int row, int64_t k) {
      const T *gates = address<const T>(words[5]) + s.row(t, rows.first + row, 4) + k, *total = scratch(row) + k;
      const T r = gates[0], u = gates[n], m = gates[2 * n], share = gates[3 * n];
      const T r_dot = r * (1 - r) * total[0], u_dot = u * (1 - u) * total[n];
      const T m_dot = (1 - m * m) * (pre(row)[2 * n + k] + r_dot * share + r * total[2 * n]);
      const T h_before = before(address<const T>(words[6]), words[7], row)[k];
      h_dot[s.row(t, rows.first + row, 1) + k] =
          m_dot * (1 - u) + u_dot * (h_before - m) + u * before(h_dot, words[3], row)[k];
    });
    __syncthreads();
  }
}

// Words: pre_bar, h0_bar, h_bar, w, gates, h, h0. What is carried to the step before lies in h0_bar.
template <DType D, int kRows>
WENGERT_INLINE void gru_cotangent(const int64_t* words, int64_t block_number) {
  using T = Storage<D>;
  const RecurrentWords s(words, 7);
  const BlockRows<kRows> rows(block_number, s.batch);
  const int count = static_cast<int>(rows.count);
  const int64_t n = s.hidden;
  T* carry = address<T>(words[1]) + rows.first * n;
  const auto carried = [&](int r) { return carry + r * n; };
  for_units(count, n, [&](int r, int64_t k) { carried(r)[k] = T{}; });
  __syncthreads();
  for (int64_t t = s.steps; t-- > 0;) {
    const auto pre_bar = [&](int r) { return address<T>(words[0]) + s.row(t, rows.first + r, 4); };
    for_units(count, n, [&](int row, int64_t k) {
      const T* gates = address<const T>(words[4]) + s.row(t, rows.first + row, 4) + k;
      const T r = gates[0], u = gates[n], m = gates[2 * n], share = gates[3 * n];
      const T h_before = t == 0 ? address<const T>(words[6])[(rows.first + row) * n + k]
                                : address<const T>(words[5])[s.row(t - 1, rows.first + row, 1) + k];
      const T h = address<const T>(words[2])[s.row(t, rows.first + row, 1) + k] + carried(row)[k];
      const T made_bar = h * (1 - u) * (1 - m * m);
      T* to = pre_bar(row) + k;
      to[0] = made_bar * share * (r * (1 - r));
      to[n] = h * (h_before - m) * (u * (1 - u));
      to[2 * n] = made_bar;
      to[3 * n] = made_bar * r;
      carried(row)[k] = h * u;
    });
    __syncthreads();
    const T* w = address<const T>(words[3]);
    multiply_back<T, kRows, true>(count, 2 * n, n, w, pre_bar, carried);
    multiply_back<T, kRows, true>(count, n, n, w + 2 * n * n, [&](int r) { return pre_bar(r) + 3 * n; }, carried);
    __syncthreads();
  }
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
