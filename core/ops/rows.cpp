// Normalisation of rows to mean 0 and variance 1.
#include "../kernels/rows.h"

#include <array>
#include <cmath>
#include <optional>

#include "../kernels/strided.h"
#include "check.h"
#include "computed.h"
#include "row_tiles.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

// Rows are the last two axes of (batch, groups, members, length), or those and the batch: one row for each group. There
// is a weight and a bias for each member.
RowLayout layout_of(const Value* x, bool across) {
  const auto& n = x->shape;
  return {n[1], n[2], n[3], across ? n[0] : 1, n[1] * n[2] * n[3]};
}

Type per_row(const Type& x, const Attr& across) {
  Type t = x;
  t.shape[2] = t.shape[3] = Dim(1);
  if (across.i != 0) t.shape[0] = Dim(1);
  return t;
}

bool is_per_member(const Type& x, const Type& parameter) {
  return parameter.shape.n == 2 && parameter.shape[0] == x.shape[1] && parameter.shape[1] == x.shape[2];
}

[[noreturn]] void fail_shapes(const Op& op, const Type* in, int n) {
  fail(ErrorKind::shape, op.name.c_str(),
       "takes rows of shape (batch, groups, members, length), one number a row and "
       "parameters of shape (groups, members), got " +
           operands(in, n));
}

void require_one_floating_dtype(const Op& op, const Type* in, int n) {
  require_floating(op, in[0]);
  for (int i = 1; i < n; ++i) require_same_dtype(op, in, 0, i, n);
}

void fill_with(Value* v, double x) {
  alignas(16) char one[16];
  set_scalar(v->dtype, one, x);
  fill(v->data, one, size_of(v->dtype), v->size);
}

// Operands and results of a kernel in the dtype that it computes in.
struct Operands {
  DType computed;
  std::array<Ref, 7> in;
  std::array<std::optional<Result>, 3> out;
  Operands(Value* const* inputs, int n, Value** outputs, int n_outputs) : computed(computed_in(inputs[0]->dtype)) {
    for (int i = 0; i < n; ++i) in[i] = packed(inputs[i], computed);
    for (int i = 0; i < n_outputs; ++i) out[i].emplace(outputs[i], computed);
  }
  template <class T>
  const T* read(int i) const {
    return reinterpret_cast<const T*>(in[i]->data);
  }
  template <class T>
  T* write(int i) {
    return static_cast<T*>(out[i]->data());
  }
  void finish() {
    for (auto& result : out) {
      if (result) result->finish();
    }
  }
  // f(float{}) or f(double{}), then the results are in place
  template <class F>
  void compute(F&& f) {
    computed == DType::Float64 ? f(double{}) : f(float{});
    finish();
  }
};

// Attributes: eps, centred, across.
void infer_standardise(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_one_floating_dtype(op, in, n);
  if (in[0].shape.n != 4 || !is_per_member(in[0], in[1]) || !is_per_member(in[0], in[2])) fail_shapes(op, in, n);
  out[0] = in[0];
  out[1] = out[2] = per_row(in[0], attrs[2]);
}

void compute_standardise(const Op&, Value* const* in, int n, const Attrs& attrs, Value** out) {
  const RowLayout layout = layout_of(in[0], attrs[2].i != 0);
  if (layout.size() == 0) {
    fill_with(out[1], NAN);
    fill_with(out[2], NAN);
    return;
  }
  Operands at(in, n, out, 3);
  at.compute([&](auto zero) {
    using T = decltype(zero);
    for_rows(out[1]->size, rows_of_tile(layout.size()), [&](int64_t first, int64_t count, int64_t) {
      row_kernels(zero).standardise(at.write<T>(0), at.write<T>(1), at.write<T>(2), at.read<T>(0), at.read<T>(1),
                                    at.read<T>(2), layout, {first, count}, static_cast<T>(attrs[0].f), attrs[1].i != 0);
    });
  });
}

// x_dot, weight_dot, bias_dot, x, mean, variance, weight
void infer_tangent(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_one_floating_dtype(op, in, n);
  const Type& x = in[3];
  if (x.shape.n != 4 || !(in[0].shape == x.shape) || !(in[4].shape == per_row(x, attrs[2]).shape) ||
      !(in[5].shape == in[4].shape) || !is_per_member(x, in[1]) || !is_per_member(x, in[2]) ||
      !is_per_member(x, in[6])) {
    fail_shapes(op, in, n);
  }
  *out = x;
}

