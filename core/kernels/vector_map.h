// The loops over elements, and the table of them.
#pragma once
#include <cstring>

#include "vector.h"
#include "vector_elementwise.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// The loops. `ivdep`: `out` may be an input, element upon element, and the loop is to be vectorised without a
// test for that.

template <class Op, class T>
WENGERT_INLINE void map_loop(void* out, const void* const* in, int64_t n, std::integral_constant<int, 1>) {
  auto* y = static_cast<ResultStorage<decltype(Op::apply(T{}))>*>(out);
  const auto* a = static_cast<const T*>(in[0]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Op::apply(a[i]);
}

template <class Op, class T>
WENGERT_INLINE void map_loop(void* out, const void* const* in, int64_t n, std::integral_constant<int, 2>) {
  auto* y = static_cast<ResultStorage<decltype(Op::apply(T{}, T{}))>*>(out);
  const auto* a = static_cast<const T*>(in[0]);
  const auto* b = static_cast<const T*>(in[1]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Op::apply(a[i], b[i]);
}

template <class Op, class T>
WENGERT_INLINE void map_loop(void* out, const void* const* in, int64_t n, std::integral_constant<int, 3>) {
  auto* y = static_cast<T*>(out);
  const auto* a = static_cast<const T*>(in[0]);
  const auto* b = static_cast<const T*>(in[1]);
  const auto* c = static_cast<const T*>(in[2]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Op::apply(a[i], b[i], c[i]);
}

template <class Op, class T, int Operands>
void map(void* out, const void* const* in, int64_t n) {
  map_loop<Op, T>(out, in, n, std::integral_constant<int, Operands>{});
}

// An integer of the width of a part, in which a loop over elements collects conditions.
template <class T>
struct FlagOf {
  using type = BitsOf<T>;
};
template <class T>
struct FlagOf<Complex<T>> {
  using type = BitsOf<T>;
};

// Elements out of range are rare: a block is computed as a whole, and they are then replaced.
template <class Op, class T, int Operands>
void map_with_far(void* out, const void* const* in, int64_t n) {
  constexpr int64_t kBlock = 256;
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t m = n - start < kBlock ? n - start : kBlock;
    const void* block[Operands];
    for (int k = 0; k < Operands; ++k) block[k] = static_cast<const T*>(in[k]) + start;
    const auto* a = static_cast<const T*>(block[0]);
    const auto* b = static_cast<const T*>(block[Operands - 1]);
    const auto near = [](T p, T q) {
      if constexpr (Operands == 1) return Op::in_range(p);
      if constexpr (Operands == 2) return Op::in_range(p, q);
    };
    using Flag = typename FlagOf<T>::type;
    Flag far = 0;
    for (int64_t i = 0; i < m; ++i) far |= near(a[i], b[i]) ? Flag{0} : Flag{1};
    T before[Operands][kBlock];
    for (int k = 0; k < Operands && far != 0; ++k) {  // `out` may be an input
      std::memcpy(before[k], block[k], static_cast<size_t>(m) * sizeof(T));
    }
    auto* y = static_cast<T*>(out) + start;
    map_loop<Op, T>(y, block, m, std::integral_constant<int, Operands>{});
    if (far == 0) continue;
    for (int64_t i = 0; i < m; ++i) {
      const T p = before[0][i], q = before[Operands - 1][i];
      if (near(p, q)) continue;
      if constexpr (Operands == 1) y[i] = Op::apply_far(p);
      if constexpr (Operands == 2) y[i] = Op::apply_far(p, q);
    }
  }
}

// 16-bit floating types: to float, the float kernel, and rounded back, block by block.
template <class Op, HalfNumber H, int Operands, bool BoolResult>
void map_half(void* out, const void* const* in, int64_t n) {
  float buffer[Operands][kHalfBlock];
  const void* operands[Operands];
  for (int k = 0; k < Operands; ++k) operands[k] = buffer[k];
  for (int64_t start = 0; start < n; start += kHalfBlock) {
    const int64_t m = n - start < kHalfBlock ? n - start : kHalfBlock;
    for (int k = 0; k < Operands; ++k) widen(buffer[k], static_cast<const H*>(in[k]) + start, m);
    void* result = BoolResult ? static_cast<void*>(static_cast<uint8_t*>(out) + start) : buffer[0];
    if constexpr (HasFar<Op, float, Operands>) {
      map_with_far<Op, float, Operands>(result, operands, m);
    } else {
      map<Op, float, Operands>(result, operands, m);
    }
    if constexpr (!BoolResult) narrow(static_cast<H*>(out) + start, buffer[0], m);
  }
}

struct Bytes16 {
  uint64_t low, high;
};

template <class T>
void map_where(void* out, const void* const* in, int64_t n) {
  auto* y = static_cast<T*>(out);
  const auto* condition = static_cast<const uint8_t*>(in[0]);
  const auto* a = static_cast<const T*>(in[1]);
  const auto* b = static_cast<const T*>(in[2]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T then = a[i], otherwise = b[i];  // both are loaded: a select, no branch
    if constexpr (std::is_same_v<T, Bytes16>) {
      const uint64_t mask = uint64_t{0} - (condition[i] != 0);
      y[i] = {(then.low & mask) | (otherwise.low & ~mask), (then.high & mask) | (otherwise.high & ~mask)};
    } else {
      y[i] = condition[i] != 0 ? then : otherwise;
    }
  }
}

template <int64_t kBytes>
void map_copy(void* out, const void* const* in, int64_t n) {
  if (out != in[0] && n > 0) std::memcpy(out, in[0], static_cast<size_t>(n * kBytes));
}

// The table
// ----------------------------------------------------------------------------------------------------

enum class DTypeClass { any, number, real, floating, rfloat, wfloat, cfloat, bits, integer, boolean };

constexpr bool belongs(DType d, DTypeClass c) {
  switch (c) {
    case DTypeClass::any: return true;
    case DTypeClass::number: return d != DType::Bool;
    case DTypeClass::real: return is_integer(d) || is_floating(d);
    case DTypeClass::floating: return is_inexact(d);
    case DTypeClass::rfloat: return is_floating(d);
    case DTypeClass::wfloat: return is_floating(d) && !is_half(d);
    case DTypeClass::cfloat: return is_complex(d);
    case DTypeClass::bits: return d == DType::Bool || is_integer(d);
    case DTypeClass::integer: return is_integer(d);
    case DTypeClass::boolean: return d == DType::Bool;
  }
  return false;
}

template <class Op, int Operands, bool BoolResult, DType D>
constexpr MapFn map_of() {
  using T = Storage<D>;
  if constexpr (std::is_same_v<Op, op::copy>) {
    return map_copy<size_of(D)>;
  } else if constexpr (std::is_same_v<Op, op::where>) {
    if constexpr (size_of(D) == 16) return map_where<Bytes16>;
    if constexpr (size_of(D) == 8) return map_where<uint64_t>;
    if constexpr (size_of(D) == 4) return map_where<uint32_t>;
    if constexpr (size_of(D) == 2) return map_where<uint16_t>;
    if constexpr (size_of(D) == 1) return map_where<uint8_t>;
  } else if constexpr (D == DType::Bool && std::is_same_v<Op, op::bitwise_invert>) {
    return map<op::logical_not, T, 1>;
  } else if constexpr (HalfNumber<T> && !Applicable<Op, T, Operands>) {
    return map_half<Op, T, Operands, BoolResult>;
  } else if constexpr (HasFar<Op, T, Operands>) {
    return map_with_far<Op, T, Operands>;
  } else if constexpr (Applicable<Op, T, Operands>) {
    return map<Op, typename LoopTypeOf<Op, T>::type, Operands>;
  } else {
    return nullptr;
  }
}

constexpr void fill_map(VectorKernels& table) {
  constexpr bool result_is_same = false, result_is_real = false, result_is_complex = false, result_is_bool = true;
#define ELEMENTWISE(name, operands, dtype_class, result)                    \
  for_each_dtype([&]<DType D>(std::integral_constant<DType, D>) {           \
    if constexpr (belongs(D, DTypeClass::dtype_class)) {                    \
      table.map[static_cast<int>(Elementwise::name)][static_cast<int>(D)] = \
          map_of<op::name, operands, result_is_##result, D>();              \
    }                                                                       \
  });
#include "elementwise.def"
#undef ELEMENTWISE
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
