// LSTM and GRU over whole sequences, and their derivatives. All arrays are contiguous: time, batch, features. The
// input's share of the gates is given for all steps; a step adds the hidden state's. Batches are cut into blocks that
// depend on the shape only and run through all steps on one thread.
#pragma once
#include <cstdint>

#include "../dtype.h"

namespace wengert {

struct RecurrentShape {
  DType dtype;  // float32 or float64
  int64_t steps, batch, hidden;
};

// Gates in the order input, forget, cell, output. pre[steps, batch, 4 hidden], w[4 hidden, hidden]; `gates` are those
// of every step after their nonlinearity.
struct LstmForward {
  const void *pre, *h0, *c0, *w;
  void *h, *c, *gates;
};
void lstm(const RecurrentShape& s, const LstmForward& x);

// Tangents of h and c of all steps from those of the gates before their nonlinearity (the hidden state's part not
// counted) and of the initial state.
struct LstmTangent {
  const void *pre_dot, *h0_dot, *c0_dot, *w, *gates, *c, *c0;
  void *h_dot, *c_dot;
};
void lstm_tangent(const RecurrentShape& s, const LstmTangent& x);

// The transpose of lstm_tangent.
struct LstmCotangent {
  const void *h_bar, *c_bar, *w, *gates, *c, *c0;
  void *pre_bar, *h0_bar, *c0_bar;
};
void lstm_cotangent(const RecurrentShape& s, const LstmCotangent& x);

// Four groups of features: reset, update, the input's and the hidden state's share of the candidate. pre[steps, batch,
// 4 hidden], w[3 hidden, hidden] for reset, update and the last. `gates`: reset, update, candidate, and the hidden
// state's share of it before the reset gate.
struct GruForward {
  const void *pre, *h0, *w;
  void *h, *gates;
};
void gru(const RecurrentShape& s, const GruForward& x);

struct GruTangent {
  const void *pre_dot, *h0_dot, *w, *gates, *h, *h0;
  void* h_dot;
};
void gru_tangent(const RecurrentShape& s, const GruTangent& x);

struct GruCotangent {
  const void *h_bar, *w, *gates, *h, *h0;
  void *pre_bar, *h0_bar;
};
void gru_cotangent(const RecurrentShape& s, const GruCotangent& x);

}  // namespace wengert
