// Discrete Fourier transforms along one axis: shape rules. The kernels are NumPy's, set by the bindings.
#include "check.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

DType complex_of(const Op& op, const Type& x) {
  if (x.dtype == DType::Float32) return DType::Complex64;
  if (x.dtype == DType::Float64) return DType::Complex128;
  fail(ErrorKind::dtype, op.name.c_str(), "takes float32 or float64, got " + to_string(x));
}

DType real_of(const Op& op, const Type& x) {
  if (x.dtype == DType::Complex64) return DType::Float32;
  if (x.dtype == DType::Complex128) return DType::Float64;
  fail(ErrorKind::dtype, op.name.c_str(), "takes complex64 or complex128, got " + to_string(x));
}

int transformed_axis(const Op& op, const Type& x, const Attr& attr) {
  const int axis = normalize_axis(op.name.c_str(), attr.i, x.shape.n);
  if (x.shape[axis] == Dim(0)) {
    fail(ErrorKind::value, op.name.c_str(),
         "axis " + std::to_string(axis) + " of " + to_string(x) + " is empty, and has no transform");
  }
  return axis;
}

Dim half(Dim n) { return n.symbolic() ? dim_floordiv(n, Dim(2)) + Dim(1) : Dim(n.raw / 2 + 1); }

void infer_complex(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  real_of(op, in[0]);
  transformed_axis(op, in[0], attrs[0]);
  *out = in[0];
}

void infer_to_half(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  *out = {complex_of(op, in[0]), in[0].shape};
  const int axis = transformed_axis(op, in[0], attrs[0]);
  out->shape[axis] = half(in[0].shape[axis]);
}

void infer_from_half(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  *out = {real_of(op, in[0]), in[0].shape};
  const int axis = transformed_axis(op, in[0], attrs[0]);
  require_entries(op, op.attrs[1], attrs[1], 1);
  const Dim n = shape_attr(op, attrs[1])[0];
  if (n < Dim(1) || !(half(n) == in[0].shape[axis])) {
    fail(ErrorKind::shape, op.name.c_str(),
         "half a spectrum of " + to_string(n) + " numbers has " + to_string(half(n)) + " entries, got " +
             to_string(in[0]) + " along axis " + std::to_string(axis));
  }
  out->shape[axis] = n;
}

void compute_nothing(const Op& op, Value* const*, int, const Attrs&, Value**) {
  fail(ErrorKind::value, op.name.c_str(), "has no kernel: it is set when wengert.ops is imported");
}

}  // namespace

// `scale`: 0 no factor, 1 the factor 1/√n, 2 the factor 1/n.
static void add_ops() {
  add_op({.name = "fft_complex",
          .attrs = {{"axis", Kind::integer}, {"inverse", Kind::integer}, {"scale", Kind::integer}},
          .infer = infer_complex,
          .compute = compute_nothing});
  add_op({.name = "fft_to_half",
          .attrs = {{"axis", Kind::integer}, {"scale", Kind::integer}},
          .infer = infer_to_half,
          .compute = compute_nothing});
  add_op({.name = "fft_from_half",
          .attrs = {{"axis", Kind::integer}, {"n", Kind::sizes}, {"scale", Kind::integer}},
          .infer = infer_from_half,
          .compute = compute_nothing});
}
static const OpFamily family(add_ops);

}  // namespace wengert