void compute_tangent(const Op&, Value* const* in, int n, const Attrs& attrs, Value** out) {
  const RowLayout layout = layout_of(in[3], attrs[2].i != 0);
  if (layout.size() == 0) return;
  Operands at(in, n, out, 1);
  at.compute([&](auto zero) {
    using T = decltype(zero);
    for_rows(in[4]->size, rows_of_tile(layout.size()), [&](int64_t first, int64_t count, int64_t) {
      row_kernels(zero).tangent(at.write<T>(0), at.read<T>(0), at.read<T>(1), at.read<T>(2), at.read<T>(3),
                                at.read<T>(4), at.read<T>(5), at.read<T>(6), layout, {first, count},
                                static_cast<T>(attrs[0].f), attrs[1].i != 0);
    });
  });
}

// y_bar, x, mean, variance, weight
void infer_cotangent(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_one_floating_dtype(op, in, n);
  const Type& x = in[1];
  if (x.shape.n != 4 || !(in[0].shape == x.shape) || !(in[2].shape == per_row(x, attrs[2]).shape) ||
      !(in[3].shape == in[2].shape) || !is_per_member(x, in[4])) {
    fail_shapes(op, in, n);
  }
  out[0] = x;
  out[1] = out[2] = in[4];
}

// Sums of tiles, by twos, into the first.
template <class T>
void add_up(T* sums, int64_t tiles, int64_t size) {
  for (int64_t apart = 1; apart < tiles; apart *= 2) {
    for (int64_t k = 0; k + apart < tiles; k += 2 * apart) {
      for (int64_t i = 0; i < size; ++i) sums[k * size + i] += sums[(k + apart) * size + i];
    }
  }
}

void compute_cotangent(const Op&, Value* const* in, int n, const Attrs& attrs, Value** out) {
  const RowLayout layout = layout_of(in[1], attrs[2].i != 0);
  const int64_t n_rows = in[2]->size, parameters = in[4]->size;
  if (layout.size() == 0 || n_rows == 0) {
    fill_with(out[1], 0);
    fill_with(out[2], 0);
    return;
  }
  Operands at(in, n, out, 3);
  // Each tile sums the parameter gradients into a separate buffer, which must be small compared with its rows.
  const int64_t per_tile = std::max(rows_of_tile(layout.size()), 16 * layout.groups / (layout.length * layout.layers));
  const int64_t tiles = (n_rows + per_tile - 1) / per_tile;
  at.compute([&](auto zero) {
    using T = decltype(zero);
    const Ref partial(empty(at.computed, Dims{tiles, 2 * parameters}));
    T* sums = reinterpret_cast<T*>(partial->data);
    std::fill_n(sums, tiles * 2 * parameters, T{0});
    for_rows(n_rows, per_tile, [&](int64_t first, int64_t count, int64_t tile) {
      T* mine = sums + tile * 2 * parameters;
      row_kernels(zero).cotangent(at.write<T>(0), mine, mine + parameters, at.read<T>(0), at.read<T>(1), at.read<T>(2),
                                  at.read<T>(3), at.read<T>(4), layout, {first, count}, static_cast<T>(attrs[0].f),
                                  attrs[1].i != 0);
    });
    add_up(sums, tiles, 2 * parameters);
    std::copy_n(sums, parameters, at.write<T>(1));
    std::copy_n(sums + parameters, parameters, at.write<T>(2));
  });
}

}  // namespace

static void add_ops() {
  const std::vector<AttrSpec> attrs = {{"eps", Kind::real}, {"centred", Kind::integer}, {"across", Kind::integer}};
  add_op({.name = "standardise",
          .n_inputs = 3,
          .n_outputs = 3,
          .attrs = attrs,
          .infer = infer_standardise,
          .compute = compute_standardise});
  add_op({.name = "standardise_tangent",
          .n_inputs = 7,
          .attrs = attrs,
          .infer = infer_tangent,
          .compute = compute_tangent});
  add_op({.name = "standardise_cotangent",
          .n_inputs = 5,
          .n_outputs = 3,
          .attrs = attrs,
          .infer = infer_cotangent,
          .compute = compute_cotangent});
}
static const OpFamily family(add_ops);

}  // namespace wengert
