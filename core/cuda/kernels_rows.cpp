// Ops on rows as chains: softmax, cross entropy and normalisation, with their derivatives.
#include <cmath>

#include "kernels_norm.h"

namespace wengert::cuda {

namespace {

// Writes a chain, computing 16-bit numbers in float32.
struct ChainWriter {
  PreparedChain& prepared;
  DType stored, computed;

  ChainWriter(PreparedChain& to, DType dtype)
      : prepared(to), stored(dtype), computed(dtype == DType::Float64 ? DType::Float64 : DType::Float32) {
    prepared.chain.rows = true;
  }
  int add(DType dtype, bool row) {
    prepared.chain.registers.push_back({dtype, row});
    return static_cast<int>(prepared.chain.registers.size()) - 1;
  }
  int emit(Chain::Instruction i, std::initializer_list<int> in, DType dtype, bool row) {
    i.n_in = 0;
    for (int k : in) i.in[i.n_in++] = static_cast<int16_t>(k);
    const int out = add(dtype, row);
    i.out = static_cast<int16_t>(out);
    prepared.chain.code.push_back(i);
    return out;
  }
  bool is_row(int k) const { return prepared.chain.registers[static_cast<size_t>(k)].row; }

  int input(bool row = false) {
    const int k = add(stored, row);
    prepared.chain.registers.back().input = true;
    return stored == computed ? k : emit({Chain::Instruction::Kind::cast}, {k}, computed, row);
  }
  int integer(bool row) {
    const int k = add(DType::Int64, row);
    prepared.chain.registers.back().input = true;
    return k;
  }
  int number() {  // of the host, in the dtype that is computed in
    const int k = add(computed, true);
    prepared.chain.registers.back().input = true;
    return k;
  }
  // Rows beside elements are repeated along them.
  int map(Elementwise op, int a, int b = -1) {
    if (b >= 0 && is_row(a) != is_row(b)) (is_row(a) ? a : b) = expand(is_row(a) ? a : b);
    Chain::Instruction i{Chain::Instruction::Kind::map};
    i.op = op;
    const DType made = op == Elementwise::equal || op == Elementwise::not_equal ? DType::Bool : computed;
    return b < 0 ? emit(i, {a}, made, is_row(a)) : emit(i, {a, b}, made, is_row(a));
  }
  int where(int condition, int a, int b) {
    if (is_row(b)) b = expand(b);
    Chain::Instruction i{Chain::Instruction::Kind::map};
    i.op = Elementwise::where;
    return emit(i, {condition, a, b}, computed, false);
  }
  int expand(int a) {
    return emit({Chain::Instruction::Kind::expand}, {a}, prepared.chain.registers[static_cast<size_t>(a)].dtype, false);
  }
  int reduce(Reduction reduction, int a) {
    Chain::Instruction i{Chain::Instruction::Kind::reduce};
    i.reduction = reduction;
    return emit(i, {a}, computed, true);
  }
  int sum(int a) { return reduce(Reduction::sum, a); }
  int add(int a, int b) { return map(Elementwise::add, a, b); }
  int sub(int a, int b) { return map(Elementwise::sub, a, b); }
  int mul(int a, int b) { return map(Elementwise::mul, a, b); }
  // Whether a row is all zeros, as elements: then what is linear in it is zero, whatever it is multiplied with.
  int is_zero(int t) {
    const int largest = reduce(Reduction::max, map(Elementwise::abs, t));
    return map(Elementwise::equal, expand(largest), expand(sub(largest, largest)));
  }
  // Outputs are in the order of their registers, so each gets one of its own.
  void output(int k) {
    Chain::Instruction copy{Chain::Instruction::Kind::map};
    copy.op = Elementwise::copy;
    emit(stored == computed ? copy : Chain::Instruction{Chain::Instruction::Kind::cast}, {k}, stored, is_row(k));
    prepared.chain.registers.back().output = true;
  }
};

// ------------------------------------------------------------------------------------------------------------- softmax

template <class Write>
void run_last_axis(CudaDevice& gpu, const Op& op, Value* const* in, int n_in, Value** out, Write write) {
  const DType dtype = out[0]->dtype;
  PreparedChain& prepared = gpu.prepared(op, static_cast<int>(dtype), [&](PreparedChain& made) {
    ChainWriter w(made, dtype);
    write(w);
  });
  Operand operands[2];
  for (int k = 0; k < n_in; ++k) operands[k] = {in[k]->data, in[k]->strides};
  void* to = out[0]->data;
  gpu.run_chain(prepared, {out[0]->ndim, out[0]->shape, 1}, operands, &to);
}

void softmax(CudaDevice& gpu, const Op& op, Value* const* in, int n_in, const Attrs&, Value** out) {
  run_last_axis(gpu, op, in, n_in, out, [](ChainWriter& w) {
    const int x = w.input();
    const int e = w.map(Elementwise::exp, w.sub(x, w.reduce(Reduction::max, x)));
    w.output(w.map(Elementwise::div, e, w.sum(e)));
  });
}

void log_softmax(CudaDevice& gpu, const Op& op, Value* const* in, int n_in, const Attrs&, Value** out) {
  run_last_axis(gpu, op, in, n_in, out, [](ChainWriter& w) {
    const int x = w.input(), near = w.sub(x, w.reduce(Reduction::max, x));
    w.output(w.sub(near, w.map(Elementwise::log, w.sum(w.map(Elementwise::exp, near)))));
  });
}

void softmax_push(CudaDevice& gpu, const Op& op, Value* const* in, int n_in, const Attrs&, Value** out) {
  run_last_axis(gpu, op, in, n_in, out, [](ChainWriter& w) {
    const int t = w.input(), y = w.input();
    const int pushed = w.mul(y, w.sub(t, w.sum(w.mul(t, y))));
    w.output(w.where(w.is_zero(t), t, pushed));
  });
}

void log_softmax_push(CudaDevice& gpu, const Op& op, Value* const* in, int n_in, const Attrs&, Value** out) {
  run_last_axis(gpu, op, in, n_in, out, [](ChainWriter& w) {
    const int t = w.input(), y = w.input();
    const int pushed = w.sub(t, w.sum(w.mul(w.map(Elementwise::exp, y), t)));
    w.output(w.where(w.is_zero(t), t, pushed));
  });
}

void log_softmax_pull(CudaDevice& gpu, const Op& op, Value* const* in, int n_in, const Attrs&, Value** out) {
  run_last_axis(gpu, op, in, n_in, out, [](ChainWriter& w) {
    const int t = w.input(), y = w.input(), total = w.expand(w.sum(t));
    const int pulled = w.sub(t, w.mul(w.map(Elementwise::exp, y), total));
    w.output(w.where(w.map(Elementwise::equal, total, w.sub(t, t)), t, pulled));
  });
}

// ------------------------------------------------------------------------------------------------------- cross entropy

// Logits of shape (…, classes), and numbers of rows: their classes, and what derivatives are given.
struct ClassCall {
  CudaDevice& gpu;
  const Value* x;
  Ref classes, places;  // of rows; 0, 1, 2, … along one
  std::vector<Ref> packed;
  std::vector<Operand> in;
  int64_t of_rows[kMaxRank] = {}, of_places[kMaxRank] = {};
  alignas(16) char numbers[2][16];

