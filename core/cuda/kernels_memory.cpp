// Ops that move elements: copies between layouts, slices, joins, and values made of attributes alone.
#include <cmath>
#include <cstring>
#include <limits>

#include "device.h"

namespace wengert::cuda {

namespace {

int64_t word_of(const void* p) { return reinterpret_cast<int64_t>(p); }

int64_t bits_of(double x) {
  int64_t word;
  std::memcpy(&word, &x, sizeof(word));
  return word;
}

void copy(CudaDevice&, const Op&, Value* const* in, int, const Attrs&, Value** out) {
  // A reshape that needs a copy: the elements in order, in another shape.
  const Ref shaped(out[0]->ndim == in[0]->ndim && same_shape(in[0], out[0]) ? Ref::share(out[0]).take() : [&] {
    int64_t strides[kMaxRank], stride = 1;
    for (int i = in[0]->ndim - 1; i >= 0; stride *= in[0]->shape[i--]) strides[i] = stride;
    return view(out[0], in[0]->dims(), strides, 0);
  }());
  copy_into(in[0], shaped.v);
}

void copy_second(CudaDevice&, const Op&, Value* const* in, int, const Attrs&, Value** out) { copy_into(in[1], out[0]); }

void cast_bits(CudaDevice&, const Op&, Value* const* in, int, const Attrs&, Value** out) {
  const Ref same(alias(out[0]));
  same->dtype = in[0]->dtype;
  copy_into(in[0], same.v);
}

Ref place(Value* y, const Value* v, const Dims& starts, const Dims& steps) {
  int64_t strides[kMaxRank], offset = 0;
  for (int i = 0; i < y->ndim; ++i) {
    strides[i] = steps[i].raw * y->strides[i];
    offset += v->size ? starts[i].raw * y->strides[i] : 0;
  }
  return Ref(view(y, v->dims(), strides, offset));
}

void unslice(CudaDevice&, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  fill_value(out[0], 0.0);
  const Ref to = place(out[0], in[0], attrs[1].dims, attrs[2].dims);
  copy_into(in[0], to.v);
}

void slice_update(CudaDevice&, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  copy_into(in[0], out[0]);
  const Ref to = place(out[0], in[1], attrs[0].dims, attrs[1].dims);
  copy_into(in[1], to.v);
}

void concat(CudaDevice&, const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, out[0]->ndim);
  int64_t start = 0;
  for (int k = 0; k < n_in; ++k) {
    const Ref to(view(out[0], in[k]->dims(), out[0]->strides, in[k]->size ? start * out[0]->strides[axis] : 0));
    copy_into(in[k], to.v);
    start += in[k]->shape[axis];
  }
}

// Checks of the places, and copies: the same code as for the CPU.
void as_on_cpu(CudaDevice&, const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  op.compute(op, in, n_in, attrs, out);
}

template <bool kUpper>
void triangle(CudaDevice& gpu, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Ref x(contiguous(in[0]));
  const Value* y = out[0];
  gpu.run_kernel("device_memory.h",
                 std::string("triangle<") + (kUpper ? "true" : "false") + ", " + std::to_string(size_of(y->dtype)) +
                     ">(words, block_number)",
                 {word_of(y->data), word_of(x->data), y->size, y->ndim > 1 ? y->shape[y->ndim - 2] : 1,
                  y->shape[y->ndim - 1], attrs[0].i},
                 y->size);
}

void full(CudaDevice&, const Op&, Value* const*, int, const Attrs& attrs, Value** out) {
  fill_value(out[0], attrs[2].f);
}

void iota(CudaDevice& gpu, const Op&, Value* const*, int, const Attrs& attrs, Value** out) {
  const Value* y = out[0];
  const double start = attrs[2].f, step = attrs[3].f;
  const auto whole = [](double x) { return std::trunc(x) == x && std::abs(x) <= 0x1p53; };
  const bool exact =
      !is_inexact(y->dtype) && whole(start) && whole(step) && std::abs(step) * static_cast<double>(y->size) < 0x1p62;
  const std::string computed = exact ? "DType::Int64" : "DType::Float64";
  gpu.run_kernel("device_memory.h", "iota<" + computed + ", " + dtype_text(y->dtype) + ">(words, block_number)",
                 {word_of(y->data), y->size, exact ? static_cast<int64_t>(start) : bits_of(start),
                  exact ? static_cast<int64_t>(step) : bits_of(step)},
                 y->size);
}

// Derivatives that do not exist: pushed forward they are NaN; pulled back they must be zero, which the GPU looks at.
void undefined_tangent(CudaDevice&, const Op&, Value* const*, int, const Attrs&, Value** out) {
  fill_value(out[0], std::numeric_limits<double>::quiet_NaN());
}

void undefined_cotangent(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  fill_value(out[0], 0.0);
  const Ref x(contiguous(in[0]));
  std::vector<int64_t> words = {word_of(x->data), x->size, attrs[1].i};
  gpu.note_index(op, words);
  gpu.run_kernel("device_index.h", "note_unless_zero<" + dtype_text(x->dtype) + ">(words, block_number)", words,
                 x->size, 0);
}

}  // namespace

void register_memory_kernels() {
  for (const char* name : {"reshape", "contiguous", "cast"}) add_kernel(name, copy);
  add_kernel("bitcast", cast_bits);
  add_kernel("replace_value", copy_second);
  add_kernel("unslice", unslice);
  add_kernel("slice_update", slice_update);
  add_kernel("concat", concat);
  add_kernel("as_strided", as_on_cpu);
  add_kernel("as_strided_update", as_on_cpu);
  add_kernel("triu", triangle<true>);
  add_kernel("tril", triangle<false>);
  add_kernel("full", full);
  add_kernel("iota", iota);
  add_kernel("undefined_tangent", undefined_tangent);
  add_kernel("undefined_cotangent", undefined_cotangent);
}

}  // namespace wengert::cuda
