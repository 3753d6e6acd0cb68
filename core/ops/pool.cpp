// Pooling over one to three spatial axes. The largest element of a window is identified by its tap number, which is all
// that a derivative needs; taking elements at given taps is linear, like sums over windows.
#include "../kernels/pool.h"

#include "check.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

struct Window {  // the positions of the attributes
  int kernel, stride, padding, dilation, sizes;
};
constexpr Window kSized = {1, 2, 3, 4, 0}, kUnsized = {0, 1, 2, 3, -1};

void require_window(const Op& op, const Window& at, const Attrs& attrs, const Type* in, int n) {
  const int rank = in[0].shape.n - 2;
  if (rank < 1 || rank > 3) {
    fail(ErrorKind::shape, op.name.c_str(), "takes two axes and one to three spatial axes, got " + operands(in, n));
  }
  if (!is_inexact(in[0].dtype) || is_complex(in[0].dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(), "takes real floating numbers, got " + operands(in, n) + "; cast them");
  }
  for (int i : {at.kernel, at.stride, at.padding, at.dilation}) require_entries(op, op.attrs[i], attrs[i], rank);
  if (at.sizes >= 0) require_entries(op, op.attrs[at.sizes], attrs[at.sizes], rank);
  for (int i = 0; i < rank; ++i) {
    const int64_t k = attrs[at.kernel].dims[i].raw, s = attrs[at.stride].dims[i].raw, p = attrs[at.padding].dims[i].raw;
    const int64_t d = attrs[at.dilation].dims[i].raw;
    if (k < 1 || s < 1 || d < 1 || p < 0 || p > (k - 1) * d) {
      fail(ErrorKind::value, op.name.c_str(),
           "kernel " + to_string(attrs[at.kernel].dims) + ", stride " + to_string(attrs[at.stride].dims) +
               ", padding " + to_string(attrs[at.padding].dims) + " and dilation " +
               to_string(attrs[at.dilation].dims) +
               ": kernel, stride and dilation must be positive, padding smaller than the kernel");
    }
  }
}

// Every window has a tap inside x, with `out` windows along each axis of x: none begins behind it, and no two taps of
// one that begins before it enclose it.
void require_inside(const Op& op, const Window& at, const Attrs& attrs, const Dims& x, const Dims& out) {
  for (int i = 0; i + 2 < x.n; ++i) {
    const Dim last = (out[i + 2] - Dim(1)) * attrs[at.stride].dims[i] - attrs[at.padding].dims[i];
    const bool enclosed = attrs[at.padding].dims[i].raw > 0 && x[i + 2] < attrs[at.dilation].dims[i];
    if (!(last < x[i + 2]) || enclosed) {
      fail(ErrorKind::shape, op.name.c_str(),
           "windows " + to_string(out) + " do not lie inside " + to_string(x) + " with stride " +
               to_string(attrs[at.stride].dims) + " and dilation " + to_string(attrs[at.dilation].dims));
    }
  }
}

Dims resized(const Dims& shape, const Dims& sizes) {
  Dims s{shape[0], shape[1]};
  for (Dim d : sizes) s.push(d);
  return s;
}

DType index_type(const Dims& kernel) {
  int64_t taps = 1;
  for (Dim d : kernel) taps *= d.raw;
  return taps <= 256 ? DType::UInt8 : DType::Int32;
}

void require_index(const Op& op, const Type* in, int n) {
  if (!is_integer(in[1].dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(), "numbers of taps must be integers, got " + operands(in, n));
  }
}

void infer_argmax(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_window(op, kSized, attrs, in, n);
  *out = {index_type(attrs[kSized.kernel].dims), resized(in[0].shape, shape_attr(op, attrs[kSized.sizes]))};
  require_inside(op, kSized, attrs, in[0].shape, out->shape);
}

void infer_take(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_window(op, kUnsized, attrs, in, n);
  require_index(op, in, n);
  bool fits = in[1].shape.n == in[0].shape.n;
  for (int i = 0; fits && i < 2; ++i) fits = in[0].shape[i] == in[1].shape[i];
  if (!fits) fail(ErrorKind::shape, op.name.c_str(), "taps and elements do not fit, got " + operands(in, n));
  *out = {in[0].dtype, in[1].shape};
  require_inside(op, kUnsized, attrs, in[0].shape, in[1].shape);
}

void infer_put(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_window(op, kSized, attrs, in, n);
  require_index(op, in, n);
  if (!(in[0].shape == in[1].shape)) {
    fail(ErrorKind::shape, op.name.c_str(), "taps and elements do not fit, got " + operands(in, n));
  }
  *out = {in[0].dtype, resized(in[0].shape, shape_attr(op, attrs[kSized.sizes]))};
  require_inside(op, kSized, attrs, out->shape, in[0].shape);
}

void infer_sum(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_window(op, kSized, attrs, in, n);
  *out = {in[0].dtype, resized(in[0].shape, shape_attr(op, attrs[kSized.sizes]))};
  require_inside(op, kSized, attrs, in[0].shape, out->shape);
}

