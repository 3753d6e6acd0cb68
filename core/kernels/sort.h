// Sorting along an axis, the k largest, and places in a sorted line. Every order is stable, so the result is one thing
// however the work is split.
#pragma once
#include "gather.h"

namespace wengert {

// A packed array is sorted along its middle extent into `values` (of its dtype) and `indices`, either of which may be
// null. `keep` elements of each line are written. NaN comes last when ascending. Whether there is one.
bool sort_lines(DType dtype, const void* x, AxisExtents e, int64_t keep, bool descending, void* values,
                int64_t* indices);

// The flat position of the first NaN, or -1.
int64_t find_nan(DType dtype, const void* x, int64_t n);

// For each of m elements of y the number of elements of sorted x (n of them) that are smaller, or on the right side
// not larger. NaN is larger than every number.
void search_sorted(DType dtype, const void* x, int64_t n, const void* y, int64_t m, bool right, int64_t* places);

}  // namespace wengert
