// What kernels take from the C library, on a GPU: NVIDIA's functions in the names of vector_library.h. Device code
// includes it in its place. The arithmetic of our own functors is the same on both sides to the bit; these differ in
// the last digits.
#pragma once

#define WENGERT_INLINE __forceinline__

namespace wengert::WENGERT_ISA_NAMESPACE {

inline constexpr bool kFused = true;

namespace libm {

inline constexpr float kInfinityFloat = __builtin_bit_cast(float, 0x7f800000u);
inline constexpr float kNaNFloat = __builtin_bit_cast(float, 0x7fc00000u);
inline constexpr double kInfinity = __builtin_bit_cast(double, 0x7ff0000000000000ull);
inline constexpr double kNaN = __builtin_bit_cast(double, 0x7ff8000000000000ull);

WENGERT_INLINE float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
WENGERT_INLINE double fma(double x, double y, double z) { return ::fma(x, y, z); }
#define WENGERT_LIBM(name)                                    \
  WENGERT_INLINE float name(float x) { return ::name##f(x); } \
  WENGERT_INLINE double name(double x) { return ::name(x); }
#define WENGERT_LIBM2(name)                                               \
  WENGERT_INLINE float name(float x, float y) { return ::name##f(x, y); } \
  WENGERT_INLINE double name(double x, double y) { return ::name(x, y); }
#include "vector_library.def"
WENGERT_LIBM(lgamma)
#undef WENGERT_LIBM
#undef WENGERT_LIBM2

}  // namespace libm

}  // namespace wengert::WENGERT_ISA_NAMESPACE
