// What the kernels take from the C library and the compiler, on this machine and on a GPU, in the same names.
#pragma once

#ifdef WENGERT_DEVICE_CODE
#include "../cuda/device_library.h"
#else

#define WENGERT_INLINE [[gnu::always_inline]] inline

namespace wengert::WENGERT_ISA_NAMESPACE {

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
inline constexpr bool kFused = true;
#else
inline constexpr bool kFused = false;
#endif

// The C library, overloaded by type.
namespace libm {

inline constexpr float kInfinityFloat = __builtin_inff(), kNaNFloat = __builtin_nanf("");
inline constexpr double kInfinity = __builtin_inf(), kNaN = __builtin_nan("");

WENGERT_INLINE float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
WENGERT_INLINE double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
#define WENGERT_LIBM(name)                                              \
  WENGERT_INLINE float name(float x) { return __builtin_##name##f(x); } \
  WENGERT_INLINE double name(double x) { return __builtin_##name(x); }
#define WENGERT_LIBM2(name)                                                         \
  WENGERT_INLINE float name(float x, float y) { return __builtin_##name##f(x, y); } \
  WENGERT_INLINE double name(double x, double y) { return __builtin_##name(x, y); }
#include "vector_library.def"
#undef WENGERT_LIBM
#undef WENGERT_LIBM2
// The reentrant form: plain lgamma writes the global `signgam`.
inline float lgamma(float x) {
  int sign;
  return __builtin_lgammaf_r(x, &sign);
}
inline double lgamma(double x) {
  int sign;
  return __builtin_lgamma_r(x, &sign);
}

}  // namespace libm

}  // namespace wengert::WENGERT_ISA_NAMESPACE

#endif
