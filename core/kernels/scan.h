// Running sums and products.
#pragma once
#include "gather.h"

namespace wengert {

enum class Scan : uint8_t { sum, prod };

// In place, along the middle extent of a packed array, from the first element on or, in reverse, from the
// last. Each line is scanned in order, so the bits depend on nothing else; float32 accumulates in double and
// half types in float.
void scan(Scan kind, DType dtype, void* y, AxisExtents e, bool reverse);

}  // namespace wengert
