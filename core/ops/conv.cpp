// Convolution over one to three spatial axes, and the two other parts of its trilinear form (kernels/conv.h). Every op
// is given the spatial sizes of its result, so that positions outside an operand count as zeros, and each op's
// transposes are the others.
#include "../kernels/conv.h"

#include "check.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;
enum AttrIndex { kSizes, kStride, kPadding, kDilation, kGroups };

int spatial_rank(const Op& op, const Type* in, int n, const Attrs& attrs) {
  const int rank = in[0].shape.n - 2;
  if (rank < 1 || rank > kMaxSpatial || in[1].shape.n != rank + 2) {
    fail(ErrorKind::shape, op.name.c_str(),
         "operands must have two axes and one to three spatial axes each, got " + operands(in, n));
  }
  for (int i = kSizes; i <= kDilation; ++i) require_entries(op, op.attrs[i], attrs[i], rank);
  for (int i : {kStride, kDilation}) {
    for (Dim d : attrs[i].dims) {
      if (d.raw < 1) {
        fail(ErrorKind::value, op.name.c_str(),
             std::string(op.attrs[i].name) + " must be positive, got " + to_string(attrs[i].dims));
      }
    }
  }
  return rank;
}

void require_floating(const Op& op, const Type* in, int n) {
  for (int i = 1; i < n; ++i) require_same_dtype(op, in, 0, i, n);
  if (!is_inexact(in[0].dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(),
         "operands must be floating or complex, got " + operands(in, n) + "; cast them");
  }
}

void require_kernel(const Op& op, const Dims& sizes, const Type* in, int n) {
  for (Dim d : sizes) {
    if (d < Dim(1)) fail(ErrorKind::shape, op.name.c_str(), "the kernel must not be empty, got " + operands(in, n));
  }
}

// Channels of one group; refuses what does not divide.
Dim per_group(const Op& op, Dim channels, int64_t groups, const char* which, const Type* in, int n) {
  if (groups < 1) {
    fail(ErrorKind::value, op.name.c_str(), "groups must be positive, got " + std::to_string(groups));
  }
  const Dim each = dim_floordiv(channels, Dim(groups));
  if (!(each * Dim(groups) == channels)) {
    fail(ErrorKind::shape, op.name.c_str(),
         "groups=" + std::to_string(groups) + " does not divide the " + to_string(channels) + " " + which +
             " channels of " + operands(in, n));
  }
  return each;
}

Dims spatial(const Dims& shape) {
  Dims s;
  for (int i = 2; i < shape.n; ++i) s.push(shape[i]);
  return s;
}

Dims with_spatial(Dim first, Dim second, const Dims& sizes) {
  Dims s{first, second};
  for (Dim d : sizes) s.push(d);
  return s;
}

void infer_conv(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  spatial_rank(op, in, n, attrs);
  require_floating(op, in, n);
  const Dims &x = in[0].shape, &w = in[1].shape;
  require_kernel(op, spatial(w), in, n);
  const Dim channels = per_group(op, x[1], attrs[kGroups].i, "input", in, n);
  per_group(op, w[0], attrs[kGroups].i, "output", in, n);
  if (!(channels == w[1])) {
    fail(ErrorKind::shape, op.name.c_str(),
         "a kernel of " + to_string(w[1]) + " input channels per group does not fit " + to_string(channels) + ", got " +
             operands(in, n));
  }
  if (n == 3 && !(in[2].shape.n == 1 && in[2].shape[0] == w[0])) {
    fail(ErrorKind::shape, op.name.c_str(), "the bias must have one entry per output channel, got " + operands(in, n));
  }
  *out = {in[0].dtype, with_spatial(x[0], w[0], shape_attr(op, attrs[kSizes]))};
}

void infer_transpose(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  spatial_rank(op, in, n, attrs);
  require_floating(op, in, n);
  const Dims &y = in[0].shape, &w = in[1].shape;
  require_kernel(op, spatial(w), in, n);
  per_group(op, y[1], attrs[kGroups].i, "input", in, n);
  if (!(y[1] == w[0])) {
    fail(ErrorKind::shape, op.name.c_str(),
         "a kernel of " + to_string(w[0]) + " channels does not fit the " + to_string(y[1]) + " channels, got " +
             operands(in, n));
  }
  *out = {in[0].dtype, with_spatial(y[0], w[1] * Dim(attrs[kGroups].i), shape_attr(op, attrs[kSizes]))};
}

void infer_kernel(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  spatial_rank(op, in, n, attrs);
  require_floating(op, in, n);
  const Dims &x = in[0].shape, &y = in[1].shape, &sizes = shape_attr(op, attrs[kSizes]);
  require_kernel(op, sizes, in, n);
  const Dim channels = per_group(op, x[1], attrs[kGroups].i, "input", in, n);
  per_group(op, y[1], attrs[kGroups].i, "output", in, n);
  if (!(x[0] == y[0])) {
    fail(ErrorKind::shape, op.name.c_str(), "operands must have the same batch size, got " + operands(in, n));
  }
  *out = {in[0].dtype, with_spatial(y[1], channels, sizes)};
}

