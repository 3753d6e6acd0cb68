// Reading and writing at indices that are data: whole slices (take, index_add, index_put) and single elements
// along an axis. Indices are int64, negative ones count from the end, and each is checked before it is used.
#include "../kernels/gather.h"
#include "../kernels/strided.h"
#include "check.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

void require_index(const Op& op, const Type* in, int which, int n) {
  if (in[which].dtype != DType::Int64) {
    fail(ErrorKind::dtype, op.name.c_str(), "indices must be int64, got " + operands(in, n) + "; cast them");
  }
}

int axis_of(const Op& op, const Attr& attr, int ndim) { return normalize_axis(op.name.c_str(), attr.i, ndim); }

// shape[:axis] + index + shape[axis + 1:]
Dims replaced_axis(const Dims& shape, int axis, const Dims& index) {
  Dims out;
  for (int i = 0; i < axis; ++i) out.push(shape[i]);
  for (Dim d : index) out.push(d);
  for (int i = axis + 1; i < shape.n; ++i) out.push(shape[i]);
  return out;
}

void require_shape(const Op& op, const Type* in, int which, int n, const Dims& expected) {
  if (!(in[which].shape == expected)) {
    fail(ErrorKind::shape, op.name.c_str(),
         "operand " + std::to_string(which) + " must have the shape " + to_string(expected) + ", got " +
             operands(in, n));
  }
}

void copy_all(const Value* x, Value* y) {
  copy_packed(y->data, x->data, x->strides, x->ndim, x->shape, size_of(x->dtype));
}

// Slices
// ------------------------------------------------------------------------------------------------------

void infer_take(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_index(op, in, 1, n);
  const int axis = axis_of(op, attrs[0], in[0].shape.n);
  *out = {in[0].dtype, replaced_axis(in[0].shape, axis, in[1].shape)};
}

// Few slices of a large array that is not packed: copies each separately and does not touch the rest.
void take_unpacked(const Value* x, int axis, const int64_t* index, int64_t count, Value* y) {
  const int64_t element = size_of(x->dtype);
  int64_t shape[kMaxRank], from[kMaxRank], to[kMaxRank], stride = 1, slice = 0;
  int n = x->ndim - 1;
  for (int i = x->ndim - 1; i >= 0; --i) {
    if (i == axis) {
      slice = stride;
      stride *= count;
      continue;
    }
    shape[--n] = x->shape[i];
    from[n] = x->strides[i];
    to[n] = stride;
    stride *= x->shape[i];
  }
  for (int64_t p = 0; p < count; ++p) {
    copy_strided(y->data + p * slice * element, to, x->data + index[p] * x->strides[axis] * element, from, x->ndim - 1,
                 shape, element);
  }
}

void compute_take(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value *x = in[0], *index = in[1];
  const int axis = axis_of(op, attrs[0], x->ndim);
  const AxisExtents e = around_axis(x->shape, x->ndim, axis);
  Indices indices(op.name.c_str(), index, axis, x->shape[axis]);
  if (!x->contiguous && index->size < x->shape[axis]) {
    return take_unpacked(x, axis, indices.all(), index->size, out[0]);
  }
  const Packed packed(x);
  if (e.outer == 1 && e.inner == 1) {
    return take_along(out[0]->data, packed.data(), indices, index->size, e, size_of(x->dtype));
  }
  take_slices(out[0]->data, packed.data(), indices.all(), index->size, e, size_of(x->dtype));
}

void infer_index_add(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_index(op, in, 1, n);
  require_number(op, in[0]);
  const Dims& shape = shape_attr(op, attrs[0]);
  const int axis = axis_of(op, attrs[1], shape.n);
  require_shape(op, in, 0, n, replaced_axis(shape, axis, in[1].shape));
  *out = {in[0].dtype, shape};
}

void compute_index_add(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  Value* y = out[0];
  const int axis = axis_of(op, attrs[1], y->ndim);
  Indices indices(op.name.c_str(), in[1], axis, y->shape[axis]);
  add_slices(y->dtype, y->data, Packed(in[0]).data(), indices.all(), in[1]->size, around_axis(y->shape, y->ndim, axis));
}

void infer_index_put(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_index(op, in, 1, n);
  require_same_dtype(op, in, 0, 2, n);
  const int axis = axis_of(op, attrs[0], in[0].shape.n);
  require_shape(op, in, 2, n, replaced_axis(in[0].shape, axis, in[1].shape));
  *out = in[0];
}

void compute_index_put(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  Value* y = out[0];
  const int axis = axis_of(op, attrs[0], y->ndim);
  Indices indices(op.name.c_str(), in[1], axis, y->shape[axis]);
  copy_all(in[0], y);
  put_slices(y->data, Packed(in[2]).data(), indices.all(), in[1]->size, around_axis(y->shape, y->ndim, axis),
             size_of(y->dtype));
}

void infer_winners(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_index(op, in, 0, n);
  require_entries(op, op.attrs[0], attrs[0], 1);
  *out = {DType::Bool, in[0].shape};
}

