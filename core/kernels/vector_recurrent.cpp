// The inner loops of recurrent layers for one instruction set; see recurrent_rows.h. Sums run over the depth in order,
// so that a row's result depends on that row only.
#include "recurrent_rows.h"
#include "vector_lanes.h"
#include "vector_math.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

// Loops over registers: an array of vectors is in registers only if every index is known.
#define UNROLL _Pragma("GCC unroll 16")

constexpr int64_t kTileRows = 6;

// R rows × V vectors of columns, the last of `last` columns, held in registers over the whole depth.
template <class L, int R, int V>
void product_tile(const PanelProduct<typename L::T>& p, const typename L::T* panel, int64_t row, int64_t column,
                  int64_t last) {
  using T = typename L::T;
  typename L::Vec acc[R][V];
  const auto partial = [last](int v) __attribute__((always_inline)) { return v == V - 1 && last != L::kWidth; };
  UNROLL for (int r = 0; r < R; ++r) {
    UNROLL for (int v = 0; v < V; ++v) {
      const T* start = p.start + (row + r) * p.start_row + column + v * L::kWidth;
      acc[r][v] = p.start == nullptr ? L::zero() : partial(v) ? L::load_first(start, last) : L::load(start);
    }
  }
  const T* x = p.x + row * p.x_row;
  for (int64_t k = 0; k < p.depth; ++k, panel += 2 * L::kWidth) {
    typename L::Vec w[V];
    UNROLL for (int v = 0; v < V; ++v) w[v] = L::load(panel + v * L::kWidth);
    UNROLL for (int r = 0; r < R; ++r) {
      const typename L::Vec s = L::broadcast(x + r * p.x_row + k);
      UNROLL for (int v = 0; v < V; ++v) acc[r][v] = L::multiply_add(s, w[v], acc[r][v]);
    }
  }
  UNROLL for (int r = 0; r < R; ++r) {
    UNROLL for (int v = 0; v < V; ++v) {
      T* to = p.to + (row + r) * p.to_row + column + v * L::kWidth;
      if (partial(v)) {
        L::store_first(to, last, acc[r][v]);
      } else {
        L::store(to, acc[r][v]);
      }
    }
  }
}

// All rows of one panel, spread evenly over tiles.
template <class L, int V>
void product_panel(const PanelProduct<typename L::T>& p, const typename L::T* panel, int64_t column, int64_t last) {
  const int64_t tiles = (p.rows + kTileRows - 1) / kTileRows;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t row = p.rows * tile / tiles;
    switch (p.rows * (tile + 1) / tiles - row) {
      case 1: product_tile<L, 1, V>(p, panel, row, column, last); break;
      case 2: product_tile<L, 2, V>(p, panel, row, column, last); break;
      case 3: product_tile<L, 3, V>(p, panel, row, column, last); break;
      case 4: product_tile<L, 4, V>(p, panel, row, column, last); break;
      case 5: product_tile<L, 5, V>(p, panel, row, column, last); break;
      default: product_tile<L, 6, V>(p, panel, row, column, last); break;
    }
  }
}

template <class L>
void multiply(const PanelProduct<typename L::T>& p) {
  constexpr int64_t kLanes = 2 * L::kWidth;
  const typename L::T* panel = p.panels;
  for (int64_t column = 0; column < p.columns; column += kLanes, panel += p.depth * kLanes) {
    const int64_t left = p.columns - column;
    if (left > L::kWidth) {
      product_panel<L, 2>(p, panel, column, left < kLanes ? left - L::kWidth : L::kWidth);
    } else {
      product_panel<L, 1>(p, panel, column, left);
    }
  }
}

// The logistic function, to the accuracy of math::sigmoid except that a result below the normal numbers may be 0: e^-x
// is then infinite, and no second power of two is needed to reach it.
template <class T>
WENGERT_INLINE T gate(T x) {
  const auto [r, n] = reduce_exp(clamp(-x, T(-87), Format<T>::kExpHigh));
  return T{1} / madd(T{1} + expm1_reduced(r), power_of_two<T>(n), T{1});
}

// The loops over hidden units, short ones where functions are expensive: chains of a few dozen instructions overlap
// only if several fit in the processor's window. `ivdep`: no array that is written overlaps another, except element
// upon element.

template <class T>
void lstm(int64_t n, T* gates, const T* c_before, T* c, T* h) {
  T *i = gates, *f = gates + n, *g = gates + 2 * n, *o = gates + 3 * n;
#pragma GCC ivdep
  for (int64_t k = 0; k < 2 * n; ++k) gates[k] = gate(gates[k]);
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) o[k] = gate(o[k]);
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) {
    const T made = math::tanh(g[k]);
    g[k] = made;
    c[k] = f[k] * c_before[k] + i[k] * made;
  }
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) h[k] = o[k] * math::tanh(c[k]);
}

