#include "recurrent.h"

#include <algorithm>
#include <memory>

#include "../threads.h"
#include "gemm.h"
#include "vector.h"

namespace wengert {

namespace {

constexpr int64_t kRows = 16;  // of the batch in one task: fewer waste the product's registers
// Products of this many multiply-adds take the kernel for small ones, which is faster; larger ones are cut into a few.
constexpr int64_t kSmallTile = 1 << 17, kFewTiles = 8;

template <class T>
class Sequence {
 public:
  explicit Sequence(const RecurrentShape& shape) : s(shape) {}

  static constexpr DType dtype = sizeof(T) == 4 ? DType::Float32 : DType::Float64;
  const RecurrentShape& s;

  // Calls f(first row, rows) for blocks of the batch.
  template <class F>
  void for_rows(F&& f) const {
    parallel_for((s.batch + kRows - 1) / kRows, [&](int64_t task) {
      const int64_t first = task * kRows;
      f(first, std::min(kRows, s.batch - first));
    });
  }

  // Row `row` of step t of an array with `width` features. Step −1 is the initial state.
  template <class P>
  P* at(P* x, int64_t t, int64_t row, int64_t width) const {
    return x + (t * s.batch + row) * width;
  }
  const T* before(const T* x, const T* initial, int64_t t, int64_t row) const {
    return t == 0 ? initial + row * s.hidden : at(x, t - 1, row, s.hidden);
  }

  // y[rows, n] = x[rows, k] · b[k, n], all packed.
  void multiply(int64_t rows, int64_t n, int64_t k, const T* x, const T* b, T* y) const {
    const double work = static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k);
    const int64_t columns =
        work > kFewTiles * kSmallTile ? n : std::max<int64_t>(16, kSmallTile / (rows * k) / 16 * 16);
    for (int64_t j = 0; j < n; j += columns) {
      gemm_tile(dtype, rows, std::min(columns, n - j), k, {x, k, 1}, {b + j, n, 1}, y + j, n, false);
    }
  }

  // w[n, hidden] as [hidden, n]: every step multiplies by it, and rows of it are what the product reads.
  std::unique_ptr<T[]> transposed(const T* w, int64_t n) const {
    std::unique_ptr<T[]> t(new T[n * s.hidden]);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < s.hidden; ++j) t[j * n + i] = w[i * s.hidden + j];
    }
    return t;
  }

  void sigmoid(T* x, int64_t n) const { map(Elementwise::sigmoid, x, x, n); }
  void tanh(T* x, int64_t n) const { map(Elementwise::tanh, x, x, n); }
  void tanh_of(const T* x, T* y, int64_t n) const { map(Elementwise::tanh, x, y, n); }

 private:
  static void map(Elementwise op, const T* x, T* y, int64_t n) {
    const void* in = x;
    kernels().map[static_cast<int>(op)][static_cast<int>(dtype)](y, &in, n);
  }
};

template <class T>
std::unique_ptr<T[]> scratch(int64_t n) {
  return std::unique_ptr<T[]>(new T[n]);
}

template <class T>
const T* in(const void* p) {
  return static_cast<const T*>(p);
}
template <class T>
T* out(void* p) {
  return static_cast<T*>(p);
}

// ------------------------------------------------------------------------------------------------------------ LSTM

