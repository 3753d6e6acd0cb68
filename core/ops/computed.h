// Operands and results of kernels that support only float32 and float64; 16-bit numbers are converted.
#pragma once
#include "../value.h"

namespace wengert {

inline DType computed_in(DType dtype) { return dtype == DType::Float64 ? DType::Float64 : DType::Float32; }

// v in the dtype of the computation: itself, or a copy.
inline Ref as_computed(Value* v, DType computed) {
  if (v->dtype == computed) return Ref::share(v);
  Ref wide(empty(computed, v->dims()));
  copy_into(v, wide.v);
  return wide;
}

// The same, contiguous.
inline Ref packed(Value* v, DType computed) {
  const Ref wide = as_computed(v, computed);
  return Ref(contiguous(wide.v));
}

// The target of a kernel: the output itself, or a wider value that `finish` rounds into it.
struct Result {
  Value* out;
  Ref wide;
  Result(Value* o, DType computed)
      : out(o), wide(o->dtype == computed ? Ref::share(o) : Ref(empty(computed, o->dims()))) {}
  void* data() { return wide->data; }
  void finish() {
    if (wide.v != out) copy_into(wide.v, out);
  }
};

}  // namespace wengert
