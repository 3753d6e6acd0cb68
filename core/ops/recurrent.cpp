// LSTM and GRU over whole sequences, and the ops of their derivatives.
#include "../kernels/recurrent.h"

#include "check.h"
#include "computed.h"

namespace wengert {

namespace {

struct Sizes {
  Dim steps, batch, hidden;
};

// Checks gates (steps, batch, 4 hidden) and w (blocks · hidden, hidden), from which all other shapes follow.
Sizes check_sizes(const Op& op, const Type& gates, const Type& w, int blocks) {
  const char* name = op.name.c_str();
  if (!is_floating(gates.dtype) || w.dtype != gates.dtype) {
    fail(ErrorKind::dtype, name,
         "operands must have the same real floating dtype, got " + to_string(gates) + " and " + to_string(w));
  }
  if (gates.shape.n != 3 || w.shape.n != 2 || !(w.shape[0] == w.shape[1] * blocks) ||
      !(gates.shape[2] == w.shape[1] * 4)) {
    fail(ErrorKind::shape, name,
         "gates must be (steps, batch, 4 hidden) and the weight (" + std::to_string(blocks) + " hidden, hidden), got " +
             to_string(gates) + " and " + to_string(w));
  }
  return {gates.shape[0], gates.shape[1], w.shape[1]};
}

// Checks x (steps, batch, width), w_ih (blocks · hidden, width), w_hh (blocks · hidden, hidden) and b (4 hidden).
Sizes check_input(const Op& op, const Type& x, const Type& w_ih, const Type& w_hh, const Type& b, int blocks) {
  const char* name = op.name.c_str();
  const auto got = [&] {
    return to_string(x) + ", " + to_string(w_ih) + ", " + to_string(w_hh) + " and " + to_string(b);
  };
  if (!is_floating(x.dtype) || w_ih.dtype != x.dtype || w_hh.dtype != x.dtype || b.dtype != x.dtype) {
    fail(ErrorKind::dtype, name, "operands must have the same real floating dtype, got " + got());
  }
  const bool fit = x.shape.n == 3 && w_ih.shape.n == 2 && w_hh.shape.n == 2 && b.shape.n == 1 &&
                   w_hh.shape[0] == w_hh.shape[1] * blocks && w_ih.shape[0] == w_hh.shape[0] &&
                   w_ih.shape[1] == x.shape[2] && b.shape[0] == w_hh.shape[1] * 4;
  if (!fit) {
    const std::string rows = "(" + std::to_string(blocks) + " hidden, ";
    fail(ErrorKind::shape, name,
         "x must be (steps, batch, input), the weights " + rows + "input) and " + rows +
             "hidden), the bias (4 hidden), got " + got());
  }
  return {x.shape[0], x.shape[1], w_hh.shape[1]};
}

void check_like(const Op& op, const Type& x, DType dtype, const Dims& shape, const char* what) {
  if (x.dtype != dtype || !(x.shape == shape)) {
    fail(ErrorKind::shape, op.name.c_str(),
         std::string(what) + " must be " + to_string(Type{dtype, shape}) + ", got " + to_string(x));
  }
}

// The shapes of the values of one call.
struct Shapes {
  DType dtype;
  Dims gates, states, state;
  Shapes(DType d, const Sizes& s)
      : dtype(d), gates{s.steps, s.batch, s.hidden * 4}, states{s.steps, s.batch, s.hidden}, state{s.batch, s.hidden} {}
};

// x, h0, c0, w_ih, w_hh, b → h, c, gates
void infer_lstm(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  const Shapes s(in[0].dtype, check_input(op, in[0], in[3], in[4], in[5], 4));
  check_like(op, in[1], s.dtype, s.state, "h0");
  check_like(op, in[2], s.dtype, s.state, "c0");
  out[0] = out[1] = {s.dtype, s.states};
  out[2] = {s.dtype, s.gates};
}

// pre_dot, h0_dot, c0_dot, w, gates, c, c0 → h_dot, c_dot
void infer_lstm_tangent(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  const Shapes s(in[4].dtype, check_sizes(op, in[4], in[3], 4));
  check_like(op, in[0], s.dtype, s.gates, "the tangent of the gates");
  for (int k : {1, 2, 6}) check_like(op, in[k], s.dtype, s.state, "a state");
  check_like(op, in[5], s.dtype, s.states, "c");
  out[0] = out[1] = {s.dtype, s.states};
}

// h_bar, c_bar, w, gates, c, c0 → pre_bar, h0_bar, c0_bar
void infer_lstm_cotangent(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  const Shapes s(in[3].dtype, check_sizes(op, in[3], in[2], 4));
  for (int k : {0, 1, 4}) check_like(op, in[k], s.dtype, s.states, "what belongs to every step");
  check_like(op, in[5], s.dtype, s.state, "c0");
  out[0] = {s.dtype, s.gates};
  out[1] = out[2] = {s.dtype, s.state};
}

// x, h0, w_ih, w_hh, b → h, gates
void infer_gru(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  const Shapes s(in[0].dtype, check_input(op, in[0], in[2], in[3], in[4], 3));
  check_like(op, in[1], s.dtype, s.state, "h0");
  out[0] = {s.dtype, s.states};
  out[1] = {s.dtype, s.gates};
}

// pre_dot, h0_dot, w, gates, h, h0 → h_dot
void infer_gru_tangent(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  const Shapes s(in[3].dtype, check_sizes(op, in[3], in[2], 3));
  check_like(op, in[0], s.dtype, s.gates, "the tangent of the gates");
  for (int k : {1, 5}) check_like(op, in[k], s.dtype, s.state, "a state");
  check_like(op, in[4], s.dtype, s.states, "h");
  out[0] = {s.dtype, s.states};
}

// h_bar, w, gates, h, h0 → pre_bar, h0_bar
void infer_gru_cotangent(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  const Shapes s(in[2].dtype, check_sizes(op, in[2], in[1], 3));
  for (int k : {0, 3}) check_like(op, in[k], s.dtype, s.states, "what belongs to every step");
  check_like(op, in[4], s.dtype, s.state, "h0");
  out[0] = {s.dtype, s.gates};
  out[1] = {s.dtype, s.state};
}

// Runs a kernel on packed operands in the dtype that it computes in. `gates` is what has their shape.
template <class F>
void run(const Op& op, const Value* gates, Value* const* in, int n_in, Value** out, F&& kernel) {
  const DType computed = computed_in(gates->dtype);
  std::vector<Ref> operands;
  for (int i = 0; i < n_in; ++i) operands.push_back(packed(in[i], computed));
  std::vector<Result> results;
  for (int i = 0; i < op.n_outputs; ++i) results.emplace_back(out[i], computed);
  const RecurrentShape s{computed, gates->shape[0], gates->shape[1], gates->shape[2] / 4};
  const auto x = [&](int i) -> const void* { return operands[i]->data; };
  const auto y = [&](int i) { return results[i].data(); };
  if (s.batch * s.hidden > 0) kernel(s, x, y);
  for (Result& r : results) r.finish();
}

// An operand with strided rows, such as the view of a batch-first layer. One number that is repeated everywhere, as
// zeros are, is one row for all.
struct Rows {
  Ref value;
  explicit Rows(Value* x) : value(as_computed(x, computed_in(x->dtype))) {
    if (value->shape[2] <= 1 || value->strides[2] == 1) return;
    const bool uniform = is_uniform(value.v) && value->size > 0;
    const Ref rows(uniform ? view(value.v, Dims{1, 1, value->shape[2]}, value->strides, 0)
                           : Ref::share(value.v).take());
    value = Ref(contiguous(rows.v));
  }
  RecurrentArray array() const { return {value->data, step(0), step(1), value->shape[2]}; }

