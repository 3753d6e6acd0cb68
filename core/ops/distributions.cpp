// Draws of distributions that have parameters, and how draws of the gamma distribution move with theirs. The key and
// the counter are attributes, so that a replay draws the same numbers; each element takes one counter.
#include "../kernels/gamma_slope.h"
#include "../kernels/indices.h"
#include "../kernels/random_draws.h"
#include "check.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

RandomStream stream(const Attr& key, const Attr& counter) {
  return {static_cast<uint32_t>(key.dims[0].raw), static_cast<uint32_t>(key.dims[1].raw),
          static_cast<uint64_t>(counter.dims[0].raw)};
}

void require_floating(const Op& op, const Type* in, int n) {
  for (int i = 0; i < n; ++i) {
    if (!is_floating(in[i].dtype)) {
      fail(ErrorKind::dtype, op.name.c_str(), "takes real floating numbers, got " + operands(in, n));
    }
    require_same_dtype(op, in, 0, i, n);
  }
}

void require_stream(const Op& op, const Attrs& attrs, int key) {
  require_entries(op, op.attrs[static_cast<size_t>(key)], attrs[key], 2);
  require_entries(op, op.attrs[static_cast<size_t>(key) + 1], attrs[key + 1], 1);
}

// Operands of one shape, which is the result's. `key`: which attribute the key is, or none.
template <int n, int key>
void infer_each(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  require_floating(op, in, n);
  if (n == 2 && !(in[0].shape == in[1].shape)) {
    fail(ErrorKind::shape, op.name.c_str(), "operands must have the same shape, got " + operands(in, n));
  }
  if constexpr (key >= 0) require_stream(op, attrs, key);
  *out = in[0];
}

void compute_gamma(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  random_gamma(in[0]->dtype, Packed(in[0]).data(), out[0]->data, in[0]->size, attrs[0].i != 0,
               stream(attrs[1], attrs[2]));
}

void compute_gamma_slope(const Op&, Value* const* in, int, const Attrs&, Value** out) {
  gamma_slope(in[0]->dtype, Packed(in[0]).data(), Packed(in[1]).data(), out[0]->data, in[0]->size);
}

void infer_gamma_tail(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  if (attrs[0].i < 0 || attrs[0].i > 30) {
    fail(ErrorKind::value, op.name.c_str(), "the order must be between 0 and 30, got " + std::to_string(attrs[0].i));
  }
  infer_each<2, -1>(op, in, n, attrs, out);
}

void compute_gamma_tail(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  gamma_tail(in[0]->dtype, Packed(in[0]).data(), Packed(in[1]).data(), out[0]->data, in[0]->size,
             static_cast<int>(attrs[0].i));
}

void compute_von_mises(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  random_von_mises(in[0]->dtype, Packed(in[0]).data(), out[0]->data, in[0]->size, stream(attrs[0], attrs[1]));
}

void compute_poisson(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  random_poisson(in[0]->dtype, Packed(in[0]).data(), out[0]->data, in[0]->size, stream(attrs[0], attrs[1]));
}

void compute_binomial(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  random_binomial(in[0]->dtype, Packed(in[0]).data(), Packed(in[1]).data(), out[0]->data, in[0]->size,
                  stream(attrs[0], attrs[1]));
}

void require_classes(const Op& op, const Type& p) {
  if (p.shape.n == 0 || p.shape[p.shape.n - 1] == Dim{0}) {
    fail(ErrorKind::shape, op.name.c_str(), "needs at least one class along the last axis, got " + to_string(p));
  }
}

void infer_multinomial(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  require_floating(op, in, 2);
  require_stream(op, attrs, 0);
  require_classes(op, in[1]);
  Dims rows = in[1].shape;
  --rows.n;
  if (!(in[0].shape == rows)) {
    fail(ErrorKind::shape, op.name.c_str(), "needs one count for each row of weights, got " + operands(in, 2));
  }
  *out = in[1];
}

void compute_multinomial(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  random_multinomial(in[1]->dtype, Packed(in[0]).data(), Packed(in[1]).data(), out[0]->data, in[0]->size,
                     in[1]->shape[in[1]->ndim - 1], stream(attrs[0], attrs[1]));
}

void infer_categorical(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  require_floating(op, in, 1);
  require_entries(op, op.attrs[0], attrs[0], 1);
  require_stream(op, attrs, 1);
  if (in[0].shape.n != 2) {
    fail(ErrorKind::shape, op.name.c_str(),
         "takes a matrix with one row of weights for each draw, got " + to_string(in[0]));
  }
  require_classes(op, in[0]);
  *out = {DType::Int64, {attrs[0].dims[0], in[0].shape[0]}};
}

void compute_categorical(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  random_categorical(in[0]->dtype, Packed(in[0]).data(), reinterpret_cast<int64_t*>(out[0]->data), out[0]->shape[0],
                     out[0]->shape[1], in[0]->shape[1], stream(attrs[1], attrs[2]));
}

}  // namespace

static void add_ops() {
  const AttrSpec key = {"key", Kind::sizes}, counter = {"counter", Kind::sizes};
  add_op({.name = "random_gamma",
          .attrs = {{"logarithm", Kind::integer}, key, counter},
          .infer = infer_each<1, 1>,
          .compute = compute_gamma});
  add_op({.name = "gamma_slope", .n_inputs = 2, .infer = infer_each<2, -1>, .compute = compute_gamma_slope});
  add_op({.name = "gamma_tail",
          .n_inputs = 2,
          .attrs = {{"order", Kind::integer}},
          .infer = infer_gamma_tail,
          .compute = compute_gamma_tail});
  add_op(
      {.name = "random_von_mises", .attrs = {key, counter}, .infer = infer_each<1, 0>, .compute = compute_von_mises});
  add_op({.name = "random_poisson",
          .attrs = {key, counter},
          .infer = infer_each<1, 0>,
          .compute = compute_poisson,
          .differentiable = false});
  add_op({.name = "random_binomial",
          .n_inputs = 2,
          .attrs = {key, counter},
          .infer = infer_each<2, 0>,
          .compute = compute_binomial,
          .differentiable = false});
  add_op({.name = "random_multinomial",
          .n_inputs = 2,
          .attrs = {key, counter},
          .infer = infer_multinomial,
          .compute = compute_multinomial,
          .differentiable = false});
  add_op({.name = "random_categorical",
          .attrs = {{"draws", Kind::sizes}, key, counter},
          .infer = infer_categorical,
          .compute = compute_categorical,
          .differentiable = false});
}
static const OpFamily family(add_ops);

}  // namespace wengert