  ClassCall(CudaDevice& device, const Value* logits, Value* given)
      : gpu(device),
        x(logits),
        classes(contiguous(given)),
        places(empty(DType::Int64, Dims{logits->shape[logits->ndim - 1]}, Category::workspace, device.id)) {
    gpu.run_kernel("device_memory.h", "iota<DType::Int64, DType::Int64>(words, block_number)",
                   {reinterpret_cast<int64_t>(places->data), places->size, 0, 1}, places->size);
    of_places[x->ndim - 1] = 1;
    for (int i = 0; i + 1 < x->ndim; ++i) of_rows[i] = classes->strides[i];
  }
  // Derivatives need no check: the loss was computed before, with the same classes.
  void check(const Op& op) {
    const Ref from(classes.take());
    classes = Ref(empty(DType::Int64, from->dims(), Category::workspace, gpu.id));
    std::vector<int64_t> words = {reinterpret_cast<int64_t>(classes->data), reinterpret_cast<int64_t>(from->data),
                                  classes->size, places->size};
    gpu.note_index(op, words);
    gpu.run_kernel("device_index.h", "check_indices(words, block_number)", words, classes->size);
  }
  void full(const Value* v) { in.push_back({v->data, v->strides}); }
  void row(Value* v) {
    packed.emplace_back(contiguous(v));
    in.push_back({packed.back()->data, of_rows});
  }
  // In the order in which `Target` declares them.
  void target() {
    static constexpr int64_t kRepeated[kMaxRank] = {};
    in.push_back({classes->data, of_rows});
    in.push_back({places->data, of_places});
    for (int k = 0; k < 2; ++k) {
      set_scalar(x->dtype == DType::Float64 ? DType::Float64 : DType::Float32, numbers[k], k);
      in.push_back({numbers[k], kRepeated, true});
    }
  }
  void run(PreparedChain& prepared, void* const* out) {
    gpu.run_chain(prepared, {x->ndim, x->shape, 1}, in.data(), out);
  }
};

struct Target {
  int is_class, zero, one;
  explicit Target(ChainWriter& w) {
    const int class_of_row = w.integer(true), place = w.integer(false);
    zero = w.number();
    one = w.number();
    is_class = w.map(Elementwise::equal, place, class_of_row);
  }
};

void cross_entropy(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  if (out[0]->size == 0) return;
  PreparedChain& prepared = gpu.prepared(op, static_cast<int>(in[0]->dtype), [&](PreparedChain& made) {
    ChainWriter w(made, in[0]->dtype);
    const int x = w.input();
    const Target target(w);
    const int largest = w.reduce(Reduction::max, x), near = w.sub(x, largest);
    const int log_total = w.map(Elementwise::log, w.sum(w.map(Elementwise::exp, near)));
    w.output(w.sub(log_total, w.sum(w.where(target.is_class, near, target.zero))));
    w.output(largest);
    w.output(log_total);
  });
  ClassCall call(gpu, in[0], in[1]);
  call.check(op);
  call.full(in[0]);
  call.target();
  void* to[] = {out[0]->data, out[1]->data, out[2]->data};
  call.run(prepared, to);
}

// t, x, classes, largest, log_total
template <bool kForward>
void cross_entropy_derivative(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  if (in[1]->size == 0) return;
  PreparedChain& prepared = gpu.prepared(op, static_cast<int>(in[1]->dtype), [&](PreparedChain& made) {
    ChainWriter w(made, in[1]->dtype);
    const int t = w.input(!kForward), x = w.input(), largest = w.input(true), log_total = w.input(true);
    const Target target(w);
    const int p = w.map(Elementwise::exp, w.sub(w.sub(x, largest), log_total));
    const int slope = w.where(target.is_class, w.sub(p, target.one), p);
    if constexpr (kForward) {
      w.output(w.sum(w.where(w.is_zero(t), t, w.mul(slope, t))));
    } else {
      const int bar = w.expand(t);
      w.output(w.where(w.map(Elementwise::equal, bar, w.sub(bar, bar)), bar, w.mul(slope, bar)));
    }
  });
  ClassCall call(gpu, in[1], in[2]);
  kForward ? call.full(in[0]) : call.row(in[0]);
  call.full(in[1]);
  call.row(in[3]);
  call.row(in[4]);
  call.target();
  void* to = out[0]->data;
  call.run(prepared, &to);
}

// ------------------------------------------------------------------------------------------------------- normalisation

// (batch, groups, members, length), a row for each batch and group, or across the batch for each group. The iteration
// space has the axes of a row last.
struct RowSpace {
  bool across;
  int64_t shape[4];
  const int64_t* n;  // of x