template <class T>
void lstm_tangent(int64_t n, const T* total, const T* gates, const T* c, const T* c_before, const T* c_dot_before,
                  T* c_dot, T* h_dot) {
  const T *gi = gates, *gf = gates + n, *gg = gates + 2 * n, *go = gates + 3 * n;
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) {
    const T i = gi[k], f = gf[k], g = gg[k], o = go[k], y = math::tanh(c[k]);
    const T i_dot = i * (1 - i) * total[k], f_dot = f * (1 - f) * total[n + k];
    const T g_dot = (1 - g * g) * total[2 * n + k], o_dot = o * (1 - o) * total[3 * n + k];
    const T cell_dot = f_dot * c_before[k] + f * c_dot_before[k] + i_dot * g + i * g_dot;
    c_dot[k] = cell_dot;
    h_dot[k] = o_dot * y + o * (1 - y * y) * cell_dot;
  }
}

template <class T>
void lstm_cotangent(int64_t n, const T* h_bar, const T* c_bar, const T* gates, const T* c, const T* c_before,
                    const T* h_carry, T* c_carry, T* pre_bar) {
  const T *gi = gates, *gf = gates + n, *gg = gates + 2 * n, *go = gates + 3 * n;
  T *i_bar = pre_bar, *f_bar = pre_bar + n, *g_bar = pre_bar + 2 * n, *o_bar = pre_bar + 3 * n;
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) {
    const T i = gi[k], f = gf[k], g = gg[k], o = go[k], y = math::tanh(c[k]);
    const T h = h_bar[k] + h_carry[k], cell = c_bar[k] + c_carry[k] + h * o * (1 - y * y);
    i_bar[k] = cell * g * (i * (1 - i));
    f_bar[k] = cell * c_before[k] * (f * (1 - f));
    g_bar[k] = cell * i * (1 - g * g);
    o_bar[k] = h * y * (o * (1 - o));
    c_carry[k] = cell * f;
  }
}

template <class T>
void gru(int64_t n, T* gates, const T* h_before, T* h) {
  T *reset = gates, *update = gates + n, *made = gates + 2 * n, *share = gates + 3 * n;
#pragma GCC ivdep
  for (int64_t k = 0; k < 2 * n; ++k) gates[k] = gate(gates[k]);
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) {
    const T m = math::tanh(made[k] + reset[k] * share[k]);
    made[k] = m;
    h[k] = m + update[k] * (h_before[k] - m);
  }
}

template <class T>
void gru_tangent(int64_t n, const T* total, const T* made_dot, const T* gates, const T* h_before, const T* h_dot_before,
                 T* h_dot) {
  const T *reset = gates, *update = gates + n, *made = gates + 2 * n, *share = gates + 3 * n;
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) {
    const T r = reset[k], u = update[k], m = made[k];
    const T r_dot = r * (1 - r) * total[k], u_dot = u * (1 - u) * total[n + k];
    const T m_dot = (1 - m * m) * (made_dot[k] + r_dot * share[k] + r * total[3 * n + k]);
    h_dot[k] = m_dot * (1 - u) + u_dot * (h_before[k] - m) + u * h_dot_before[k];
  }
}

template <class T>
void gru_cotangent(int64_t n, const T* h_bar, const T* gates, const T* h_before, T* carry, T* pre_bar) {
  const T *reset = gates, *update = gates + n, *made = gates + 2 * n, *share = gates + 3 * n;
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) {
    const T r = reset[k], u = update[k], m = made[k], h = h_bar[k] + carry[k];
    const T made_bar = h * (1 - u) * (1 - m * m);
    pre_bar[k] = made_bar * share[k] * (r * (1 - r));
    pre_bar[n + k] = h * (h_before[k] - m) * (u * (1 - u));
    pre_bar[2 * n + k] = made_bar;
    pre_bar[3 * n + k] = made_bar * r;
    carry[k] = h * u;
  }
}

template <class L, class T = typename L::T>
constexpr RecurrentRows<T> kRows = {2 * L::kWidth,     multiply<L>, lstm<T>,        lstm_tangent<T>,
                                    lstm_cotangent<T>, gru<T>,      gru_tangent<T>, gru_cotangent<T>};

#undef UNROLL

}  // namespace

const RecurrentRows<float>& recurrent_rows_f32();
const RecurrentRows<double>& recurrent_rows_f64();
const RecurrentRows<float>& recurrent_rows_f32() { return kRows<F32>; }
const RecurrentRows<double>& recurrent_rows_f64() { return kRows<F64>; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
