// The inner loops of recurrent layers: products with a packed weight, and what a step does to one row of the batch.
// Compiled once per instruction set from vector_recurrent.cpp; the arrays are those of recurrent.h, of `n` hidden
// units.
#pragma once
#include <cstdint>

namespace wengert {

// to[rows, columns] = start + x[rows, depth] · panels. `start` may be `to`, null for zeros, or one row if start_row is
// 0.
template <class T>
struct PanelProduct {
  int64_t rows, columns, depth;
  const T* x;
  int64_t x_row;
  const T* panels;  // of `lanes` columns, each laid out [depth][lanes]
  const T* start;
  int64_t start_row;
  T* to;
  int64_t to_row;
};

template <class T>
struct RecurrentRows {
  int64_t lanes;  // columns of a panel; those past the last column are zeros
  void (*multiply)(const PanelProduct<T>&);

  // `gates` are before their nonlinearity, and after it on return.
  void (*lstm)(int64_t n, T* gates, const T* c_before, T* c, T* h);
  // `total` is the tangent of the gates before their nonlinearity.
  void (*lstm_tangent)(int64_t n, const T* total, const T* gates, const T* c, const T* c_before, const T* c_dot_before,
                       T* c_dot, T* h_dot);
  void (*lstm_cotangent)(int64_t n, const T* h_bar, const T* c_bar, const T* gates, const T* c, const T* c_before,
                         const T* h_carry, T* c_carry, T* pre_bar);

  // `gates` on entry: reset and update before their nonlinearity, the input's and the hidden state's share.
  void (*gru)(int64_t n, T* gates, const T* h_before, T* h);
  // `total` has nothing in its third group, which is `made_dot`.
  void (*gru_tangent)(int64_t n, const T* total, const T* made_dot, const T* gates, const T* h_before,
                      const T* h_dot_before, T* h_dot);
  void (*gru_cotangent)(int64_t n, const T* h_bar, const T* gates, const T* h_before, T* carry, T* pre_bar);
};

const RecurrentRows<float>& recurrent_rows(float);
const RecurrentRows<double>& recurrent_rows(double);

}  // namespace wengert
