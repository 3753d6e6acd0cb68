#include "recurrent.h"

#include <algorithm>
#include <memory>

#include "../threads.h"
#include "recurrent_rows.h"
#include "strided.h"

namespace wengert {

namespace {

constexpr double kProjectedTogether = 1 << 18;  // multiply-adds of one task
constexpr int64_t kRows = 16;                   // of the batch in one task: fewer read the weight too often

template <class T>
const T* row_of(const RecurrentArray& x, int64_t t, int64_t row) {
  return static_cast<const T*>(x.data) + t * x.step + row * x.row;
}

// A matrix that every step multiplies by, in the order in which the product reads it.
template <class T>
class Panels {
 public:
  // b[depth, columns] with these strides.
  Panels(int64_t depth, int64_t columns, const T* b, int64_t row, int64_t column)
      : depth_(depth), columns_(columns), lanes_(rows_of().lanes) {
    const int64_t whole = columns / lanes_, used = columns % lanes_;
    memory_.reset(new T[(whole + (used > 0)) * lanes_ * depth]);
    const int64_t to[] = {lanes_ * depth, lanes_, 1}, from[] = {lanes_ * column, row, column};
    const int64_t shape[] = {whole, depth, lanes_};
    copy_strided(memory_.get(), to, b, from, 3, shape, sizeof(T));
    if (used) pack_last(whole * lanes_, used, b, row, column);
  }

  // wᵀ of w[columns, depth], as the next state needs it, and w[depth, columns], as the state before.
  static Panels transposed(const T* w, int64_t columns, int64_t depth) { return {depth, columns, w, 1, depth}; }
  static Panels straight(const T* w, int64_t depth, int64_t columns) { return {depth, columns, w, columns, 1}; }

  // to = start + x · b, rows `x_row` and `to_row` apart; `start` as `to`.
  void multiply(int64_t rows, const T* x, int64_t x_row, const T* start, T* to, int64_t to_row) const {
    rows_of().multiply({rows, columns_, depth_, x, x_row, memory_.get(), start, to_row, to, to_row});
  }
  // to = bias + x · b for a block of rows of step t.
  void multiply(int64_t rows, const RecurrentArray& x, int64_t t, int64_t first, const T* bias, T* to,
                int64_t to_row) const {
    rows_of().multiply({rows, columns_, depth_, row_of<T>(x, t, first), x.row, memory_.get(), bias, 0, to, to_row});
  }

 private:
  static const RecurrentRows<T>& rows_of() { return recurrent_rows(T{}); }

  // The panel of the columns that fill no whole one.
  void pack_last(int64_t first, int64_t used, const T* b, int64_t row, int64_t column) {
    T* to = memory_.get() + first * depth_;
    for (int64_t k = 0; k < depth_; ++k, to += lanes_) {
      for (int64_t j = 0; j < used; ++j) to[j] = b[k * row + (first + j) * column];
      std::fill(to + used, to + lanes_, T(0));
    }
  }

  int64_t depth_, columns_, lanes_;
  std::unique_ptr<T[]> memory_;
};

template <class T>
class Sequence {
 public:
  explicit Sequence(const RecurrentShape& shape) : s(shape) {}

  const RecurrentShape& s;

  // Calls f(first row, rows) for blocks of the batch.
  template <class F>
  void for_rows(F&& f) const {
    parallel_for((s.batch + kRows - 1) / kRows, [&](int64_t task) {
      const int64_t first = task * kRows;
      f(first, std::min(kRows, s.batch - first));
    });
  }

  // Makes the input's share of the gates, one row from the next 4 hidden apart, for all steps at once where blocks of
  // the batch alone would leave threads idle, and says whether it did. The bits are those of a block that makes its
  // own.
  bool project(const Panels<T>& w, const RecurrentArray& x, const T* bias, T* gates) const {
    if ((s.batch + kRows - 1) / kRows >= num_threads()) return false;
    const double work = static_cast<double>(s.batch * 4 * s.hidden) * static_cast<double>(x.width + 1);
    const int64_t group = std::max<int64_t>(1, static_cast<int64_t>(kProjectedTogether / work));
    parallel_for((s.steps + group - 1) / group, [&](int64_t task) {
      for (int64_t t = task * group; t < std::min(s.steps, (task + 1) * group); ++t) {
        w.multiply(s.batch, x, t, 0, bias, at(gates, t, 0, 4 * s.hidden), 4 * s.hidden);
      }
    });
    return true;
  }

