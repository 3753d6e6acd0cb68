// The functors of elementwise ops on one element, for code that is written at run time: kernels of GPUs, and the
// functions that programs become on the CPU.
#pragma once
#include <cstring>

#include "vector_convert.h"
#include "vector_elementwise.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// A constant of an element type, whose bytes are the first of one word or two.
template <class T>
WENGERT_INLINE T constant(const int64_t* words) {
  T x;
  memcpy(&x, words, sizeof(T));
  return x;
}

// Where it is defined, `apply` computes an op of 16-bit numbers, widened to float, in place of the op's own function.
template <class Op>
struct HalfFunction;

// op::name on elements of dtype D, as the loops of the CPU apply it.
template <class Op, DType D, class... X>
WENGERT_INLINE auto map(X... x) {
  using T = Storage<D>;
  constexpr int kOperands = sizeof...(X);
  if constexpr (std::is_same_v<Op, op::copy>) {
    return (x, ...);
  } else if constexpr (std::is_same_v<Op, op::where>) {
    return [](uint8_t condition, T a, T b) { return condition != 0 ? a : b; }(x...);
  } else if constexpr (D == DType::Bool && std::is_same_v<Op, op::bitwise_invert>) {
    return static_cast<uint8_t>(op::logical_not::apply(x...));
  } else if constexpr (D == DType::Bool && std::is_same_v<Op, op::maximum>) {
    return static_cast<uint8_t>(op::logical_or::apply(x...));
  } else if constexpr (D == DType::Bool && std::is_same_v<Op, op::minimum>) {
    return static_cast<uint8_t>(op::logical_and::apply(x...));
  } else if constexpr (HalfNumber<T> && requires { HalfFunction<Op>::apply(widen(x)...); }) {
    return narrow<T>(HalfFunction<Op>::apply(widen(x)...));
  } else if constexpr (HalfNumber<T> && !Applicable<Op, T, kOperands>) {
    const auto y = map<Op, DType::Float32>(widen(x)...);
    if constexpr (std::is_same_v<decltype(y), const float>) {
      return narrow<T>(y);
    } else {
      return y;
    }
  } else if constexpr (requires(T a) { Op::apply_near(a); }) {
    if (Op::is_near(x...)) return Op::apply_near(x...);
    return Op::in_range(x...) ? Op::apply(x...) : Op::apply_far(x...);
  } else if constexpr (HasFar<Op, T, kOperands>) {
    return Op::in_range(x...) ? Op::apply(x...) : Op::apply_far(x...);
  } else {
    using L = typename LoopTypeOf<Op, T>::type;
    const auto y = Op::apply(static_cast<L>(x)...);
    if constexpr (std::is_same_v<decltype(y), const bool>) {
      return static_cast<uint8_t>(y);
    } else if constexpr (std::is_same_v<decltype(y), const L>) {
      return static_cast<T>(y);
    } else {
      return y;
    }
  }
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
