// Rows as distributions: positive numbers that add up to 1.
#include "../kernels/softmax_rows.h"
#include "computed.h"
#include "row_tiles.h"

namespace wengert {

namespace {

void infer_softmax(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  require_floating(op, in[0]);
  if (in[0].shape.n == 0) fail(ErrorKind::shape, op.name.c_str(), "takes rows, got " + to_string(in[0]));
  *out = in[0];
}

template <class T>
void softmax(const Value* x, void* y, const Rows& shape) {
  shape.for_tiles([&](int64_t first, int64_t n) {
    const int64_t start = first * shape.cols;
    softmax_rows(T{}).softmax(static_cast<T*>(y) + start, reinterpret_cast<const T*>(x->data) + start, n, shape.cols);
  });
}

void compute_softmax(const Op&, Value* const* in, int, const Attrs&, Value** out) {
  const DType computed = computed_in(in[0]->dtype);
  const Ref x = packed(in[0], computed);
  Result y(out[0], computed);
  const Rows shape(x.v, 1);
  computed == DType::Float64 ? softmax<double>(x.v, y.data(), shape) : softmax<float>(x.v, y.data(), shape);
  y.finish();
}

}  // namespace

void register_softmax_ops() { add_op({.name = "softmax", .infer = infer_softmax, .compute = compute_softmax}); }

}  // namespace wengert
