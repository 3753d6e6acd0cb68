// Draws of random numbers. The key and the counter are attributes, so that a replay draws the same numbers.
#include "../kernels/random.h"

#include "check.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

RandomStream stream(const Attr& key, const Attr& counter) {
  return {static_cast<uint32_t>(key.dims[0].raw), static_cast<uint32_t>(key.dims[1].raw),
          static_cast<uint64_t>(counter.dims[0].raw)};
}

template <bool complex_too>
void infer_floating(const Op& op, const Type*, int, const Attrs& attrs, Type* out) {
  const DType dtype = dtype_attr(op, attrs[1]);
  if (!is_floating(dtype) && !(complex_too && is_complex(dtype))) {
    const char* drawn = complex_too ? "floating-point and complex" : "floating-point";
    fail(ErrorKind::dtype, op.name.c_str(), std::string("draws ") + drawn + " numbers only, got " + name_of(dtype));
  }
  require_entries(op, op.attrs[2], attrs[2], 2);
  require_entries(op, op.attrs[3], attrs[3], 1);
  *out = {dtype, shape_attr(op, attrs[0])};
}

template <auto draw>
void compute_floating(const Op&, Value* const*, int, const Attrs& attrs, Value** out) {
  draw(out[0]->dtype, out[0]->data, out[0]->size, stream(attrs[2], attrs[3]));
}

void check_range(const Op& op, Dim low, Dim high) {
  if (!low.symbolic() && !high.symbolic() && high.raw <= low.raw) {
    fail(ErrorKind::value, op.name.c_str(),
         "low must be less than high, got " + to_string(low) + " and " + to_string(high));
  }
}

void infer_integers(const Op& op, const Type*, int, const Attrs& attrs, Type* out) {
  require_entries(op, op.attrs[1], attrs[1], 2);
  for (int k = 2; k < 5; ++k) require_entries(op, op.attrs[k], attrs[k], 1);
  check_range(op, attrs[3].dims[0], attrs[4].dims[0]);
  *out = {DType::Int64, shape_attr(op, attrs[0])};
}

void compute_integers(const Op& op, Value* const*, int, const Attrs& attrs, Value** out) {
  const Dim low = attrs[3].dims[0], high = attrs[4].dims[0];
  check_range(op, low, high);
  random_integers(reinterpret_cast<int64_t*>(out[0]->data), out[0]->size, stream(attrs[1], attrs[2]), low.raw,
                  high.raw);
}

void infer_dropout(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  if (!is_floating(in[0].dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(), "takes real floating numbers, got " + to_string(in[0]));
  }
  if (!(attrs[0].f >= 0 && attrs[0].f < 1)) {
    fail(ErrorKind::value, op.name.c_str(), "p must be in [0, 1), got " + std::to_string(attrs[0].f));
  }
  require_entries(op, op.attrs[1], attrs[1], 2);
  require_entries(op, op.attrs[2], attrs[2], 1);
  *out = in[0];
}

void compute_dropout(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Ref x(contiguous(in[0]));
  random_dropout(x->dtype, x->data, out[0]->data, x->size, attrs[0].f, stream(attrs[1], attrs[2]));
}

}  // namespace

static void add_ops() {
  const std::vector<AttrSpec> floating = {
      {"shape", Kind::sizes}, {"dtype", Kind::integer}, {"key", Kind::sizes}, {"counter", Kind::sizes}};
  add_op({.name = "random_uniform",
          .n_inputs = 0,
          .attrs = floating,
          .infer = infer_floating<false>,
          .compute = compute_floating<random_uniform>,
          .differentiable = false});
  add_op({.name = "random_normal",
          .n_inputs = 0,
          .attrs = floating,
          .infer = infer_floating<true>,
          .compute = compute_floating<random_normal>,
          .differentiable = false});
  add_op({.name = "random_integers",
          .n_inputs = 0,
          .attrs = {{"shape", Kind::sizes},
                    {"key", Kind::sizes},
                    {"counter", Kind::sizes},
                    {"low", Kind::sizes},
                    {"high", Kind::sizes}},
          .infer = infer_integers,
          .compute = compute_integers,
          .differentiable = false});
  add_op({.name = "random_dropout",
          .attrs = {{"p", Kind::real}, {"key", Kind::sizes}, {"counter", Kind::sizes}},
          .infer = infer_dropout,
          .compute = compute_dropout});
}
static const OpFamily family(add_ops);

}  // namespace wengert