void compute_winners(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const int64_t size = attrs[0].dims[0].raw;
  Indices indices(op.name.c_str(), in[0], 0, size);
  mark_last(reinterpret_cast<bool*>(out[0]->data), indices.all(), in[0]->size, size);
}

// Elements along an axis
// --------------------------------------------------------------------------------------

// The index has the shape of x but for its size along the axis.
int along_axis(const Op& op, const Attr& attr, const Dims& shape, const Type* in, int n) {
  require_index(op, in, 1, n);
  const int axis = axis_of(op, attr, shape.n);
  bool fits = in[1].shape.n == shape.n;
  for (int i = 0; fits && i < shape.n; ++i) fits = i == axis || in[1].shape[i] == shape[i];
  if (!fits) {
    fail(ErrorKind::shape, op.name.c_str(),
         "indices for the shape " + to_string(shape) + " must have the same sizes but along axis " +
             std::to_string(axis) + ", got " + operands(in, n) + "; broadcast them first");
  }
  return axis;
}

void infer_take_along_axis(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  along_axis(op, attrs[0], in[0].shape, in, n);
  *out = {in[0].dtype, in[1].shape};
}

void compute_take_along_axis(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value *x = in[0], *index = in[1];
  const int axis = axis_of(op, attrs[0], x->ndim);
  const Indices indices(op.name.c_str(), index, axis, x->shape[axis]);
  take_along(out[0]->data, Packed(x).data(), indices, index->shape[axis], around_axis(x->shape, x->ndim, axis),
             size_of(x->dtype));
}

void infer_scatter(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  along_axis(op, attrs[0], in[0].shape, in, n);
  require_same_dtype(op, in, 0, 2, n);
  require_shape(op, in, 2, n, in[1].shape);
  *out = in[0];
}

void infer_scatter_add_along_axis(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_number(op, in[0]);
  const Dims& shape = shape_attr(op, attrs[0]);
  along_axis(op, attrs[1], shape, in, n);
  require_shape(op, in, 0, n, in[1].shape);
  *out = {in[0].dtype, shape};
}

void add_elements(const Op& op, const Value* base, const Value* index, const Value* elements, int64_t axis_attr,
                  Value* y) {
  const int axis = normalize_axis(op.name.c_str(), axis_attr, y->ndim);
  const Indices indices(op.name.c_str(), index, axis, y->shape[axis]);
  const Packed values(elements);
  const AxisExtents e = around_axis(y->shape, y->ndim, axis);
  if (base == nullptr) {
    return add_along(y->dtype, y->data, nullptr, values.data(), indices, index->shape[axis], e);
  }
  add_along(y->dtype, y->data, Packed(base).data(), values.data(), indices, index->shape[axis], e);
}

void compute_scatter_add_along_axis(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  add_elements(op, nullptr, in[1], in[0], attrs[1].i, out[0]);
}

void infer_scatter_add(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_number(op, in[0]);
  infer_scatter(op, in, n, attrs, out);
}

void compute_scatter_add(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  add_elements(op, in[0], in[1], in[2], attrs[0].i, out[0]);
}

void compute_scatter(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  Value* y = out[0];
  const int axis = axis_of(op, attrs[0], y->ndim);
  const Indices indices(op.name.c_str(), in[1], axis, y->shape[axis]);
  copy_all(in[0], y);
  put_along(y->data, Packed(in[2]).data(), indices, in[1]->shape[axis], around_axis(y->shape, y->ndim, axis),
            size_of(y->dtype));
}

}  // namespace

static void add_ops() {
  const std::vector<AttrSpec> axis = {{"axis", Kind::integer}};
  const std::vector<AttrSpec> shape_axis = {{"shape", Kind::sizes}, {"axis", Kind::integer}};
  add_op({.name = "take", .n_inputs = 2, .attrs = axis, .infer = infer_take, .compute = compute_take});
  add_op({.name = "index_add",
          .n_inputs = 2,
          .attrs = shape_axis,
          .infer = infer_index_add,
          .compute = compute_index_add});
  add_op({.name = "index_put", .n_inputs = 3, .attrs = axis, .infer = infer_index_put, .compute = compute_index_put});
  add_op({.name = "winners",
          .attrs = {{"size", Kind::sizes}},
          .infer = infer_winners,
          .compute = compute_winners,
          .differentiable = false});
  add_op({.name = "take_along_axis",
          .n_inputs = 2,
          .attrs = axis,
          .infer = infer_take_along_axis,
          .compute = compute_take_along_axis});
  add_op({.name = "scatter_add_along_axis",
          .n_inputs = 2,
          .attrs = shape_axis,
          .infer = infer_scatter_add_along_axis,
          .compute = compute_scatter_add_along_axis});
  add_op({.name = "scatter_add",
          .n_inputs = 3,
          .attrs = axis,
          .infer = infer_scatter_add,
          .compute = compute_scatter_add});
  add_op(
      {.name = "scatter_along_axis", .n_inputs = 3, .attrs = axis, .infer = infer_scatter, .compute = compute_scatter});
}
static const OpFamily family(add_ops);

}  // namespace wengert