template <class T>
void run_lstm(const RecurrentShape& s, const LstmForward& x) {
  const Sequence<T> seq(s);
  const int64_t n = s.hidden;
  const auto w = seq.transposed(in<T>(x.w), 4 * n);
  seq.for_rows([&](int64_t first, int64_t rows) {
    const auto product = scratch<T>(rows * 4 * n);
    for (int64_t t = 0; t < s.steps; ++t) {
      const T* h_before = seq.before(in<T>(x.h), in<T>(x.h0), t, first);
      seq.multiply(rows, 4 * n, n, h_before, w.get(), product.get());
      const T* pre = seq.at(in<T>(x.pre), t, first, 4 * n);
      T* gates = seq.at(out<T>(x.gates), t, first, 4 * n);
      for (int64_t k = 0; k < rows * 4 * n; ++k) gates[k] = pre[k] + product[k];
      const T* c_before = seq.before(in<T>(x.c), in<T>(x.c0), t, first);
      T *c = seq.at(out<T>(x.c), t, first, n), *h = seq.at(out<T>(x.h), t, first, n);
      for (int64_t r = 0; r < rows; ++r, gates += 4 * n) {
        T *i = gates, *f = gates + n, *g = gates + 2 * n;
        seq.sigmoid(i, 2 * n);
        seq.tanh(g, n);
        seq.sigmoid(gates + 3 * n, n);
        for (int64_t k = 0; k < n; ++k) c[r * n + k] = f[k] * c_before[r * n + k] + i[k] * g[k];
      }
      seq.tanh_of(c, h, rows * n);
      gates -= rows * 4 * n;
      for (int64_t r = 0; r < rows; ++r) {
        const T* o = gates + r * 4 * n + 3 * n;
        for (int64_t k = 0; k < n; ++k) h[r * n + k] *= o[k];
      }
    }
  });
}

template <class T>
void run_lstm_tangent(const RecurrentShape& s, const LstmTangent& x) {
  const Sequence<T> seq(s);
  const int64_t n = s.hidden;
  const auto w = seq.transposed(in<T>(x.w), 4 * n);
  seq.for_rows([&](int64_t first, int64_t rows) {
    const auto product = scratch<T>(rows * 4 * n), tanh_c = scratch<T>(rows * n);
    for (int64_t t = 0; t < s.steps; ++t) {
      const T* h_dot_before = seq.before(in<T>(x.h_dot), in<T>(x.h0_dot), t, first);
      seq.multiply(rows, 4 * n, n, h_dot_before, w.get(), product.get());
      const T *c_before = seq.before(in<T>(x.c), in<T>(x.c0), t, first),
              *c_dot_before = seq.before(in<T>(x.c_dot), in<T>(x.c0_dot), t, first);
      seq.tanh_of(seq.at(in<T>(x.c), t, first, n), tanh_c.get(), rows * n);
      T *c_dot = seq.at(out<T>(x.c_dot), t, first, n), *h_dot = seq.at(out<T>(x.h_dot), t, first, n);
      for (int64_t r = 0; r < rows; ++r) {
        const T *pre = seq.at(in<T>(x.pre_dot), t, first + r, 4 * n), *add = product.get() + r * 4 * n;
        const T *i = seq.at(in<T>(x.gates), t, first + r, 4 * n), *f = i + n, *g = f + n, *o = g + n;
        for (int64_t k = 0; k < n; ++k) {
          const int64_t e = r * n + k;
          const T i_dot = i[k] * (1 - i[k]) * (pre[k] + add[k]), f_dot = f[k] * (1 - f[k]) * (pre[n + k] + add[n + k]);
          const T g_dot = (1 - g[k] * g[k]) * (pre[2 * n + k] + add[2 * n + k]);
          const T o_dot = o[k] * (1 - o[k]) * (pre[3 * n + k] + add[3 * n + k]), y = tanh_c[e];
          c_dot[e] = f_dot * c_before[e] + f[k] * c_dot_before[e] + i_dot * g[k] + i[k] * g_dot;
          h_dot[e] = o_dot * y + o[k] * (1 - y * y) * c_dot[e];
        }
      }
    }
  });
}

