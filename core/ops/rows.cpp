// Normalisation of rows to mean 0 and variance 1.
#include "../kernels/rows.h"

#include <cmath>

#include "../kernels/strided.h"
#include "check.h"
#include "computed.h"
#include "row_tiles.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

int row_axes(const Op& op, const Type& x, const Attr& attr) {
  if (attr.i < 1 || attr.i > x.shape.n) {
    fail(ErrorKind::shape, op.name.c_str(),
         "the last " + std::to_string(attr.i) + " axes are to be a row, got " + to_string(x));
  }
  return static_cast<int>(attr.i);
}

// One number a row, its axes kept.
Type per_row(const Type& x, int axes) {
  Type t = x;
  for (int i = x.shape.n - axes; i < x.shape.n; ++i) t.shape[i] = Dim(1);
  return t;
}

void fill_with(Value* v, double x) {
  alignas(16) char one[16];
  set_scalar(v->dtype, one, x);
  fill(v->data, one, size_of(v->dtype), v->size);
}

void infer_standardise(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  require_floating(op, in[0]);
  out[0] = in[0];
  out[1] = out[2] = per_row(in[0], row_axes(op, in[0], attrs[0]));
}

template <class T>
void standardise(const Value* x, Result* out, const Rows& shape, const Attrs& attrs) {
  auto* from = reinterpret_cast<const T*>(x->data);
  auto* y = static_cast<T*>(out[0].data());
  auto *mean = static_cast<T*>(out[1].data()), *scale = static_cast<T*>(out[2].data());
  shape.for_tiles([&](int64_t first, int64_t n) {
    const int64_t start = first * shape.cols;
    row_kernels(T{}).standardise(y + start, mean + first, scale + first, from + start, n, shape.cols,
                                 static_cast<T>(attrs[1].f), attrs[2].i != 0);
  });
}

void compute_standardise(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const DType computed = computed_in(in[0]->dtype);
  const Ref x = packed(in[0], computed);
  const Rows shape(x.v, static_cast<int>(attrs[0].i));
  if (shape.cols == 0) {
    fill_with(out[1], NAN);
    fill_with(out[2], NAN);
    return;
  }
  Result results[] = {{out[0], computed}, {out[1], computed}, {out[2], computed}};
  computed == DType::Float64 ? standardise<double>(x.v, results, shape, attrs)
                             : standardise<float>(x.v, results, shape, attrs);
  for (Result& r : results) r.finish();
}

void infer_push(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_floating(op, in[0]);
  for (int i = 1; i < n; ++i) require_same_dtype(op, in, 0, i, n);
  const Type row = per_row(in[0], row_axes(op, in[0], attrs[0]));
  if (!(in[1].shape == in[0].shape) || !(in[2].shape == row.shape) || !(in[3].shape == row.shape)) {
    fail(ErrorKind::shape, op.name.c_str(),
         "takes two operands of one shape and two with one number a row, got " + operands(in, n));
  }
  *out = in[0];
}

template <class T>
void standardise_push(const Ref* in, void* out, const Rows& shape, bool centred) {
  auto at = [&](int k) { return reinterpret_cast<const T*>(in[k]->data); };
  shape.for_tiles([&](int64_t first, int64_t n) {
    const int64_t start = first * shape.cols;
    row_kernels(T{}).standardise_push(static_cast<T*>(out) + start, at(0) + start, at(1) + start, at(2) + first,
                                      at(3) + first, n, shape.cols, centred);
  });
}

void compute_push(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const DType computed = computed_in(in[0]->dtype);
  const Ref operands[] = {packed(in[0], computed), packed(in[1], computed), packed(in[2], computed),
                          packed(in[3], computed)};
  Result y(out[0], computed);
  const Rows shape(out[0], static_cast<int>(attrs[0].i));
  const bool centred = attrs[1].i != 0;
  computed == DType::Float64 ? standardise_push<double>(operands, y.data(), shape, centred)
                             : standardise_push<float>(operands, y.data(), shape, centred);
  y.finish();
}

}  // namespace

void register_row_ops() {
  add_op({.name = "standardise",
          .n_outputs = 3,
          .attrs = {{"n_axes", Kind::integer}, {"eps", Kind::real}, {"centred", Kind::integer}},
          .infer = infer_standardise,
          .compute = compute_standardise});
  add_op({.name = "standardise_push",
          .n_inputs = 4,
          .attrs = {{"n_axes", Kind::integer}, {"centred", Kind::integer}},
          .infer = infer_push,
          .compute = compute_push});
}

}  // namespace wengert
