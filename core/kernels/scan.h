// Running sums, products, extrema and sums of exponentials, and linear recurrences.
#pragma once
#include "gather.h"

namespace wengert {

enum class Scan : uint8_t { sum, prod, logsumexp };

// Along the middle extent of a packed array, from the first element on or, in reverse, from the last. Each line is
// scanned in order, so the bits depend on nothing else; float32 accumulates in double and half types in float.
void scan(Scan kind, DType dtype, const void* x, void* y, AxisExtents e, bool reverse);

// h[k] = a[k] h[k - 1] + b[k] along the middle extent, with h[-1] = 0; in reverse h[k + 1] takes the place of h[k - 1].
void recur(DType dtype, const void* a, const void* b, void* h, AxisExtents e, bool reverse);

// The largest (or smallest) element so far, and where it first was. A NaN is kept from where it appears.
void scan_extremum(DType dtype, const void* x, void* values, int64_t* indices, AxisExtents e, bool largest);

}  // namespace wengert