template <class T>
void run_lstm_cotangent(const RecurrentShape& s, const LstmCotangent& x) {
  const Sequence<T> seq(s);
  const int64_t n = s.hidden;
  seq.for_rows([&](int64_t first, int64_t rows) {
    const auto tanh_c = scratch<T>(rows * n);
    T *h_carry = out<T>(x.h0_bar) + first * n, *c_carry = out<T>(x.c0_bar) + first * n;
    std::fill_n(h_carry, rows * n, T(0));
    std::fill_n(c_carry, rows * n, T(0));
    for (int64_t t = s.steps - 1; t >= 0; --t) {
      const T *h_bar = seq.at(in<T>(x.h_bar), t, first, n), *c_bar = seq.at(in<T>(x.c_bar), t, first, n);
      const T* c_before = seq.before(in<T>(x.c), in<T>(x.c0), t, first);
      seq.tanh_of(seq.at(in<T>(x.c), t, first, n), tanh_c.get(), rows * n);
      T* pre_bar = seq.at(out<T>(x.pre_bar), t, first, 4 * n);
      for (int64_t r = 0; r < rows; ++r) {
        const T *i = seq.at(in<T>(x.gates), t, first + r, 4 * n), *f = i + n, *g = f + n, *o = g + n;
        T* bar = pre_bar + r * 4 * n;
        for (int64_t k = 0; k < n; ++k) {
          const int64_t e = r * n + k;
          const T h = h_bar[e] + h_carry[e], y = tanh_c[e];
          const T c = c_bar[e] + c_carry[e] + h * o[k] * (1 - y * y);
          bar[k] = c * g[k] * (i[k] * (1 - i[k]));
          bar[n + k] = c * c_before[e] * (f[k] * (1 - f[k]));
          bar[2 * n + k] = c * i[k] * (1 - g[k] * g[k]);
          bar[3 * n + k] = h * y * (o[k] * (1 - o[k]));
          c_carry[e] = c * f[k];
        }
      }
      seq.multiply(rows, n, 4 * n, pre_bar, in<T>(x.w), h_carry);
    }
  });
}

// ------------------------------------------------------------------------------------------------------------- GRU

template <class T>
void run_gru(const RecurrentShape& s, const GruForward& x) {
  const Sequence<T> seq(s);
  const int64_t n = s.hidden;
  const auto w = seq.transposed(in<T>(x.w), 3 * n);
  seq.for_rows([&](int64_t first, int64_t rows) {
    const auto product = scratch<T>(rows * 3 * n);
    for (int64_t t = 0; t < s.steps; ++t) {
      const T* before = seq.before(in<T>(x.h), in<T>(x.h0), t, first);
      seq.multiply(rows, 3 * n, n, before, w.get(), product.get());
      for (int64_t r = 0; r < rows; ++r) {
        const T *pre = seq.at(in<T>(x.pre), t, first + r, 4 * n), *add = product.get() + r * 3 * n;
        T *reset = seq.at(out<T>(x.gates), t, first + r, 4 * n), *update = reset + n, *made = update + n,
          *share = made + n;
        for (int64_t k = 0; k < 2 * n; ++k) reset[k] = pre[k] + add[k];
        seq.sigmoid(reset, 2 * n);
        for (int64_t k = 0; k < n; ++k) {
          share[k] = pre[3 * n + k] + add[2 * n + k];
          made[k] = pre[2 * n + k] + reset[k] * share[k];
        }
        seq.tanh(made, n);
        T* h = seq.at(out<T>(x.h), t, first + r, n);
        for (int64_t k = 0; k < n; ++k) h[k] = made[k] + update[k] * (before[r * n + k] - made[k]);
      }
    }
  });
}