 private:
  int64_t step(int axis) const { return value->shape[axis] == 1 ? 0 : value->strides[axis]; }
};

void compute_lstm(const Op& op, Value* const* in, int n_in, const Attrs&, Value** out) {
  const Rows input(in[0]);
  run(op, out[2], in + 1, n_in - 1, out, [&](const RecurrentShape& s, auto x, auto y) {
    lstm(s, {input.array(), x(0), x(1), x(2), x(3), x(4), y(0), y(1), y(2)});
  });
}

void compute_lstm_tangent(const Op& op, Value* const* in, int n_in, const Attrs&, Value** out) {
  run(op, in[4], in, n_in, out, [](const RecurrentShape& s, auto x, auto y) {
    lstm_tangent(s, {x(0), x(1), x(2), x(3), x(4), x(5), x(6), y(0), y(1)});
  });
}

void compute_lstm_cotangent(const Op& op, Value* const* in, int n_in, const Attrs&, Value** out) {
  const Rows h_bar(in[0]), c_bar(in[1]);
  run(op, in[3], in + 2, n_in - 2, out, [&](const RecurrentShape& s, auto x, auto y) {
    lstm_cotangent(s, {h_bar.array(), c_bar.array(), x(0), x(1), x(2), x(3), y(0), y(1), y(2)});
  });
}

void compute_gru(const Op& op, Value* const* in, int n_in, const Attrs&, Value** out) {
  const Rows input(in[0]);
  run(op, out[1], in + 1, n_in - 1, out,
      [&](const RecurrentShape& s, auto x, auto y) { gru(s, {input.array(), x(0), x(1), x(2), x(3), y(0), y(1)}); });
}

void compute_gru_tangent(const Op& op, Value* const* in, int n_in, const Attrs&, Value** out) {
  run(op, in[3], in, n_in, out,
      [](const RecurrentShape& s, auto x, auto y) { gru_tangent(s, {x(0), x(1), x(2), x(3), x(4), x(5), y(0)}); });
}

void compute_gru_cotangent(const Op& op, Value* const* in, int n_in, const Attrs&, Value** out) {
  const Rows h_bar(in[0]);
  run(op, in[2], in + 1, n_in - 1, out, [&](const RecurrentShape& s, auto x, auto y) {
    gru_cotangent(s, {h_bar.array(), x(0), x(1), x(2), x(3), y(0), y(1)});
  });
}

}  // namespace

static void add_ops() {
  const auto add = [](const char* name, int n_inputs, int n_outputs, Op::Infer infer, Op::Compute compute) {
    add_op({.name = name, .n_inputs = n_inputs, .n_outputs = n_outputs, .infer = infer, .compute = compute});
  };
  add("lstm", 6, 3, infer_lstm, compute_lstm);
  add("lstm_tangent", 7, 2, infer_lstm_tangent, compute_lstm_tangent);
  add("lstm_cotangent", 6, 3, infer_lstm_cotangent, compute_lstm_cotangent);
  add("gru", 5, 2, infer_gru, compute_gru);
  add("gru_tangent", 6, 1, infer_gru_tangent, compute_gru_tangent);
  add("gru_cotangent", 5, 2, infer_gru_cotangent, compute_gru_cotangent);
}
static const OpFamily family(add_ops);

}  // namespace wengert
