// The loops that convert between all dtypes.
#pragma once
#include <cstring>

#include "vector.h"
#include "vector_convert.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

template <DType From, DType To>
void cast(void* out, const void* in, int64_t n) {
  auto* y = static_cast<Storage<To>*>(out);
  const auto* x = static_cast<const Storage<From>*>(in);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = convert<From, To>(x[i]);
}

// Between float and 16 bits: the block conversions, which use the hardware's where there are any.
template <HalfNumber H>
void cast_from_half(void* out, const void* in, int64_t n) {
  widen(static_cast<float*>(out), static_cast<const H*>(in), n);
}
template <HalfNumber H>
void cast_to_half(void* out, const void* in, int64_t n) {
  narrow(static_cast<H*>(out), static_cast<const float*>(in), n);
}

// Between types of equal representation.
template <int64_t kBytes>
void cast_copy(void* out, const void* in, int64_t n) {
  if (out != in && n > 0) std::memcpy(out, in, static_cast<size_t>(n * kBytes));
}

template <DType From, DType To>
constexpr CastFn cast_of() {
  using S = Storage<From>;
  using T = Storage<To>;
  if constexpr (From == To || (From == DType::Bool && sizeof(T) == 1) ||
                (is_integer(From) && is_integer(To) && sizeof(S) == sizeof(T))) {
    return cast_copy<sizeof(T)>;
  } else if constexpr (HalfNumber<S> && To == DType::Float32) {
    return cast_from_half<S>;
  } else if constexpr (HalfNumber<T> && From == DType::Float32) {
    return cast_to_half<T>;
  } else {
    return cast<From, To>;
  }
}

constexpr void fill_cast(VectorKernels& table) {
  for_each_dtype([&]<DType From>(std::integral_constant<DType, From>) {
    for_each_dtype([&]<DType To>(std::integral_constant<DType, To>) {
      table.cast[static_cast<int>(From)][static_cast<int>(To)] = cast_of<From, To>();
    });
  });
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