  RowSpace(const Value* x, bool over_batch) : across(over_batch), n(x->shape) {
    for (int i = 0; i < 4; ++i) shape[i] = n[order(i)];
  }
  int order(int i) const { return across && i < 2 ? 1 - i : i; }
  int row_axes() const { return across ? 3 : 2; }
  double row_size() const { return static_cast<double>(n[2] * n[3] * (across ? n[0] : 1)); }
  Space space() const { return {4, shape, row_axes()}; }
  void full_strides(const Value* v, int64_t* strides) const {
    for (int i = 0; i < 4; ++i) strides[i] = v->strides[order(i)];
  }
  void member_strides(const Value* v, int64_t* strides) const {  // of (groups, members)
    const int64_t of_x[4] = {0, v->strides[0], v->strides[1], 0};
    for (int i = 0; i < 4; ++i) strides[i] = of_x[order(i)];
  }
};

// Operands in the order of a chain's inputs. Everything with an element per point, then the numbers of rows.
struct RowCall {
  CudaDevice& gpu;
  RowSpace rows;
  DType dtype;
  std::vector<Operand> in;
  std::vector<void*> out;
  std::vector<std::pair<Ref, Value*>> turned;  // what was written in the order of the iteration space, and whose it is
  std::vector<Ref> packed;
  int64_t strides[8][4];
  alignas(16) char numbers[3][16];
  int n_strides = 0, n_numbers = 0;

