// Running sums, products, sums of exponentials and extrema along an axis, and linear recurrences.
#include "../kernels/scan.h"

#include "check.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

void require_real(const Op& op, const Type& x) {
  if (is_complex(x.dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(), "complex numbers are not ordered, got " + to_string(x));
  }
}

template <Scan kind>
void infer_scan(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  normalize_axis(op.name.c_str(), attrs[0].i, in[0].shape.n);
  require_number(op, in[0]);
  if (kind == Scan::logsumexp && !is_floating(in[0].dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(), "takes real floating numbers, got " + to_string(in[0]));
  }
  *out = in[0];
}

template <Scan kind>
void compute_scan(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value* x = in[0];
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, x->ndim);
  scan(kind, x->dtype, Packed(x).data(), out[0]->data, around_axis(x->shape, x->ndim, axis), attrs[1].i != 0);
}

template <Scan kind>
void add_scan(const char* name) {
  add_op({.name = name,
          .attrs = {{"axis", Kind::integer}, {"reverse", Kind::integer}},
          .infer = infer_scan<kind>,
          .compute = compute_scan<kind>});
}

void infer_recurrence(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  normalize_axis(op.name.c_str(), attrs[0].i, in[0].shape.n);
  require_number(op, in[0]);
  require_same_dtype(op, in, 0, 1, n);
  if (!(in[0].shape == in[1].shape)) {
    fail(ErrorKind::shape, op.name.c_str(), "coefficients and terms must have the same shape, got " + operands(in, n));
  }
  *out = in[1];
}

void compute_recurrence(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value* b = in[1];
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, b->ndim);
  recur(b->dtype, Packed(in[0]).data(), Packed(b).data(), out[0]->data, around_axis(b->shape, b->ndim, axis),
        attrs[1].i != 0);
}

void infer_extremum(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  normalize_axis(op.name.c_str(), attrs[0].i, in[0].shape.n);
  require_number(op, in[0]);
  require_real(op, in[0]);
  out[0] = in[0];
  out[1] = {DType::Int64, in[0].shape};
}

template <bool largest>
void compute_extremum(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value* x = in[0];
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, x->ndim);
  scan_extremum(x->dtype, Packed(x).data(), out[0]->data, reinterpret_cast<int64_t*>(out[1]->data),
                around_axis(x->shape, x->ndim, axis), largest);
}

template <bool largest>
void add_extremum(const char* name) {
  add_op({.name = name,
          .n_outputs = 2,
          .attrs = {{"axis", Kind::integer}},
          .infer = infer_extremum,
          .compute = compute_extremum<largest>});
}

}  // namespace

static void add_ops() {
  add_scan<Scan::sum>("cumsum");
  add_scan<Scan::prod>("cumprod");
  add_scan<Scan::logsumexp>("logcumsumexp");
  add_op({.name = "linear_recurrence",
          .n_inputs = 2,
          .attrs = {{"axis", Kind::integer}, {"reverse", Kind::integer}},
          .infer = infer_recurrence,
          .compute = compute_recurrence});
  add_extremum<true>("cummax");
  add_extremum<false>("cummin");
}
static const OpFamily family(add_ops);

}  // namespace wengert
