#include "value.h"

#include <algorithm>
#include <complex>
#include <cstring>

#include "out_of_memory.h"

namespace wengert {

FreeList<Value> free_values;

namespace {

// Few axes are copied as a whole, without a loop or a call.
void copy_shape(Value* to, const Value* from) {
  std::memcpy(to->shape, from->shape, sizeof(int64_t) * kFewAxes);
  for (int i = kFewAxes; i < from->ndim; ++i) to->shape[i] = from->shape[i];
}

void copy_axes(Value* to, const Value* from) {
  copy_shape(to, from);
  std::memcpy(to->strides, from->strides, sizeof(int64_t) * kFewAxes);
  for (int i = kFewAxes; i < from->ndim; ++i) to->strides[i] = from->strides[i];
}

void set_packed_strides(Value* v) {
  int64_t stride = 1;
  for (int i = v->ndim - 1; i >= 0; --i) {
    v->strides[i] = stride;
    stride *= v->shape[i];
  }
  v->contiguous = true;
}

}  // namespace

void make_room_for_axes(Value* v) {
  try {
    v->shape = new int64_t[2 * v->ndim];
  } catch (...) {
    free_values.give(v);
    throw;
  }
  v->strides = v->shape + v->ndim;
}

void release(Alias* a) {
  if (--a->refs) return;
  release(a->base);
  delete a;
}

bool is_contiguous(int ndim, const int64_t* shape, const int64_t* strides) {
  int64_t expected = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

bool has_overlap(int ndim, const int64_t* shape, const int64_t* strides) {
  int order[kMaxRank], n = 0;
  for (int i = 0; i < ndim; ++i) {
    if (shape[i] == 0) return false;
    if (shape[i] > 1) order[n++] = i;
  }
  auto step = [&](int i) { return strides[i] < 0 ? -strides[i] : strides[i]; };
  std::sort(order, order + n, [&](int a, int b) { return step(a) < step(b); });
  int64_t extent = 0;  // extent of the axes so far
  for (int k = 0; k < n; ++k) {
    if (step(order[k]) <= extent) return true;
    extent += step(order[k]) * (shape[order[k]] - 1);
  }
  return false;
}

namespace {

struct Extent {
  uintptr_t first, end;
};

Extent extent(const Value* v) {
  int64_t low = 0, high = 0;
  for (int i = 0; i < v->ndim; ++i) {
    const int64_t reach = (v->shape[i] - 1) * v->strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const uintptr_t data = reinterpret_cast<uintptr_t>(v->data), element = static_cast<uintptr_t>(size_of(v->dtype));
  return {data + static_cast<uintptr_t>(low) * element, data + static_cast<uintptr_t>(high + 1) * element};
}

}  // namespace

std::string (*describe_room)(uint8_t device) = nullptr;

bool share_memory(const Value* a, const Value* b) {
  if (a->size == 0 || b->size == 0) return false;
  const Extent x = extent(a), y = extent(b);
  return x.first < y.end && y.first < x.end;
}

bool is_uniform(const Value* v) {
  for (int i = 0; i < v->ndim; ++i)
    if (v->strides[i] != 0 && v->shape[i] != 1) return false;
  return true;
}

namespace {

// A value with a new buffer; type and axes are not set.
inline Value* allocated(size_t bytes, int ndim, Category category, DeviceId device) {
  Buffer* buffer = device == kCpu ? allocate(bytes, category) : allocate_on(device_at(device), bytes, category);
  Value* v;
  try {
    v = new_value(ndim);
  } catch (...) {
    release(buffer);
    throw;
  }
  v->buffer = buffer;
  v->data = buffer->data;
  v->device = device;
  return v;
}

}  // namespace

Value* empty(DType dtype, const Dims& shape, Category category, DeviceId device) {
  int64_t size = 1;
  bool zero = false;
  for (Dim d : shape) {
    if (d.raw == 0)
      zero = true;
    else if (__builtin_mul_overflow(size, d.raw, &size))
      throw OutOfMemory({dtype, shape, device});
  }
  if (zero) size = 0;
  int64_t bytes;
  if (__builtin_mul_overflow(size, size_of(dtype), &bytes)) throw OutOfMemory({dtype, shape, device});
  Value* v;
  try {
    v = allocated(static_cast<size_t>(bytes), shape.n, category, device);
  } catch (const std::bad_alloc&) {
    throw OutOfMemory({dtype, shape, device});
  }
  v->dtype = dtype;
  v->size = size;
  for (int i = 0; i < shape.n; ++i) v->shape[i] = shape[i].raw;
  set_packed_strides(v);
  return v;
}

Value* empty_on_host(DType dtype, const Dims& shape, DeviceId device) {
  int64_t size = 1;
  for (Dim d : shape) size *= d.raw;
  Buffer* buffer = device_at(device).allocate_host(static_cast<size_t>(size * size_of(dtype)));
  if (!buffer) return empty(dtype, shape);
  Value* v = new_value(shape.n);
  v->buffer = buffer;
  v->data = buffer->data;
  v->dtype = dtype;
  v->size = size;
  for (int i = 0; i < shape.n; ++i) v->shape[i] = shape[i].raw;
  set_packed_strides(v);
  return v;
}

Value* empty_like(const Value* x, DType dtype) {
  Value* v = allocated(static_cast<size_t>(x->size * size_of(dtype)), x->ndim, Category::activation, x->device);
  v->dtype = dtype;
  v->size = x->size;
  if (x->contiguous) {
    copy_axes(v, x);
    v->contiguous = true;
  } else {
    copy_shape(v, x);
    set_packed_strides(v);
  }
  return v;
}

Value* uniform_like(const Value* x, DType dtype) {
  Value* v = allocated(static_cast<size_t>(size_of(dtype)), x->ndim, Category::activation, kCpu);
  v->dtype = dtype;
  v->contiguous = x->size <= 1;
  v->size = x->size;
  copy_shape(v, x);
  std::fill_n(v->strides, x->ndim, 0);
  return v;
}

Value* zeros(const Type& type) {
  Ref v(empty(type.dtype, type.shape, Category::activation, type.device));
  fill_value(v.v, 0.0);
  return v.take();
}

Value* scalar(DType dtype, double x) {
  Value* v = empty(dtype, {});
  set_scalar(dtype, v->data, x);
  return v;
}

Value* scalar_int(DType dtype, int64_t x) {
  Value* v = empty(dtype, {});
  set_scalar_int(dtype, v->data, x);
  return v;
}

Value* view(const Value* x, const Dims& shape, const int64_t* strides, int64_t offset) {
  Value* v = new_value(shape.n);
  v->dtype = x->dtype;
  v->device = x->device;
  v->buffer = x->buffer;
  retain(v->buffer);
  v->size = 1;
  for (int i = 0; i < shape.n; ++i) {
    v->shape[i] = shape[i].raw;
    v->strides[i] = strides[i];
    v->size *= shape[i].raw;
  }
  // An empty view may lie past the end of its buffer; it must not point there.
  v->data = v->size == 0 ? x->data : x->data + offset * size_of(x->dtype);
  v->contiguous = is_contiguous(v->ndim, v->shape, v->strides);
  return v;
}

Value* alias(const Value* x) {
  Value* v = new_value(x->ndim);
  v->dtype = x->dtype;
  v->contiguous = x->contiguous;
  v->device = x->device;
  v->buffer = x->buffer;
  retain(v->buffer);
  v->data = x->data;
  v->size = x->size;
  v->made = x->made;
  copy_axes(v, x);
  return v;
}

}  // namespace wengert
