// Softmax and log-softmax of rows, and the derivatives of both.
#include "../kernels/softmax_rows.h"

#include "check.h"
#include "computed.h"
#include "row_tiles.h"

namespace wengert {

namespace {

void infer_map(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  require_floating(op, in[0]);
  if (in[0].shape.n == 0) fail(ErrorKind::shape, op.name.c_str(), "takes rows, got " + to_string(in[0]));
  *out = in[0];
}

void infer_push(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  infer_map(op, in, n, attrs, out);
  require_same_dtype(op, in, 0, 1, n);
  if (!(in[1].shape == in[0].shape)) {
    fail(ErrorKind::shape, op.name.c_str(), "operands must have the same shape, got " + operands(in, n));
  }
}

template <class T, auto kernel>
void map(const Ref& x, void* y, const Rows& shape) {
  shape.for_tiles([&](int64_t first, int64_t n) {
    const int64_t start = first * shape.cols;
    (softmax_rows(T{}).*kernel)(static_cast<T*>(y) + start, reinterpret_cast<const T*>(x->data) + start, n, shape.cols);
  });
}

template <auto float_kernel, auto double_kernel>
void compute_map(const Op&, Value* const* in, int, const Attrs&, Value** out) {
  const DType computed = computed_in(in[0]->dtype);
  const Ref x = packed(in[0], computed);
  Result y(out[0], computed);
  const Rows shape(x.v, 1);
  computed == DType::Float64 ? map<double, double_kernel>(x, y.data(), shape)
                             : map<float, float_kernel>(x, y.data(), shape);
  y.finish();
}

template <class T, auto kernel>
void push(const Ref& t, const Ref& y, void* out, const Rows& shape) {
  shape.for_tiles([&](int64_t first, int64_t n) {
    const int64_t start = first * shape.cols;
    (softmax_rows(T{}).*kernel)(static_cast<T*>(out) + start, reinterpret_cast<const T*>(t->data) + start,
                                reinterpret_cast<const T*>(y->data) + start, n, shape.cols);
  });
}

template <auto float_kernel, auto double_kernel>
void compute_push(const Op&, Value* const* in, int, const Attrs&, Value** out) {
  const DType computed = computed_in(in[0]->dtype);
  const Ref t = packed(in[0], computed), y = packed(in[1], computed);
  Result result(out[0], computed);
  const Rows shape(out[0], 1);
  computed == DType::Float64 ? push<double, double_kernel>(t, y, result.data(), shape)
                             : push<float, float_kernel>(t, y, result.data(), shape);
  result.finish();
}

}  // namespace

#define KERNELS(name) &SoftmaxRows<float>::name, &SoftmaxRows<double>::name

static void add_ops() {
  add_op({.name = "softmax", .infer = infer_map, .compute = compute_map<KERNELS(softmax)>});
  add_op({.name = "log_softmax", .infer = infer_map, .compute = compute_map<KERNELS(log_softmax)>});
  add_op({.name = "softmax_push", .n_inputs = 2, .infer = infer_push, .compute = compute_push<KERNELS(softmax_push)>});
  add_op({.name = "log_softmax_push",
          .n_inputs = 2,
          .infer = infer_push,
          .compute = compute_push<KERNELS(log_softmax_push)>});
  add_op({.name = "log_softmax_pull",
          .n_inputs = 2,
          .infer = infer_push,
          .compute = compute_push<KERNELS(log_softmax_pull)>});
}
static const OpFamily family(add_ops);

}  // namespace wengert
