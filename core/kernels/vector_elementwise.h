// One functor per line of elementwise.def; vector_map.h has the loops that run them.
//
// A functor `op::name` has overloads `apply` for the types that it supports; the table is null for the
// others. `modular`: the same for signed and unsigned integers, which then share one loop. `in_range`,
// `apply_far`: `apply` is right for elements in range only, the others get the slower `apply_far`.
#pragma once
#include "vector_op_arithmetic.h"
#include "vector_op_functions.h"
#include "vector_op_predicates.h"
#include "vector_op_tangents.h"
