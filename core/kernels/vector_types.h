// The storage types of the kernels and the conversion of 16-bit floating numbers, per instruction set.
#pragma once
#include <cstdint>
#include <type_traits>
#include <utility>

#include "../dtype.h"
#include "vector_math.h"
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace wengert::WENGERT_ISA_NAMESPACE {

// A complex number of our own: std::complex's operators are shared templates, and its product is not a vector
// loop.
template <class T>
struct Complex {
  T re, im;
};

template <class T>
inline constexpr bool kIsComplex = false;
template <class T>
inline constexpr bool kIsComplex<Complex<T>> = true;

template <class T>
concept Float = std::is_floating_point_v<T>;
template <class T>
concept Integer = std::is_integral_v<T>;
template <class T>
concept Real = Float<T> || Integer<T>;
template <class T>
concept ComplexNumber = kIsComplex<T>;
template <class T>
concept HalfNumber = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;

// The unsigned type that integers are computed in: it wraps, and it is not promoted to a signed int that
// overflows.
template <class T>
using Unsigned = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <Integer T, class U>
WENGERT_INLINE T wrap(U u) {
  return static_cast<T>(u);
}

template <DType D>
struct StorageOf;
#define WENGERT_STORAGE(dtype, ...) \
  template <>                       \
  struct StorageOf<DType::dtype> {  \
    using type = __VA_ARGS__;       \
  };
WENGERT_STORAGE(Bool, uint8_t)  // 0 or 1
WENGERT_STORAGE(Int8, int8_t)
WENGERT_STORAGE(Int16, int16_t)
WENGERT_STORAGE(Int32, int32_t)
WENGERT_STORAGE(Int64, int64_t)
WENGERT_STORAGE(UInt8, uint8_t)
WENGERT_STORAGE(UInt16, uint16_t)
WENGERT_STORAGE(UInt32, uint32_t)
WENGERT_STORAGE(UInt64, uint64_t)
WENGERT_STORAGE(Float16, Half)
WENGERT_STORAGE(BFloat16, BFloat)
WENGERT_STORAGE(Float32, float)
WENGERT_STORAGE(Float64, double)
WENGERT_STORAGE(Complex64, Complex<float>)
WENGERT_STORAGE(Complex128, Complex<double>)
#undef WENGERT_STORAGE
template <DType D>
using Storage = typename StorageOf<D>::type;

// Calls f(std::integral_constant<DType, D>) for every dtype.
template <class F>
constexpr void for_each_dtype(F f) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    (f(std::integral_constant<DType, static_cast<DType>(I)>{}), ...);
  }(std::make_index_sequence<kNumDTypes>{});
}

// 16-bit floating numbers are converted in blocks that stay in the first-level cache.
inline constexpr int64_t kHalfBlock = 256;

// The scalar conversions without F16C: the exponent is moved by a multiplication, which also normalises
// subnormal numbers, and back by an addition whose rounding is the one wanted (F. Giesen, "float->half
// variants").
WENGERT_INLINE float widen(Half h) {
#if defined(__CUDA_ARCH__)
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits));
  return f;
#elif defined(__F16C__)
  return _cvtsh_ss(h.bits);
#else
  const uint32_t b = static_cast<uint32_t>(h.bits & 0x7fff) << 13;
  const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(b) * 0x1p112f);
  const uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000) << 16;
  return std::bit_cast<float>((b >= 0x0f800000u ? b | 0x7f800000u : finite) | sign);
#endif
}
WENGERT_INLINE float widen(BFloat b) { return std::bit_cast<float>(static_cast<uint32_t>(b.bits) << 16); }

// A GPU has an instruction for two numbers, which is faster than that for one, and whose NaN is always the same.
template <HalfNumber H>
WENGERT_INLINE H narrow(float f) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t two;
  if constexpr (std::is_same_v<H, BFloat>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(0.0f), "f"(f));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(0.0f), "f"(f));
  }
  return {static_cast<uint16_t>(two)};
#else
  const uint32_t u = std::bit_cast<uint32_t>(f), m = u & 0x7fffffffu;
  if constexpr (std::is_same_v<H, BFloat>) {
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16, nan = (u >> 16) | 0x40;
    return {static_cast<uint16_t>(m > 0x7f800000u ? nan : rounded)};
  } else {
#ifdef __F16C__
    return {_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT)};
#else
    const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(m) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (m - (112u << 23) + 0xfffu + ((m >> 13) & 1)) >> 13;
    const uint32_t huge = m > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const uint32_t h = m < (113u << 23) ? tiny : m < (143u << 23) ? normal : huge;
    return {static_cast<uint16_t>(h | ((u >> 16) & 0x8000u))};
#endif
  }
#endif
}

template <HalfNumber H>
inline void widen(float* out, const H* in, int64_t n) {
  int64_t i = 0;
#ifdef __F16C__
  if constexpr (std::is_same_v<H, Half>) {
    for (; i + 8 <= n; i += 8) {
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
    }
  }
#endif
#pragma GCC ivdep
  for (; i < n; ++i) out[i] = widen(in[i]);
}

template <HalfNumber H>
inline void narrow(H* out, const float* in, int64_t n) {
  int64_t i = 0;
#ifdef __F16C__
  if constexpr (std::is_same_v<H, Half>) {
    for (; i + 8 <= n; i += 8) {
      const __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), h);
    }
  }
#endif
#pragma GCC ivdep
  for (; i < n; ++i) out[i] = narrow<H>(in[i]);
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
