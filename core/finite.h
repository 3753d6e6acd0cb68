// Whether numbers are finite, and whether they are zero: what instruments ask of results.
#pragma once
#include "value.h"

namespace wengert {

// Whether no element is infinite or NaN. Integers are finite; what lies on another device is not looked at.
bool all_finite(const Value* v);

// Whether all elements are zero; of very many, evenly spread ones are looked at.
bool looks_zero(const Value* v);

}  // namespace wengert
