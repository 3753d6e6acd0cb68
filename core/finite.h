// Tests for instruments: whether numbers are finite, and whether they are zero.
#pragma once
#include "value.h"

namespace wengert {

// Whether no element is infinite or NaN. Integers count as finite, and so do values on another device, which are not
// read.
bool all_finite(const Value* v);

// Whether all elements are zero; large values are sampled evenly.
bool looks_zero(const Value* v);

}  // namespace wengert
