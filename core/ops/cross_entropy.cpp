// Cross entropy of rows of logits and a class each, and its derivatives. Probabilities are never written: backward
// computes them again from the logits and two numbers a row.
#include "../kernels/cross_entropy_rows.h"

#include "../kernels/indices.h"
#include "check.h"
#include "computed.h"
#include "row_tiles.h"

namespace wengert {

namespace {

Dims without_last(const Dims& shape) {
  Dims rows;
  for (int i = 0; i + 1 < shape.n; ++i) rows.push(shape[i]);
  return rows;
}

// Operands from `first` on: logits, classes, and, of derivatives, the largest logits and the logarithms of the sums.
void require_rows(const Op& op, const Type* in, int first, int n) {
  const Type &x = in[first], &classes = in[first + 1];
  require_floating(op, x);
  if (x.shape.n == 0) fail(ErrorKind::shape, op.name.c_str(), "takes rows, got " + to_string(x));
  if (classes.dtype != DType::Int64) {
    fail(ErrorKind::dtype, op.name.c_str(), "classes must be int64, got " + operands(in, n) + "; cast them");
  }
  const Dims rows = without_last(x.shape);
  bool fits = true;
  for (int i = first + 1; i < n; ++i) {
    fits = fits && in[i].shape == rows;
    if (i > first + 1) require_same_dtype(op, in, first, i, n);
  }
  if (!fits) fail(ErrorKind::shape, op.name.c_str(), "takes one number for each row, got " + operands(in, n));
}

void infer_losses(const Op& op, const Type* in, int n, const Attrs&, Type* out) {
  require_rows(op, in, 0, n);
  out[0] = out[1] = out[2] = {in[0].dtype, without_last(in[0].shape)};
}

void infer_tangents(const Op& op, const Type* in, int n, const Attrs&, Type* out) {
  require_rows(op, in, 1, n);
  require_same_dtype(op, in, 0, 1, n);
  if (!(in[0].shape == in[1].shape)) {
    fail(ErrorKind::shape, op.name.c_str(), "the tangent must have the shape of the logits, got " + operands(in, n));
  }
  *out = {in[1].dtype, without_last(in[1].shape)};
}

void infer_cotangents(const Op& op, const Type* in, int n, const Attrs&, Type* out) {
  require_rows(op, in, 1, n);
  require_same_dtype(op, in, 0, 1, n);
  if (!(in[0].shape == without_last(in[1].shape))) {
    fail(ErrorKind::shape, op.name.c_str(), "takes one cotangent for each row, got " + operands(in, n));
  }
  *out = in[1];
}

// f(rows, first) by tiles, with the classes of a row checked. What a tile writes beside `rows` starts at row `first`.
template <class T, class F>
void for_tiles(const Op& op, const Ref& x, const Value* classes, T* largest, T* log_total, F&& f) {
  const Rows shape(x.v, 1);
  Indices indices(op.name.c_str(), classes, x->ndim - 1, shape.cols);
  const int64_t* checked = indices.all();
  shape.for_tiles([&](int64_t first, int64_t n) {
    f(ClassRows<T>{reinterpret_cast<const T*>(x->data) + first * shape.cols, checked + first, largest + first,
                   log_total + first, n, shape.cols},
      first);
  });
}

template <class T>
void losses(const Op& op, Value* const* in, Value** out, DType computed) {
  const Ref x = packed(in[0], computed);
  Result loss(out[0], computed), largest(out[1], computed), log_total(out[2], computed);
  T* y = static_cast<T*>(loss.data());
  for_tiles(op, x, in[1], static_cast<T*>(largest.data()), static_cast<T*>(log_total.data()),
            [&](const ClassRows<T>& rows, int64_t first) { cross_entropy_rows(T{}).losses(y + first, rows); });
  loss.finish();
  largest.finish();
  log_total.finish();
}

template <class T>
T* data_of(const Ref& v) {
  return reinterpret_cast<T*>(v->data);
}

// x_dot or loss_bar, x, classes, largest, log_total
template <class T, bool kForward>
void derivatives(const Op& op, Value* const* in, Value** out, DType computed) {
  const Ref t = packed(in[0], computed), x = packed(in[1], computed);
  const Ref largest = packed(in[3], computed), log_total = packed(in[4], computed);
  Result result(out[0], computed);
  T* y = static_cast<T*>(result.data());
  for_tiles(op, x, in[2], data_of<T>(largest), data_of<T>(log_total), [&](const ClassRows<T>& rows, int64_t first) {
    const auto& kernels = cross_entropy_rows(T{});
    if constexpr (kForward) {
      kernels.tangents(y + first, data_of<T>(t) + first * rows.cols, rows);
    } else {
      kernels.cotangents(y + first * rows.cols, data_of<T>(t) + first, rows);
    }
  });
  result.finish();
}

void compute_losses(const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  const DType computed = computed_in(in[0]->dtype);
  computed == DType::Float64 ? losses<double>(op, in, out, computed) : losses<float>(op, in, out, computed);
}

template <bool kForward>
void compute_derivatives(const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  const DType computed = computed_in(in[0]->dtype);
  computed == DType::Float64 ? derivatives<double, kForward>(op, in, out, computed)
                             : derivatives<float, kForward>(op, in, out, computed);
}

}  // namespace

static void add_ops() {
  add_op({.name = "cross_entropy", .n_inputs = 2, .n_outputs = 3, .infer = infer_losses, .compute = compute_losses});
  add_op(
      {.name = "cross_entropy_tangent", .n_inputs = 5, .infer = infer_tangents, .compute = compute_derivatives<true>});
  add_op({.name = "cross_entropy_cotangent",
          .n_inputs = 5,
          .infer = infer_cotangents,
          .compute = compute_derivatives<false>});
}
static const OpFamily family(add_ops);

}  // namespace wengert