void infer_spread(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_window(op, kSized, attrs, in, n);
  *out = {in[0].dtype, resized(in[0].shape, shape_attr(op, attrs[kSized.sizes]))};
  require_inside(op, kSized, attrs, out->shape, in[0].shape);
}

PoolShape shape_of(const Value* x, const Value* y, const Attrs& attrs, const Window& at) {
  PoolShape s;
  s.planes = x->shape[0] * x->shape[1];
  const int rank = x->ndim - 2;
  for (int i = 0; i < rank; ++i) {
    const int to = 3 - rank + i;
    s.in[to] = x->shape[2 + i];
    s.out[to] = y->shape[2 + i];
    s.kernel[to] = attrs[at.kernel].dims[i].raw;
    s.stride[to] = attrs[at.stride].dims[i].raw;
    s.padding[to] = attrs[at.padding].dims[i].raw;
    s.dilation[to] = attrs[at.dilation].dims[i].raw;
  }
  return s;
}

// Packed float or double numbers of a value; half precisions are computed in float.
struct Numbers {
  Ref packed;
  explicit Numbers(const Value* v) {
    const DType wide = v->dtype == DType::Float64 ? DType::Float64 : DType::Float32;
    if (v->dtype == wide) {
      packed = Ref(contiguous(v));
    } else {
      packed = Ref(empty_like(v, wide));
      copy_into(v, packed.v);
    }
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(packed->data);
  }
};

// f(x, y) with packed float or double arrays, y to be filled.
template <class F>
void run_real(const Value* x, Value* y, F&& f) {
  const Numbers from(x);
  if (y->size == 0) return;
  if (y->dtype == DType::Float64) return f(from.as<double>(), reinterpret_cast<double*>(y->data));
  if (y->dtype == DType::Float32) return f(from.as<float>(), reinterpret_cast<float*>(y->data));
  Ref wide(empty_like(y, DType::Float32));
  f(from.as<float>(), reinterpret_cast<float*>(wide->data));
  copy_into(wide.v, y);
}

// f(taps) with a packed array of their numbers.
template <class F>
void with_taps(const Value* index, F&& f) {
  if (index->dtype == DType::UInt8) {
    const Ref packed(contiguous(index));
    return f(reinterpret_cast<const uint8_t*>(packed->data));
  }
  Ref packed(index->dtype == DType::Int32 ? contiguous(index) : empty_like(index, DType::Int32));
  if (index->dtype != DType::Int32) copy_into(index, packed.v);
  f(reinterpret_cast<const int32_t*>(packed->data));
}

void compute_argmax(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  Value* index = out[0];
  if (index->size == 0) return;
  const PoolShape s = shape_of(in[0], index, attrs, kSized);
  const Numbers x(in[0]);
  auto run = [&]<class I>(I* to) {
    if (x.packed->dtype == DType::Float64) {
      pool_argmax(s, x.as<double>(), to);
    } else {
      pool_argmax(s, x.as<float>(), to);
    }
  };
  if (index->dtype == DType::UInt8) {
    run(reinterpret_cast<uint8_t*>(index->data));
  } else {
    run(reinterpret_cast<int32_t*>(index->data));
  }
}

void compute_take(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const PoolShape s = shape_of(in[0], out[0], attrs, kUnsized);
  with_taps(in[1],
            [&](auto* taps) { run_real(in[0], out[0], [&]<class T>(const T* x, T* y) { pool_take(s, x, taps, y); }); });
}

void compute_put(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const PoolShape s = shape_of(out[0], in[0], attrs, kSized);
  with_taps(in[1],
            [&](auto* taps) { run_real(in[0], out[0], [&]<class T>(const T* y, T* x) { pool_put(s, y, taps, x); }); });
}

void compute_sum(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const PoolShape s = shape_of(in[0], out[0], attrs, kSized);
  run_real(in[0], out[0], [&]<class T>(const T* x, T* y) { pool_sum(s, x, y); });
}

void compute_spread(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const PoolShape s = shape_of(out[0], in[0], attrs, kSized);
  run_real(in[0], out[0], [&]<class T>(const T* y, T* x) { pool_spread(s, y, x); });
}

}  // namespace

static void add_ops() {
  const std::vector<AttrSpec> window = {{"kernel", Kind::integers},
                                        {"stride", Kind::integers},
                                        {"padding", Kind::integers},
                                        {"dilation", Kind::integers}};
  std::vector<AttrSpec> sized = {{"sizes", Kind::sizes}};
  sized.insert(sized.end(), window.begin(), window.end());
  add_op({.name = "pool_argmax",
          .attrs = sized,
          .infer = infer_argmax,
          .compute = compute_argmax,
          .differentiable = false});
  add_op({.name = "pool_take", .n_inputs = 2, .attrs = window, .infer = infer_take, .compute = compute_take});
  add_op({.name = "pool_put", .n_inputs = 2, .attrs = sized, .infer = infer_put, .compute = compute_put});
  add_op({.name = "pool_sum", .attrs = sized, .infer = infer_sum, .compute = compute_sum});
  add_op({.name = "pool_spread", .attrs = sized, .infer = infer_spread, .compute = compute_spread});
}
static const OpFamily family(add_ops);

}  // namespace wengert
