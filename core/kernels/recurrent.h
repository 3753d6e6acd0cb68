// LSTM and GRU over whole sequences, and their derivatives. Arrays are contiguous, unless they are given by rows: time,
// batch, features. Batches are cut into blocks that depend on the shape only and run through all steps on one thread.
#pragma once
#include <cstdint>

#include "../dtype.h"

namespace wengert {

struct RecurrentShape {
  DType dtype;  // float32 or float64
  int64_t steps, batch, hidden;
};

// x[t, r, i] is at data[t · step + r · row + i], i < width.
struct RecurrentArray {
  const void* data;
  int64_t step, row, width;
};

// Gates in the order input, forget, cell, output, of x w_ihᵀ + h w_hhᵀ + b. w_ih[4 hidden, width], w_hh[4 hidden,
// hidden], b[4 hidden]; `gates` are those of every step after their nonlinearity.
struct LstmForward {
  RecurrentArray x;
  const void *h0, *c0, *w_ih, *w_hh, *b;
  void *h, *c, *gates;
};
void lstm(const RecurrentShape& s, const LstmForward& x);

// Tangents of h and c of all steps from those of the gates before their nonlinearity (the part of the hidden state's
// tangent not counted) and of the initial state.
struct LstmTangent {
  const void *pre_dot, *h0_dot, *c0_dot, *w, *gates, *c, *c0;
  void *h_dot, *c_dot;
};
void lstm_tangent(const RecurrentShape& s, const LstmTangent& x);

// The transpose of lstm_tangent.
struct LstmCotangent {
  RecurrentArray h_bar, c_bar;
  const void *w, *gates, *c, *c0;
  void *pre_bar, *h0_bar, *c0_bar;
};
void lstm_cotangent(const RecurrentShape& s, const LstmCotangent& x);

// Four groups of features: reset, update, the input's and the hidden state's share of the candidate. w_ih[3 hidden,
// width] for the first three, w_hh[3 hidden, hidden] for reset, update and the last, b[4 hidden]. `gates`: reset,
// update, candidate, and the hidden state's share of it before the reset gate.
struct GruForward {
  RecurrentArray x;
  const void *h0, *w_ih, *w_hh, *b;
  void *h, *gates;
};
void gru(const RecurrentShape& s, const GruForward& x);

struct GruTangent {
  const void *pre_dot, *h0_dot, *w, *gates, *h, *h0;
  void* h_dot;
};
void gru_tangent(const RecurrentShape& s, const GruTangent& x);

struct GruCotangent {
  RecurrentArray h_bar;
  const void *w, *gates, *h, *h0;
  void *pre_bar, *h0_bar;
};
void gru_cotangent(const RecurrentShape& s, const GruCotangent& x);

}  // namespace wengert
