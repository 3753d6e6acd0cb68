// One functor per line of elementwise.def; vector_map.h has the loops that run them, and kernels of GPUs are made of
// the same functors.
//
// A functor `op::name` has overloads `apply` for the types that it supports; the table is null for the
// others. `modular`: the same for signed and unsigned integers, which then share one loop. `in_range`,
// `apply_far`: `apply` is right for elements in range only, the others get the slower `apply_far`.
#pragma once
#include "vector_op_arithmetic.h"
#include "vector_op_functions.h"
#include "vector_op_predicates.h"
#include "vector_op_tangents.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

template <class R>
using ResultStorage = std::conditional_t<std::is_same_v<R, bool>, uint8_t, R>;

template <class Op, class T, int Operands>
concept HasFar = (Operands == 1 && requires(T a) { Op::apply_far(a); }) ||
                 (Operands == 2 && requires(T a, T b) { Op::apply_far(a, b); });

// Signed integers share the loop of the unsigned ones where the op allows.
template <class Op, class T>
struct LoopTypeOf {
  using type = T;
};
template <class Op, Integer T>
  requires Op::modular
struct LoopTypeOf<Op, T> {
  using type = std::make_unsigned_t<T>;
};

template <class Op, class T, int Operands>
concept Applicable =
    (Operands == 1 && requires(T a) { Op::apply(a); }) || (Operands == 2 && requires(T a, T b) { Op::apply(a, b); }) ||
    (Operands == 3 && requires(T a, T b, T c) { Op::apply(a, b, c); });

}  // namespace wengert::WENGERT_ISA_NAMESPACE
