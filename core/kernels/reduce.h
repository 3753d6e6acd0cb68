// Reductions over any axes of a strided array, built of the row and column kernels of vector.h. How the work
// is cut depends on shape and strides only, never on the number of threads.
#pragma once
#include "../value.h"
#include "vector.h"

namespace wengert {

// Rows up to this length are reduced by a single call of the row kernel; longer ones in chunks of it, whose
// results are reduced in order. Fused execution relies on the first half of that.
inline constexpr int64_t kReduceChunk = 16384;

// y = the reduction of x over the axes whose bit is set in `mask`; y is packed and holds the kept axes in
// order. Reducing nothing gives the identity of sum, prod, any and all; max and min have none and must not be
// asked.
void reduce(Reduction reduction, const Value* x, uint32_t mask, void* y);

// y = the position along `axis` of the first largest (smallest) element.
void arg_reduce(bool largest, const Value* x, int axis, int64_t* y);

}  // namespace wengert