template <class T>
void run_gru_tangent(const RecurrentShape& s, const GruTangent& x) {
  const Sequence<T> seq(s);
  const int64_t n = s.hidden;
  const auto w = seq.transposed(in<T>(x.w), 3 * n);
  seq.for_rows([&](int64_t first, int64_t rows) {
    const auto product = scratch<T>(rows * 3 * n);
    for (int64_t t = 0; t < s.steps; ++t) {
      const T *h_before = seq.before(in<T>(x.h), in<T>(x.h0), t, first),
              *dot_before = seq.before(in<T>(x.h_dot), in<T>(x.h0_dot), t, first);
      seq.multiply(rows, 3 * n, n, dot_before, w.get(), product.get());
      for (int64_t r = 0; r < rows; ++r) {
        const T *pre = seq.at(in<T>(x.pre_dot), t, first + r, 4 * n), *add = product.get() + r * 3 * n;
        const T *reset = seq.at(in<T>(x.gates), t, first + r, 4 * n), *update = reset + n, *made = update + n,
                *share = made + n;
        T* h_dot = seq.at(out<T>(x.h_dot), t, first + r, n);
        for (int64_t k = 0; k < n; ++k) {
          const int64_t e = r * n + k;
          const T reset_dot = reset[k] * (1 - reset[k]) * (pre[k] + add[k]);
          const T update_dot = update[k] * (1 - update[k]) * (pre[n + k] + add[n + k]);
          const T share_dot = pre[3 * n + k] + add[2 * n + k];
          const T made_dot = (1 - made[k] * made[k]) * (pre[2 * n + k] + reset_dot * share[k] + reset[k] * share_dot);
          h_dot[k] = made_dot * (1 - update[k]) + update_dot * (h_before[e] - made[k]) + update[k] * dot_before[e];
        }
      }
    }
  });
}

template <class T>
void run_gru_cotangent(const RecurrentShape& s, const GruCotangent& x) {
  const Sequence<T> seq(s);
  const int64_t n = s.hidden;
  seq.for_rows([&](int64_t first, int64_t rows) {
    const auto hidden_bar = scratch<T>(rows * 3 * n), product = scratch<T>(rows * n);
    T* carry = out<T>(x.h0_bar) + first * n;
    std::fill_n(carry, rows * n, T(0));
    for (int64_t t = s.steps - 1; t >= 0; --t) {
      const T* h_before = seq.before(in<T>(x.h), in<T>(x.h0), t, first);
      for (int64_t r = 0; r < rows; ++r) {
        const T *h_bar = seq.at(in<T>(x.h_bar), t, first + r, n), *reset = seq.at(in<T>(x.gates), t, first + r, 4 * n);
        const T *update = reset + n, *made = update + n, *share = made + n;
        T *bar = seq.at(out<T>(x.pre_bar), t, first + r, 4 * n), *through = hidden_bar.get() + r * 3 * n;
        for (int64_t k = 0; k < n; ++k) {
          const int64_t e = r * n + k;
          const T h = h_bar[k] + carry[e], made_bar = h * (1 - update[k]) * (1 - made[k] * made[k]);
          bar[k] = through[k] = made_bar * share[k] * (reset[k] * (1 - reset[k]));
          bar[n + k] = through[n + k] = h * (h_before[e] - made[k]) * (update[k] * (1 - update[k]));
          bar[2 * n + k] = made_bar;
          bar[3 * n + k] = through[2 * n + k] = made_bar * reset[k];
          carry[e] = h * update[k];
        }
      }
      seq.multiply(rows, n, 3 * n, hidden_bar.get(), in<T>(x.w), product.get());
      for (int64_t k = 0; k < rows * n; ++k) carry[k] += product[k];
    }
  });
}

}  // namespace

#define WENGERT_BY_DTYPE(function, Arguments, run)                    \
  void function(const RecurrentShape& s, const Arguments& x) {        \
    s.dtype == DType::Float32 ? run<float>(s, x) : run<double>(s, x); \
  }
WENGERT_BY_DTYPE(lstm, LstmForward, run_lstm)
WENGERT_BY_DTYPE(lstm_tangent, LstmTangent, run_lstm_tangent)
WENGERT_BY_DTYPE(lstm_cotangent, LstmCotangent, run_lstm_cotangent)
WENGERT_BY_DTYPE(gru, GruForward, run_gru)
WENGERT_BY_DTYPE(gru_tangent, GruTangent, run_gru_tangent)
WENGERT_BY_DTYPE(gru_cotangent, GruCotangent, run_gru_cotangent)
#undef WENGERT_BY_DTYPE

}  // namespace wengert
