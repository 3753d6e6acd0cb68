// Tests for instruments: whether numbers are finite, and whether they are zero.
#pragma once
#include "value.h"

namespace wengert {

// Whether no element is infinite or NaN. Integers count as finite. Of a value on another device the host waits for the
// answer.
bool all_finite(const Value* v);

// Whether all elements are zero; large values are sampled evenly. Values on another device are not read.
bool looks_zero(const Value* v);

}  // namespace wengert
