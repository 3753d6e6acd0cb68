// The inner loops over contiguous memory. They are compiled once per instruction set (vector.cpp is the one
// source) and chosen at start. Eager ops, fused groups and compiled programs all call these same functions,
// so that they agree to the bit: a result never depends on the length of a call or on where a block ends.
#pragma once
#include <cstdint>

#include "../dtype.h"

namespace wengert {

enum class Elementwise : uint16_t {
#define ELEMENTWISE(name, operands, dtype_class, result) name,
#include "elementwise.def"
#include "elementwise_scalar.def"
#undef ELEMENTWISE
  count
};
inline constexpr int kNumElementwise = static_cast<int>(Elementwise::count);

enum class Reduction : uint8_t { sum, prod, max, min, any, all, count };
inline constexpr int kNumReductions = static_cast<int>(Reduction::count);

// out[i] = f(in[0][i], in[1][i], ...) for i < n. `out` may be the same pointer as an input of the same element
// size; otherwise ranges do not overlap. Pointers are aligned to their element only.
using MapFn = void (*)(void* out, const void* const* in, int64_t n);
using CastFn = void (*)(void* out, const void* in, int64_t n);
// out[r] = reduction of the `cols` contiguous elements at in + r * row_stride (in elements).
using RowReduceFn = void (*)(void* out, const void* in, int64_t rows, int64_t cols, int64_t row_stride);
// out[c] = reduction over the `rows` rows, `row_stride` elements apart, of `cols` contiguous columns.
using ColReduceFn = void (*)(void* out, const void* in, int64_t rows, int64_t cols, int64_t row_stride);
// out[r] = position of the first largest (smallest) element of a row; a NaN counts as both.
using ArgReduceFn = void (*)(int64_t* out, const void* in, int64_t rows, int64_t cols, int64_t row_stride);

// Two ops in one loop: in[] has the operands of the first, then the other operand of the second.
struct PairKernel {
  Elementwise first, second;
  DType dtype;
  bool left;  // the first gives the left operand of the second
  MapFn map;
};

struct VectorKernels {
  const char* instruction_set;
  MapFn map[kNumElementwise][kNumDTypes];  // by the dtype computed in; null where not supported
  CastFn cast[kNumDTypes][kNumDTypes];     // [from][to]
  RowReduceFn row_reduce[kNumReductions][kNumDTypes];
  ColReduceFn col_reduce[kNumReductions][kNumDTypes];
  ArgReduceFn argmax[kNumDTypes];
  ArgReduceFn argmin[kNumDTypes];
};

// Puts the kernels of elementwise_scalar.def into the table, which the instruction sets leave empty.
void fill_scalar_maps(VectorKernels& table);

// The table for this machine, chosen once; WENGERT_ISA=v2|v3|v4 overrides it (an unavailable set is refused).
const VectorKernels& kernels();

// The loop that does what two loops of the table do one after the other; null if there is none.
MapFn find_pair(MapFn first, MapFn second, bool left);

}  // namespace wengert
