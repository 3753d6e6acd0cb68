// LSTM and GRU over whole sequences: the input's share of all gates as one product, then one launch for all steps.
#include "../ops/computed.h"
#include "device.h"

namespace wengert::cuda {

namespace {

constexpr int64_t kBlocks = 128;  // of a launch, before blocks take more rows than one
constexpr int kMostRows = 8;

int64_t word_of(const void* p) { return reinterpret_cast<int64_t>(p); }

// Operands and results in the dtype that is computed in.
struct Call {
  CudaDevice& gpu;
  const Op& op;
  DType computed;
  int64_t steps, batch, hidden;
  std::vector<Ref> kept;
  std::vector<std::pair<Ref, Value*>> rounded;

  // `gates`: what has their shape.
  Call(CudaDevice& device, const Op& called, const Value* gates)
      : gpu(device),
        op(called),
        computed(computed_in(gates->dtype)),
        steps(gates->shape[0]),
        batch(gates->shape[1]),
        hidden(gates->shape[2] / 4) {}

  Value* keep(Ref made) { return kept.emplace_back(std::move(made)).v; }
  Value* room(const Dims& shape) { return keep(Ref(empty(computed, shape, Category::workspace, gpu.id))); }
  Value* in(Value* v) {
    if (v->dtype == computed) return keep(Ref(contiguous(v)));
    Value* made = room(v->dims());
    copy_into(v, made);
    return made;
  }
  Value* out(Value* v) {
    if (v->dtype == computed) return v;
    return rounded.emplace_back(Ref(empty(computed, v->dims(), Category::workspace, gpu.id)), v).first.v;
  }
  Value* transposed(Value* w) {
    const Value* packed = in(w);
    const int64_t strides[] = {1, packed->shape[1]};
    const Ref turned(view(packed, Dims{w->shape[1], w->shape[0]}, strides, 0));
    return keep(Ref(contiguous(turned.v)));
  }
  // x w_ihᵀ + b for all steps and rows, with as many columns as w_ih has rows.
  void project(Value* x, Value* w_ih, Value* b, Value* to) {
    if (to->size == 0) return;
    const Value* input = in(x);
    const int64_t n = w_ih->shape[0], width = x->shape[2], rows = steps * batch, along[] = {0, 1};
    const int64_t of_x[] = {width, 1}, of_y[] = {n, 1};
    const Ref flat(view(input, Dims{rows, width}, of_x, 0)), y(view(to, Dims{rows, n}, of_y, 0));
    multiply_into(gpu, flat.v, false, in(w_ih), true, y.v);
    const Ref bias(view(in(b), Dims{rows, n}, along, 0));
    Value* operands[] = {y.v, bias.v};
    gpu.run_map(Elementwise::add, computed, operands, 2, y.v);
  }
  void run(std::initializer_list<const Value*> arrays, int results) {
    if (batch * hidden > 0) {
      int rows = 1;
      while (rows < kMostRows && batch > kBlocks * rows) rows *= 2;
      std::vector<int64_t> words;
      for (const Value* v : arrays) words.push_back(word_of(v->data));
      words.insert(words.end(), {steps, batch, hidden});
      gpu.run_kernel("device_recurrent.h",
                     op.name + "<" + dtype_text(computed) + ", " + std::to_string(rows) + ">(words, block_number)",
                     words, (batch + rows - 1) / rows * 256, results, 256 * 8);
    }
    for (auto& [wide, to] : rounded) copy_into(wide.v, to);
  }
};

// x, h0, c0, w_ih, w_hh, b → h, c, gates
void lstm(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  Call call(gpu, op, out[2]);
  Value *h = call.out(out[0]), *c = call.out(out[1]), *gates = call.out(out[2]);
  call.project(in[0], in[3], in[5], gates);
  call.run({h, c, gates, call.in(in[1]), call.in(in[2]), call.transposed(in[4])}, 3);
}

// pre_dot, h0_dot, c0_dot, w, gates, c, c0 → h_dot, c_dot
void lstm_tangent(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  Call call(gpu, op, in[4]);
  Value *h_dot = call.out(out[0]), *c_dot = call.out(out[1]), *scratch = call.room(Dims{call.batch, 4 * call.hidden});
  call.run({h_dot, c_dot, scratch, call.in(in[0]), call.in(in[1]), call.in(in[2]), call.transposed(in[3]),
            call.in(in[4]), call.in(in[5]), call.in(in[6])},
           3);
}

// h_bar, c_bar, w, gates, c, c0 → pre_bar, h0_bar, c0_bar
void lstm_cotangent(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  Call call(gpu, op, in[3]);
  Value *pre_bar = call.out(out[0]), *h0_bar = call.out(out[1]), *c0_bar = call.out(out[2]);
  call.run({pre_bar, h0_bar, c0_bar, call.in(in[0]), call.in(in[1]), call.in(in[2]), call.in(in[3]), call.in(in[4]),
            call.in(in[5])},
           3);
}

// x, h0, w_ih, w_hh, b → h, gates
void gru(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  Call call(gpu, op, out[1]);
  Value *h = call.out(out[0]), *gates = call.out(out[1]);
  Value* share = call.room(Dims{call.steps, call.batch, 3 * call.hidden});
  const Value* bias = call.in(in[4]);
  constexpr int64_t kPacked[] = {1};
  Value* first = call.keep(Ref(view(bias, Dims{3 * call.hidden}, kPacked, 0)));
  const Value* last = call.keep(Ref(view(bias, Dims{call.hidden}, kPacked, 3 * call.hidden)));
  call.project(in[0], in[2], first, share);
  call.run({h, gates, share, call.in(in[1]), call.transposed(in[3]), last}, 2);
}

// pre_dot, h0_dot, w, gates, h, h0 → h_dot
void gru_tangent(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  Call call(gpu, op, in[3]);
  Value *h_dot = call.out(out[0]), *scratch = call.room(Dims{call.batch, 3 * call.hidden});
  call.run({h_dot, scratch, call.in(in[0]), call.in(in[1]), call.transposed(in[2]), call.in(in[3]), call.in(in[4]),
            call.in(in[5])},
           2);
}

// h_bar, w, gates, h, h0 → pre_bar, h0_bar
void gru_cotangent(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  Call call(gpu, op, in[2]);
  Value *pre_bar = call.out(out[0]), *h0_bar = call.out(out[1]);
  call.run({pre_bar, h0_bar, call.in(in[0]), call.in(in[1]), call.in(in[2]), call.in(in[3]), call.in(in[4])}, 2);
}

}  // namespace

void register_recurrent_kernels() {
  add_kernel("lstm", lstm);
  add_kernel("lstm_tangent", lstm_tangent);
  add_kernel("lstm_cotangent", lstm_cotangent);
  add_kernel("gru", gru);
  add_kernel("gru_tangent", gru_tangent);
  add_kernel("gru_cotangent", gru_cotangent);
}

}  // namespace wengert::cuda
