// What value.h declares of contents: copies between layouts, dtypes and devices, and numbers in memory.
#include <cstring>

#include "../value.h"
#include "strided.h"
#include "vector.h"

namespace wengert {

Value* contiguous(const Value* v) {
  if (v->contiguous) return Ref::share(const_cast<Value*>(v)).take();
  Value* packed = empty_like(v, v->dtype);
  copy_into(v, packed);
  return packed;
}

Value* on_device(const Value* v, DeviceId device) {
  if (v->device == device) return Ref::share(const_cast<Value*>(v)).take();
  Ref copy(empty(v->dtype, v->dims(), Category::activation, device));
  copy_into(v, copy.v);
  return copy.take();
}

void fill_value(Value* v, double x) {
  alignas(16) char one[16];
  set_scalar(v->dtype, one, x);
  if (v->device != kCpu) return device_at(v->device).fill(v, one);
  if (x == 0.0)
    std::memset(v->data, 0, static_cast<size_t>(v->bytes()));
  else
    fill(v->data, one, size_of(v->dtype), v->size);
}

void set_scalar(DType dtype, void* out, double x) {
  const void* in = &x;
  kernels().cast[static_cast<int>(DType::Float64)][static_cast<int>(dtype)](out, in, 1);
}

void set_scalar_int(DType dtype, void* out, int64_t x) {
  kernels().cast[static_cast<int>(DType::Int64)][static_cast<int>(dtype)](out, &x, 1);
}

double get_scalar(DType dtype, const void* in) {
  double x;
  kernels().cast[static_cast<int>(dtype)][static_cast<int>(DType::Float64)](&x, in, 1);
  return x;
}

namespace {

[[gnu::noinline]] void copy_between_devices(const Value* src, Value* dst) {
  if (src->device == kCpu || dst->device == kCpu || src->device == dst->device)
    return device_at(dst->device == kCpu ? src->device : dst->device).copy(src, dst);
  if (device_at(dst->device).copy_across(src, dst)) return;
  const Ref host(on_device(src, kCpu));
  device_at(dst->device).copy(host.v, dst);
}

}  // namespace

void copy_into(const Value* src, Value* dst) {
  if (src->size == 0) return;
  if (src->device | dst->device) [[unlikely]]
    return copy_between_devices(src, dst);
  if (src->dtype == dst->dtype) {
    if (src->contiguous && dst->contiguous) {
      std::memmove(dst->data, src->data, static_cast<size_t>(src->bytes()));
    } else {
      copy_strided(dst->data, dst->strides, src->data, src->strides, src->ndim, src->shape, size_of(src->dtype));
    }
    return;
  }
  Ref packed(contiguous(src));
  CastFn cast = kernels().cast[static_cast<int>(src->dtype)][static_cast<int>(dst->dtype)];
  if (dst->contiguous) {
    cast(dst->data, packed->data, src->size);
    return;
  }
  Ref converted(empty_like(src, dst->dtype));
  cast(converted->data, packed->data, src->size);
  copy_strided(dst->data, dst->strides, converted->data, converted->strides, dst->ndim, dst->shape,
               size_of(dst->dtype));
}

}  // namespace wengert
