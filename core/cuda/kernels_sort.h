// Sorted lines, for ops that need an order to sum in.
#pragma once
#include "../kernels/gather.h"
#include "device.h"

namespace wengert::cuda {

// Lines one after the other, as they stand in order: the elements, and where in its line each of them was (uint32).
struct SortedLines {
  Ref values, positions;
};

// Stable. A NaN that is refused is raised, in the op's name, where the host next waits.
SortedLines sort_lines(CudaDevice& gpu, const Op& op, const Value* x, const AxisExtents& e, bool descending,
                       bool nan_is_refused);

}  // namespace wengert::cuda
