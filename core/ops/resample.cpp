// Resampling along one axis, and its transpose.
#include "../kernels/resample.h"

#include "../kernels/gather.h"
#include "check.h"
#include "computed.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

const std::vector<AttrSpec> kAttrs = {
    {"size", Kind::sizes}, {"axis", Kind::integer}, {"kind", Kind::integer}, {"ratio", Kind::real}};

void infer_resample(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  const int axis = normalize_axis(op.name.c_str(), attrs[1].i, in[0].shape.n);
  if (!is_inexact(in[0].dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(), "takes floating numbers, got " + to_string(in[0]) + "; cast them");
  }
  require_entries(op, kAttrs[0], attrs[0], 1);
  if (attrs[2].i < 0 || attrs[2].i >= static_cast<int64_t>(Resampling::count)) {
    fail(ErrorKind::value, op.name.c_str(), "there is no kind " + std::to_string(attrs[2].i));
  }
  const Dim from = in[0].shape[axis], to = shape_attr(op, attrs[0])[0];
  if (from < Dim(1) || to < Dim(1)) {
    fail(ErrorKind::shape, op.name.c_str(),
         "sizes along the axis must be positive, got " + to_string(in[0]) + " to " + to_string(attrs[0].dims));
  }
  *out = in[0];
  out->shape[axis] = to;
}

template <bool transposed>
void compute_resample(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  Value *x = in[0], *y = out[0];
  if (y->size == 0) return;
  const int axis = normalize_axis(op.name.c_str(), attrs[1].i, x->ndim);
  const Resampling kind = static_cast<Resampling>(attrs[2].i);
  AxisExtents e = around_axis(x->shape, x->ndim, axis);
  const int64_t size = y->shape[axis];
  const SparseRows m = transposed ? resampling(kind, size, e.size, attrs[3].f).transposed(size)
                                  : resampling(kind, e.size, size, attrs[3].f);
  if (is_complex(x->dtype)) e.inner *= 2;  // weights are real
  auto run = [&]<class T>(const void* from, T* to) {
    multiply_axis(m, static_cast<const T*>(from), to, e.outer, e.size, e.inner);
  };
  const DType computed = is_complex(x->dtype) ? x->dtype : computed_in(x->dtype);
  const Ref from = packed(x, computed);
  Result to(y, computed);
  if (computed == DType::Float64 || computed == DType::Complex128) {
    run(from->data, static_cast<double*>(to.data()));
  } else {
    run(from->data, static_cast<float*>(to.data()));
  }
  to.finish();
}

}  // namespace

static void add_ops() {
  add_op({.name = "resample", .attrs = kAttrs, .infer = infer_resample, .compute = compute_resample<false>});
  add_op({.name = "resample_transpose", .attrs = kAttrs, .infer = infer_resample, .compute = compute_resample<true>});
}
static const OpFamily family(add_ops);

}  // namespace wengert