  RowCall(CudaDevice& device, const Value* x, const Attrs& attrs)
      : gpu(device), rows(x, attrs[2].i != 0), dtype(x->dtype) {}
  void full(const Value* v) {
    rows.full_strides(v, strides[n_strides]);
    in.push_back({v->data, strides[n_strides++]});
  }
  void member(const Value* v) {
    rows.member_strides(v, strides[n_strides]);
    in.push_back({v->data, strides[n_strides++]});
  }
  void row(Value* v) {  // a number per row
    packed.emplace_back(contiguous(v));
    int64_t* s = strides[n_strides++];
    s[0] = rows.across ? 1 : rows.shape[1];
    s[1] = 1;
    in.push_back({packed.back()->data, s});
  }
  void number(double x) {
    set_scalar(dtype == DType::Float64 ? DType::Float64 : DType::Float32, numbers[n_numbers], x);
    static constexpr int64_t kRepeated[4] = {};
    in.push_back({numbers[n_numbers++], kRepeated, true});
  }
  void write(Value* v) {
    if (!rows.across) return out.push_back(v->data);
    const Ref made(
        empty(v->dtype, Dims{rows.shape[0], rows.shape[1], rows.shape[2], rows.shape[3]}, Category::workspace, gpu.id));
    const int64_t seen[4] = {made->strides[1], made->strides[0], made->strides[2], made->strides[3]};
    turned.emplace_back(view(made.v, v->dims(), seen, 0), v);
    out.push_back(made->data);
  }
  void write_row(Value* v) { out.push_back(v->data); }
  void run(PreparedChain& prepared) {
    gpu.run_chain(prepared, rows.space(), in.data(), out.data());
    for (auto& [from, to] : turned) copy_into(from.v, to);
  }
};

int variant(const Value* x, const Attrs& attrs) {
  return static_cast<int>(x->dtype) << 2 | (attrs[1].i != 0) << 1 | (attrs[2].i != 0);
}

// 1 / √(variance + eps)
int scale_of(ChainWriter& w, int variance, int eps) {
  const int spread = w.map(Elementwise::sqrt, w.add(variance, eps));
  return w.map(Elementwise::reciprocal, spread);
}

void standardise(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  if (in[0]->size == 0) {
    fill_value(out[1], NAN);
    return fill_value(out[2], NAN);
  }
  if (standardise_long_rows(gpu, in, attrs, out)) return;
  const bool centred = attrs[1].i != 0;
  PreparedChain& prepared = gpu.prepared(op, variant(in[0], attrs), [&](PreparedChain& made) {
    ChainWriter w(made, in[0]->dtype);
    const int x = w.input(), weight = w.input(), bias = w.input(), share = w.number(), eps = w.number();
    int mean, variance;
    if (centred) {
      const int near = w.mul(w.sum(x), share), u = w.sub(x, near), rest = w.mul(w.sum(u), share);
      const int moment = w.sub(w.mul(w.sum(w.mul(u, u)), share), w.mul(rest, rest));
      mean = w.add(near, rest);
      variance = w.map(Elementwise::maximum, moment, w.sub(share, share));
    } else {
      variance = w.mul(w.sum(w.mul(x, x)), share);
      mean = w.sub(share, share);
    }
    const int h = w.mul(w.sub(x, mean), scale_of(w, variance, eps));
    w.output(w.add(w.mul(h, weight), bias));
    w.output(mean);
    w.output(variance);
  });
  RowCall call(gpu, in[0], attrs);
  call.full(in[0]);
  call.member(in[1]);
  call.member(in[2]);
  call.number(1.0 / call.rows.row_size());
  call.number(attrs[0].f);
  call.write(out[0]);
  call.write_row(out[1]);
  call.write_row(out[2]);
  call.run(prepared);
}

// (t − mean t − h mean (h t)) · scale
int project(ChainWriter& w, int t, int h, int scale, int share, bool centred) {
  const int along = w.mul(w.sum(w.mul(h, t)), share);
  const int left = centred ? w.sub(t, w.mul(w.sum(t), share)) : t;
  return w.mul(w.sub(left, w.mul(h, w.expand(along))), scale);
}

void standardise_tangent(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  if (out[0]->size == 0) return;
  PreparedChain& prepared = gpu.prepared(op, variant(in[3], attrs), [&](PreparedChain& made) {
    ChainWriter w(made, in[3]->dtype);
    const int x_dot = w.input(), weight_dot = w.input(), bias_dot = w.input(), x = w.input();
    const int mean = w.input(true), variance = w.input(true), weight = w.input(), share = w.number(), eps = w.number();
    const int scale = scale_of(w, variance, eps), h = w.mul(w.sub(x, mean), scale);
    const int pushed = project(w, x_dot, h, scale, share, attrs[1].i != 0);
    w.output(w.add(w.add(w.mul(pushed, weight), w.mul(h, weight_dot)), bias_dot));
  });
  RowCall call(gpu, in[3], attrs);
  call.full(in[0]);
  call.member(in[1]);
  call.member(in[2]);
  call.full(in[3]);
  call.row(in[4]);
  call.row(in[5]);
  call.member(in[6]);
  call.number(1.0 / call.rows.row_size());
  call.number(attrs[0].f);
  call.write(out[0]);
  call.run(prepared);
}

// y_bar, x, mean, variance, weight
void standardise_cotangent(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  if (in[1]->size == 0) {
    fill_value(out[1], 0.0);
    return fill_value(out[2], 0.0);
  }
  if (packed_rows_cotangent(gpu, in, attrs, out) || long_rows_cotangent(gpu, in, attrs, out)) return;
  PreparedChain& prepared = gpu.prepared(op, variant(in[1], attrs), [&](PreparedChain& made) {
    ChainWriter w(made, in[1]->dtype);
    const int y_bar = w.input(), x = w.input(), mean = w.input(true), variance = w.input(true), weight = w.input();
    const int share = w.number(), eps = w.number();
    const int scale = scale_of(w, variance, eps), h = w.mul(w.sub(x, mean), scale), nothing = w.is_zero(y_bar);
    const int pulled = project(w, w.mul(y_bar, weight), h, scale, share, attrs[1].i != 0);
    w.output(w.where(nothing, y_bar, pulled));
    w.output(w.where(nothing, y_bar, w.mul(y_bar, h)));
  });
  const Ref products(empty(in[1]->dtype, in[1]->dims(), Category::workspace, gpu.id));
  RowCall call(gpu, in[1], attrs);
  call.full(in[0]);
  call.full(in[1]);
  call.row(in[2]);
  call.row(in[3]);
  call.member(in[4]);
  call.number(1.0 / call.rows.row_size());
  call.number(attrs[0].f);
  call.write(out[0]);
  call.write(products.v);
  call.run(prepared);
  constexpr uint32_t kBatchAndLength = 1u << 0 | 1u << 3;
  reduce_axes(gpu, Reduction::sum, products.v, kBatchAndLength, out[1]);
  reduce_axes(gpu, Reduction::sum, in[0], kBatchAndLength, out[2]);
}

}  // namespace

void register_row_kernels() {
  add_kernel("softmax", softmax);
  add_kernel("log_softmax", log_softmax);
  add_kernel("softmax_push", softmax_push);
  add_kernel("log_softmax_push", log_softmax_push);
  add_kernel("log_softmax_pull", log_softmax_pull);
  add_kernel("cross_entropy", cross_entropy);
  add_kernel("cross_entropy_tangent", cross_entropy_derivative<true>);
  add_kernel("cross_entropy_cotangent", cross_entropy_derivative<false>);
  add_kernel("standardise", standardise);
  add_kernel("standardise_tangent", standardise_tangent);
  add_kernel("standardise_cotangent", standardise_cotangent);
}

}  // namespace wengert::cuda