ConvShape shape_of(const Value* x, const Value* w, const Value* y, const Attrs& attrs) {
  ConvShape s;
  s.batch = x->shape[0];
  s.groups = attrs[kGroups].i;
  s.in_channels = w->shape[1];
  s.out_channels = w->shape[0] / s.groups;
  const int rank = x->ndim - 2;
  for (int i = 0; i < rank; ++i) {
    const int to = kMaxSpatial - rank + i;
    s.in[to] = x->shape[2 + i];
    s.kernel[to] = w->shape[2 + i];
    s.out[to] = y->shape[2 + i];
    s.stride[to] = attrs[kStride].dims[i].raw;
    s.padding[to] = attrs[kPadding].dims[i].raw;
    s.dilation[to] = attrs[kDilation].dims[i].raw;
  }
  return s;
}

// The packed numbers of an operand in the type of the computation.
Ref packed_as(const Value* v, DType dtype) {
  if (v->dtype == dtype) return Ref(contiguous(v));
  Ref copy(empty_like(v, dtype));
  copy_into(v, copy.v);
  return copy;
}

template <class T>
T* numbers(const Ref& v) {
  return v ? reinterpret_cast<T*>(v->data) : nullptr;
}

// The real (0) or imaginary (1) parts of a packed complex array, as a separate array.
template <class T>
Ref part_of(const Ref& z, int part) {
  Ref r(empty_like(z.v, sizeof(T) == 4 ? DType::Float32 : DType::Float64));
  const T* from = numbers<T>(z) + part;
  T* to = numbers<T>(r);
  for (int64_t i = 0; i < z->size; ++i) to[i] = from[2 * i];
  return r;
}

// (a + bi)(c + di) = (ac − bd) + (ad + bc)i: four real forms, since the form is linear in each operand.
template <class T, class F>
void run_complex(const Ref& a, const Ref& b, const Ref& bias, Value* out, F&& f) {
  const Ref as[] = {part_of<T>(a, 0), part_of<T>(a, 1)}, bs[] = {part_of<T>(b, 0), part_of<T>(b, 1)};
  Ref terms[2][2];
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      terms[i][j] = Ref(empty_like(out, as[0]->dtype));
      const Ref start = bias && i == 0 ? part_of<T>(bias, j) : Ref();
      f(numbers<T>(as[i]), numbers<T>(bs[j]), numbers<T>(start), numbers<T>(terms[i][j]));
    }
  }
  T* to = reinterpret_cast<T*>(out->data);
  for (int64_t i = 0; i < out->size; ++i) {
    to[2 * i] = numbers<T>(terms[0][0])[i] - numbers<T>(terms[1][1])[i];
    to[2 * i + 1] = numbers<T>(terms[0][1])[i] + numbers<T>(terms[1][0])[i];
  }
}

// Calls f(a, b, bias, out) with packed arrays of float or double. Half precisions are computed in float.
template <class F>
void run_form(Value* const* in, int n, Value* out, F&& f) {
  const DType dtype = out->dtype;
  const bool half = dtype == DType::Float16 || dtype == DType::BFloat16;
  const DType wide = half ? DType::Float32 : dtype;
  const Ref a = packed_as(in[0], wide), b = packed_as(in[1], wide), bias = n == 3 ? packed_as(in[2], wide) : Ref();
  switch (wide) {
    case DType::Complex64: return run_complex<float>(a, b, bias, out, f);
    case DType::Complex128: return run_complex<double>(a, b, bias, out, f);
    case DType::Float64:
      return f(numbers<double>(a), numbers<double>(b), numbers<double>(bias), reinterpret_cast<double*>(out->data));
    default: break;
  }
  Ref result = half ? Ref(empty_like(out, wide)) : Ref::share(out);
  f(numbers<float>(a), numbers<float>(b), numbers<float>(bias), numbers<float>(result));
  if (half) copy_into(result.v, out);
}

void compute_conv(const Op&, Value* const* in, int n, const Attrs& attrs, Value** out) {
  const ConvShape shape = shape_of(in[0], in[1], out[0], attrs);
  run_form(in, n, out[0], [&]<class T>(T* x, T* w, T* bias, T* y) { conv_output<T>(shape, x, w, bias, y); });
}

void compute_transpose(const Op&, Value* const* in, int n, const Attrs& attrs, Value** out) {
  const ConvShape shape = shape_of(out[0], in[1], in[0], attrs);
  run_form(in, n, out[0], [&]<class T>(T* y, T* w, T*, T* x) { conv_input<T>(shape, y, w, x); });
}

void compute_kernel(const Op&, Value* const* in, int n, const Attrs& attrs, Value** out) {
  const ConvShape shape = shape_of(in[0], out[0], in[1], attrs);
  run_form(in, n, out[0], [&]<class T>(T* x, T* y, T*, T* w) { conv_kernel<T>(shape, x, y, w); });
}

void add_form(const char* name, int n_inputs, Op::Infer infer, Op::Compute compute) {
  add_op({.name = name,
          .n_inputs = n_inputs,
          .attrs = {{"sizes", Kind::sizes},
                    {"stride", Kind::integers},
                    {"padding", Kind::integers},
                    {"dilation", Kind::integers},
                    {"groups", Kind::integer}},
          .infer = infer,
          .compute = compute});
}

}  // namespace

static void add_ops() {
  add_form("conv", 2, infer_conv, compute_conv);
  add_form("conv_bias", 3, infer_conv, compute_conv);
  add_form("conv_transpose", 2, infer_transpose, compute_transpose);
  add_form("conv_kernel", 2, infer_kernel, compute_kernel);
}
static const OpFamily family(add_ops);

}  // namespace wengert