  // Row `row` of step t of an array with `width` features. Step −1 is the initial state.
  template <class P>
  P* at(P* x, int64_t t, int64_t row, int64_t width) const {
    return x + (t * s.batch + row) * width;
  }
  const T* before(const T* x, const T* initial, int64_t t, int64_t row) const {
    return t == 0 ? initial + row * s.hidden : at(x, t - 1, row, s.hidden);
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
  const auto w_ih = Panels<T>::transposed(in<T>(x.w_ih), 4 * n, x.x.width);
  const auto w_hh = Panels<T>::transposed(in<T>(x.w_hh), 4 * n, n);
  const auto step = recurrent_rows(T{}).lstm;
  const bool projected = seq.project(w_ih, x.x, in<T>(x.b), out<T>(x.gates));
  seq.for_rows([&](int64_t first, int64_t rows) {
    for (int64_t t = 0; t < s.steps; ++t) {
      T* gates = seq.at(out<T>(x.gates), t, first, 4 * n);
      if (!projected) w_ih.multiply(rows, x.x, t, first, in<T>(x.b), gates, 4 * n);
      w_hh.multiply(rows, seq.before(in<T>(x.h), in<T>(x.h0), t, first), n, gates, gates, 4 * n);
      const T* c_before = seq.before(in<T>(x.c), in<T>(x.c0), t, first);
      T *c = seq.at(out<T>(x.c), t, first, n), *h = seq.at(out<T>(x.h), t, first, n);
      for (int64_t r = 0; r < rows; ++r) step(n, gates + r * 4 * n, c_before + r * n, c + r * n, h + r * n);
    }
  });
}

template <class T>
void run_lstm_tangent(const RecurrentShape& s, const LstmTangent& x) {
  const Sequence<T> seq(s);
  const int64_t n = s.hidden;
  const auto w = Panels<T>::transposed(in<T>(x.w), 4 * n, n);
  const auto step = recurrent_rows(T{}).lstm_tangent;
  seq.for_rows([&](int64_t first, int64_t rows) {
    const auto total = scratch<T>(rows * 4 * n);
    for (int64_t t = 0; t < s.steps; ++t) {
      w.multiply(rows, seq.before(in<T>(x.h_dot), in<T>(x.h0_dot), t, first), n,
                 seq.at(in<T>(x.pre_dot), t, first, 4 * n), total.get(), 4 * n);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t row = first + r;
        step(n, total.get() + r * 4 * n, seq.at(in<T>(x.gates), t, row, 4 * n), seq.at(in<T>(x.c), t, row, n),
             seq.before(in<T>(x.c), in<T>(x.c0), t, row), seq.before(in<T>(x.c_dot), in<T>(x.c0_dot), t, row),
             seq.at(out<T>(x.c_dot), t, row, n), seq.at(out<T>(x.h_dot), t, row, n));
      }
    }
  });
}

template <class T>
void run_lstm_cotangent(const RecurrentShape& s, const LstmCotangent& x) {
  const Sequence<T> seq(s);
  const int64_t n = s.hidden;
  const auto w = Panels<T>::straight(in<T>(x.w), 4 * n, n);
  const auto step = recurrent_rows(T{}).lstm_cotangent;
  seq.for_rows([&](int64_t first, int64_t rows) {
    T *h_carry = out<T>(x.h0_bar) + first * n, *c_carry = out<T>(x.c0_bar) + first * n;
    std::fill_n(h_carry, rows * n, T(0));
    std::fill_n(c_carry, rows * n, T(0));
    for (int64_t t = s.steps - 1; t >= 0; --t) {
      T* pre_bar = seq.at(out<T>(x.pre_bar), t, first, 4 * n);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t row = first + r;
        step(n, row_of<T>(x.h_bar, t, row), row_of<T>(x.c_bar, t, row), seq.at(in<T>(x.gates), t, row, 4 * n),
             seq.at(in<T>(x.c), t, row, n), seq.before(in<T>(x.c), in<T>(x.c0), t, row), h_carry + r * n,
             c_carry + r * n, pre_bar + r * 4 * n);
      }
      w.multiply(rows, pre_bar, 4 * n, nullptr, h_carry, n);
    }
  });
}

// ------------------------------------------------------------------------------------------------------------- GRU

// Weights of the reset and update gates, and of the hidden state's share of the candidate, which are groups 0, 1 and 3.
template <class T>
struct GruPanels {
  Panels<T> gates, share;
  static GruPanels transposed(const T* w, int64_t n) {
    return {Panels<T>::transposed(w, 2 * n, n), Panels<T>::transposed(w + 2 * n * n, n, n)};
  }
  static GruPanels straight(const T* w, int64_t n) {
    return {Panels<T>::straight(w, 2 * n, n), Panels<T>::straight(w + 2 * n * n, n, n)};
  }
};

template <class T>
void run_gru(const RecurrentShape& s, const GruForward& x) {
  const Sequence<T> seq(s);
  const int64_t n = s.hidden;
  const auto w_ih = Panels<T>::transposed(in<T>(x.w_ih), 3 * n, x.x.width);
  const auto w_hh = GruPanels<T>::transposed(in<T>(x.w_hh), n);
  const T* share_bias = in<T>(x.b) + 3 * n;
  const auto step = recurrent_rows(T{}).gru;
  const bool projected = seq.project(w_ih, x.x, in<T>(x.b), out<T>(x.gates));
  seq.for_rows([&](int64_t first, int64_t rows) {
    for (int64_t t = 0; t < s.steps; ++t) {
      const T* before = seq.before(in<T>(x.h), in<T>(x.h0), t, first);
      T *gates = seq.at(out<T>(x.gates), t, first, 4 * n), *h = seq.at(out<T>(x.h), t, first, n);
      if (!projected) w_ih.multiply(rows, x.x, t, first, in<T>(x.b), gates, 4 * n);
      w_hh.gates.multiply(rows, before, n, gates, gates, 4 * n);
      w_hh.share.multiply(rows, RecurrentArray{before, 0, n, n}, 0, 0, share_bias, gates + 3 * n, 4 * n);
      for (int64_t r = 0; r < rows; ++r) step(n, gates + r * 4 * n, before + r * n, h + r * n);
    }
  });
}

template <class T>
void run_gru_tangent(const RecurrentShape& s, const GruTangent& x) {
  const Sequence<T> seq(s);
  const int64_t n = s.hidden;
  const auto w = GruPanels<T>::transposed(in<T>(x.w), n);
  const auto step = recurrent_rows(T{}).gru_tangent;
  seq.for_rows([&](int64_t first, int64_t rows) {
    const auto total = scratch<T>(rows * 4 * n);
    for (int64_t t = 0; t < s.steps; ++t) {
      const T* dot_before = seq.before(in<T>(x.h_dot), in<T>(x.h0_dot), t, first);
      const T* pre = seq.at(in<T>(x.pre_dot), t, first, 4 * n);
      w.gates.multiply(rows, dot_before, n, pre, total.get(), 4 * n);
      w.share.multiply(rows, dot_before, n, pre + 3 * n, total.get() + 3 * n, 4 * n);
      for (int64_t r = 0; r < rows; ++r) {
        step(n, total.get() + r * 4 * n, pre + r * 4 * n + 2 * n, seq.at(in<T>(x.gates), t, first + r, 4 * n),
             seq.before(in<T>(x.h), in<T>(x.h0), t, first + r), dot_before + r * n,
             seq.at(out<T>(x.h_dot), t, first + r, n));
      }
    }
  });
}

template <class T>
void run_gru_cotangent(const RecurrentShape& s, const GruCotangent& x) {
  const Sequence<T> seq(s);
  const int64_t n = s.hidden;
  const auto w = GruPanels<T>::straight(in<T>(x.w), n);
  const auto step = recurrent_rows(T{}).gru_cotangent;
  seq.for_rows([&](int64_t first, int64_t rows) {
    T* carry = out<T>(x.h0_bar) + first * n;
    std::fill_n(carry, rows * n, T(0));
    for (int64_t t = s.steps - 1; t >= 0; --t) {
      T* pre_bar = seq.at(out<T>(x.pre_bar), t, first, 4 * n);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t row = first + r;
        step(n, row_of<T>(x.h_bar, t, row), seq.at(in<T>(x.gates), t, row, 4 * n),
             seq.before(in<T>(x.h), in<T>(x.h0), t, row), carry + r * n, pre_bar + r * 4 * n);
      }
      w.gates.multiply(rows, pre_bar, 4 * n, carry, carry, n);
      w.share.multiply(rows, pre_bar + 3 * n, 4 * n, carry, carry, n);
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
