// Running sums and products along an axis.
#include "../kernels/scan.h"

#include "../kernels/strided.h"
#include "check.h"

namespace wengert {

namespace {

void infer_scan(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  normalize_axis(op.name.c_str(), attrs[0].i, in[0].shape.n);
  require_number(op, in[0]);
  *out = in[0];
}

template <Scan kind>
void compute_scan(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value* x = in[0];
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, x->ndim);
  copy_packed(out[0]->data, x->data, x->strides, x->ndim, x->shape, size_of(x->dtype));
  scan(kind, x->dtype, out[0]->data, around_axis(x->shape, x->ndim, axis), attrs[1].i != 0);
}

template <Scan kind>
void add_scan(const char* name) {
  add_op({.name = name,
          .attrs = {{"axis", Attr::Kind::integer}, {"reverse", Attr::Kind::integer}},
          .infer = infer_scan,
          .compute = compute_scan<kind>});
}

}  // namespace

void register_scan_ops() {
  add_scan<Scan::sum>("cumsum");
  add_scan<Scan::prod>("cumprod");
}

}  // namespace wengert
