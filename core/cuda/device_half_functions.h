// Functions of 16-bit numbers that take fewer instructions than those of float, which would keep the GPU from memory:
// their relative errors are below 2^-16, where a float16 is rounded by 2^-12.
#pragma once
#include "vector_element.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

WENGERT_INLINE float near_reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}
WENGERT_INLINE float near_exp2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return __builtin_exp2f(x);
#endif
}

// As vector_normal.h has it for float: Phi(-a) = e^(-a^2/2) R(a) with a = |x|. The exponential is lifted by 2^100, and
// R, the polynomial over a + 4.25 in t = (a - 4.25)/(a + 4.25) (minimax on [0, 15], relative error 2^-22.5), by 2^-100.
struct HalfTail {
  float a, gaussian, ratio;
  WENGERT_INLINE explicit HalfTail(float x) {
    const float far = x < 0.0f ? -x : x;
    a = far < 15.0f ? far : 15.0f;
    gaussian = near_exp2(madd(a * -0.72134752f, a, 100.0f));
    const float u = near_reciprocal(a + 4.25f), t = madd(a + a, u, -1.0f);
    float p = 0x1.14285cp-109f;
    p = madd(p, t, -0x1.102bbcp-110f);
    p = madd(p, t, -0x1.3d92bep-106f);
    p = madd(p, t, 0x1.5d9494p-104f);
    p = madd(p, t, -0x1.c39a96p-103f);
    p = madd(p, t, 0x1.ac4234p-102f);
    p = madd(p, t, -0x1.40110ap-101f);
    p = madd(p, t, 0x1.84e44ep-101f);
    ratio = u * p;
  }
};

template <>
struct HalfFunction<op::gelu> {
  WENGERT_INLINE static float apply(float x) {
    const HalfTail tail(x);
    return madd(-tail.a, tail.gaussian * tail.ratio, x < 0.0f ? 0.0f : x);  // NaN is in the last term
  }
};
template <>
struct HalfFunction<op::gelu_slope> {
  WENGERT_INLINE static float apply(float x) {
    constexpr float kPeak = 0.39894228040143267794f * 0x1p-100f;  // of the density
    const HalfTail tail(x);
    const float left = tail.gaussian * madd(tail.a, -kPeak, tail.ratio), y = x > 0.0f ? 1.0f - left : left;
    return x == x ? y : x;
  }
};

}  // namespace wengert::WENGERT_ISA_NAMESPACE
