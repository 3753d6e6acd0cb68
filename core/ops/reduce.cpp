// Reductions over axes, and the positions of the largest and smallest elements.
#include "../kernels/reduce.h"

#include "check.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

void require_elements(const Op& op, const Type& x, int axis) {
  if (x.shape[axis] == Dim(0)) {
    fail(ErrorKind::value, op.name.c_str(),
         "axis " + std::to_string(axis) + " of " + to_string(x) + " is empty, and an empty " + op.name +
             " has no value; check the size first");
  }
}

void require_order(const Op& op, const Type& x) {
  if (is_complex(x.dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(), "complex numbers are not ordered, got " + to_string(x) + "; reduce abs(x)");
  }
}

void require_bool(const Op& op, const Type& x) {
  if (x.dtype != DType::Bool) {
    fail(ErrorKind::dtype, op.name.c_str(), "takes bool only, got " + to_string(x) + "; compare with 0 first");
  }
}

uint32_t mask_of(const Op& op, const Dims& axes, int ndim) {
  uint32_t mask = 0;
  for (Dim a : axes) {
    const uint32_t bit = 1u << normalize_axis(op.name.c_str(), a.raw, ndim);
    if (mask & bit) {
      fail(ErrorKind::shape, op.name.c_str(), "axes must be different, got " + to_string(axes));
    }
    mask |= bit;
  }
  return mask;
}

Dims reduced_shape(const Dims& shape, uint32_t mask, bool keepdims) {
  Dims out;
  for (int i = 0; i < shape.n; ++i) {
    if (!(mask >> i & 1)) {
      out.push(shape[i]);
    } else if (keepdims) {
      out.push(Dim(1));
    }
  }
  return out;
}

template <Reduction reduction>
void infer_reduce(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  const Type& x = in[0];
  const uint32_t mask = mask_of(op, attrs[0].dims, x.shape.n);
  switch (reduction) {
    case Reduction::sum:
    case Reduction::prod: require_number(op, x); break;
    case Reduction::any:
    case Reduction::all: require_bool(op, x); break;
    default:
      require_order(op, x);
      for (int i = 0; i < x.shape.n; ++i)
        if (mask >> i & 1) require_elements(op, x, i);
  }
  *out = {x.dtype, reduced_shape(x.shape, mask, attrs[1].i != 0)};
}

template <Reduction reduction>
void compute_reduce(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  reduce(reduction, in[0], mask_of(op, attrs[0].dims, in[0]->ndim), out[0]->data);
}

void infer_arg(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  const Type& x = in[0];
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, x.shape.n);
  require_order(op, x);
  require_elements(op, x, axis);
  *out = {DType::Int64, reduced_shape(x.shape, 1u << axis, attrs[1].i != 0)};
}

template <bool largest>
void compute_arg(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, in[0]->ndim);
  arg_reduce(largest, in[0], axis, reinterpret_cast<int64_t*>(out[0]->data));
}

template <Reduction reduction>
void add_reduction(const char* name) {
  add_op({.name = name,
          .attrs = {{"axes", Kind::integers}, {"keepdims", Kind::integer}},
          .infer = infer_reduce<reduction>,
          .compute = compute_reduce<reduction>,
          .fusion = FusionRole::reduce,
          .reduction = reduction,
          .differentiable = reduction != Reduction::any && reduction != Reduction::all});
}

template <bool largest>
void add_arg(const char* name) {
  add_op({.name = name,
          .attrs = {{"axis", Kind::integer}, {"keepdims", Kind::integer}},
          .infer = infer_arg,
          .compute = compute_arg<largest>,
          .differentiable = false});
}

}  // namespace

static void add_ops() {
  add_reduction<Reduction::sum>("sum");
  add_reduction<Reduction::prod>("prod");
  add_reduction<Reduction::max>("max");
  add_reduction<Reduction::min>("min");
  add_reduction<Reduction::any>("any");
  add_reduction<Reduction::all>("all");
  add_arg<true>("argmax");
  add_arg<false>("argmin");
}
static const OpFamily family(add_ops);

}  // namespace wengert
