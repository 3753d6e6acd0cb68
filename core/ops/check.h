// Checks and phrases of error messages that op families share.
#pragma once
#include <string>

#include "../out_of_memory.h"
#include "op.h"

namespace wengert {

// "float32(3, 4) and int64(2,)"
inline std::string operands(const Type* in, int n) {
  std::string s;
  for (int i = 0; i < n; ++i) s += (i == 0 ? "" : i == n - 1 ? " and " : ", ") + to_string(in[i]);
  return s;
}

inline DType dtype_attr(const Op& op, const Attr& attr) {
  if (attr.i < 0 || attr.i >= kNumDTypes) {
    fail(ErrorKind::dtype, op.name.c_str(), "there is no dtype with code " + std::to_string(attr.i));
  }
  return static_cast<DType>(attr.i);
}

// Whether the product of the known sizes fits any arithmetic on bytes.
inline bool countable(const Dims& shape) {
  int64_t bytes = 16;
  for (Dim d : shape)
    if (!d.symbolic() && d.raw != 0 && __builtin_mul_overflow(bytes, d.raw, &bytes)) return false;
  return true;
}

// A shape given by the user: known sizes are not negative, and countable.
inline const Dims& shape_attr(const Op& op, const Attr& attr) {
  for (Dim d : attr.dims) {
    if (!d.symbolic() && d.raw < 0) {
      fail(ErrorKind::shape, op.name.c_str(), "sizes must not be negative, got the shape " + to_string(attr.dims));
    }
  }
  if (!countable(attr.dims)) throw OutOfMemory(op.name.c_str(), attr.dims);
  return attr.dims;
}

inline void require_entries(const Op& op, const AttrSpec& spec, const Attr& attr, int n) {
  if (attr.dims.n != n) {
    fail(ErrorKind::value, op.name.c_str(),
         std::string(spec.name) + " must have " + std::to_string(n) + " entries, got " + to_string(attr.dims));
  }
}

inline void require_same_dtype(const Op& op, const Type* in, int a, int b, int n) {
  if (in[a].dtype != in[b].dtype) {
    fail(ErrorKind::dtype, op.name.c_str(),
         "operands must have the same dtype, got " + operands(in, n) + "; cast one of them");
  }
}

inline void require_number(const Op& op, const Type& x) {
  if (x.dtype == DType::Bool) {
    fail(ErrorKind::dtype, op.name.c_str(),
         "bool is not a number, got " + to_string(x) + "; cast to an integer dtype first");
  }
}

// Every position offset + Σ i·strides must lie in [0, count). 128 bits: strides may be anything.
inline void check_strided(const Op& op, const Dims& shape, const Dims& strides, int64_t offset, int64_t count) {
  __int128 low = offset, high = offset;
  for (int i = 0; i < shape.n; ++i) {
    if (shape[i].raw == 0) return;
    const __int128 reach = static_cast<__int128>(shape[i].raw - 1) * strides[i].raw;
    (reach < 0 ? low : high) += reach;
  }
  if (low < 0 || high >= count) {
    fail(ErrorKind::index, op.name.c_str(),
         "shape " + to_string(shape) + " with strides " + to_string(strides) + " and offset " + std::to_string(offset) +
             " reaches beyond the " + std::to_string(count) + " elements of the tensor");
  }
}

}  // namespace wengert
