// Vectors of float and double of the instruction set that is compiled for, with the few operations that register tiles
// need: whole and partial loads and stores, broadcast, fused multiply-add, and a transpose of four rows of four.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace wengert::WENGERT_ISA_NAMESPACE {

#define WENGERT_LANE [[gnu::always_inline]] static inline

// What every set has in common: transposing in the compiler's own 16-byte vectors.
template <class Element>
struct LanesBase {
  using T = Element;
  // to[j * to_row + i] = from[i * from_row + j] for i, j < 4
  WENGERT_LANE void transpose4(T* to, int64_t to_row, const T* from, int64_t from_row) {
#if defined(__SSE2__)
    if constexpr (sizeof(T) == 4) {
      __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_row);
      __m128 c = _mm_loadu_ps(from + 2 * from_row), d = _mm_loadu_ps(from + 3 * from_row);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      _mm_storeu_ps(to, a);
      _mm_storeu_ps(to + to_row, b);
      _mm_storeu_ps(to + 2 * to_row, c);
      _mm_storeu_ps(to + 3 * to_row, d);
      return;
    }
#endif
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 4; ++i) to[j * to_row + i] = from[i * from_row + j];
    }
  }
};

#if defined(__AVX512F__)

struct F32 : LanesBase<float> {
  using Vec = __m512;
  static constexpr int kWidth = 16;
  WENGERT_LANE __mmask16 first(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
  WENGERT_LANE Vec zero() { return _mm512_setzero_ps(); }
  WENGERT_LANE Vec load(const T* p) { return _mm512_loadu_ps(p); }
  WENGERT_LANE Vec load_first(const T* p, int64_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
  WENGERT_LANE void store(T* p, Vec v) { _mm512_storeu_ps(p, v); }
  WENGERT_LANE void store_first(T* p, int64_t n, Vec v) { _mm512_mask_storeu_ps(p, first(n), v); }
  WENGERT_LANE Vec broadcast(const T* p) { return _mm512_set1_ps(*p); }
  WENGERT_LANE Vec add(Vec x, Vec y) { return _mm512_add_ps(x, y); }
  WENGERT_LANE Vec multiply_add(Vec x, Vec y, Vec z) { return _mm512_fmadd_ps(x, y, z); }
};

struct F64 : LanesBase<double> {
  using Vec = __m512d;
  static constexpr int kWidth = 8;
  WENGERT_LANE __mmask8 first(int64_t n) { return static_cast<__mmask8>((1u << n) - 1); }
  WENGERT_LANE Vec zero() { return _mm512_setzero_pd(); }
  WENGERT_LANE Vec load(const T* p) { return _mm512_loadu_pd(p); }
  WENGERT_LANE Vec load_first(const T* p, int64_t n) { return _mm512_maskz_loadu_pd(first(n), p); }
  WENGERT_LANE void store(T* p, Vec v) { _mm512_storeu_pd(p, v); }
  WENGERT_LANE void store_first(T* p, int64_t n, Vec v) { _mm512_mask_storeu_pd(p, first(n), v); }
  WENGERT_LANE Vec broadcast(const T* p) { return _mm512_set1_pd(*p); }
  WENGERT_LANE Vec add(Vec x, Vec y) { return _mm512_add_pd(x, y); }
  WENGERT_LANE Vec multiply_add(Vec x, Vec y, Vec z) { return _mm512_fmadd_pd(x, y, z); }
};

#elif defined(__AVX2__) && defined(__FMA__)

alignas(64) inline constexpr int32_t kLaneMask32[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
alignas(64) inline constexpr int64_t kLaneMask64[8] = {-1, -1, -1, -1};

struct F32 : LanesBase<float> {
  using Vec = __m256;
  static constexpr int kWidth = 8;
  WENGERT_LANE Vec zero() { return _mm256_setzero_ps(); }
  WENGERT_LANE Vec load(const T* p) { return _mm256_loadu_ps(p); }
  WENGERT_LANE Vec load_first(const T* p, int64_t n) {
    return _mm256_maskload_ps(p, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kLaneMask32 + 8 - n)));
  }
  WENGERT_LANE void store(T* p, Vec v) { _mm256_storeu_ps(p, v); }
  // In pieces: masked stores are slow on many processors.
  WENGERT_LANE void store_first(T* p, int64_t n, Vec v) {
    __m128 low = _mm256_castps256_ps128(v);
    if (n & 4) {
      _mm_storeu_ps(p, low);
      p += 4;
      low = _mm256_extractf128_ps(v, 1);
    }
    if (n & 2) {
      _mm_storel_pi(reinterpret_cast<__m64*>(p), low);
      p += 2;
      low = _mm_movehl_ps(low, low);
    }
    if (n & 1) _mm_store_ss(p, low);
  }
  WENGERT_LANE Vec broadcast(const T* p) { return _mm256_broadcast_ss(p); }
  WENGERT_LANE Vec add(Vec x, Vec y) { return _mm256_add_ps(x, y); }
  WENGERT_LANE Vec multiply_add(Vec x, Vec y, Vec z) { return _mm256_fmadd_ps(x, y, z); }
};

struct F64 : LanesBase<double> {
  using Vec = __m256d;
  static constexpr int kWidth = 4;
  WENGERT_LANE Vec zero() { return _mm256_setzero_pd(); }
  WENGERT_LANE Vec load(const T* p) { return _mm256_loadu_pd(p); }
  WENGERT_LANE Vec load_first(const T* p, int64_t n) {
    return _mm256_maskload_pd(p, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kLaneMask64 + 4 - n)));
  }
  WENGERT_LANE void store(T* p, Vec v) { _mm256_storeu_pd(p, v); }
  WENGERT_LANE void store_first(T* p, int64_t n, Vec v) {
    __m128d low = _mm256_castpd256_pd128(v);
    if (n & 2) {
      _mm_storeu_pd(p, low);
      p += 2;
      low = _mm256_extractf128_pd(v, 1);
    }
    if (n & 1) _mm_store_sd(p, low);
  }
  WENGERT_LANE Vec broadcast(const T* p) { return _mm256_broadcast_sd(p); }
  WENGERT_LANE Vec add(Vec x, Vec y) { return _mm256_add_pd(x, y); }
  WENGERT_LANE Vec multiply_add(Vec x, Vec y, Vec z) { return _mm256_fmadd_pd(x, y, z); }
};

#else

// 16-byte vectors of the compiler, which every machine has.
template <class Element>
struct Lanes16 : LanesBase<Element> {
  using T = Element;
  using Vec [[gnu::vector_size(16)]] = Element;
  static constexpr int kWidth = 16 / sizeof(T);
  WENGERT_LANE Vec zero() { return Vec{}; }
  WENGERT_LANE Vec load(const T* p) {
    Vec v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  // Without a loop, which would go through memory.
  WENGERT_LANE Vec load_first(const T* p, int64_t n) {
    if (n == 0) return Vec{};
    if constexpr (kWidth == 4) {
      if (n == 2) return Vec{p[0], p[1]};
      if (n == 3) return Vec{p[0], p[1], p[2]};
    }
    return Vec{p[0]};
  }
  WENGERT_LANE void store(T* p, Vec v) { std::memcpy(p, &v, sizeof(v)); }
  WENGERT_LANE void store_first(T* p, int64_t n, Vec v) {
    if (n > 0) p[0] = v[0];
    if constexpr (kWidth == 4) {
      if (n > 1) p[1] = v[1];
      if (n > 2) p[2] = v[2];
    }
  }
  WENGERT_LANE Vec broadcast(const T* p) { return Vec{} + *p; }
  WENGERT_LANE Vec add(Vec x, Vec y) { return x + y; }
  WENGERT_LANE Vec multiply_add(Vec x, Vec y, Vec z) { return x * y + z; }
};
using F32 = Lanes16<float>;
using F64 = Lanes16<double>;

#endif

#undef WENGERT_LANE

}  // namespace wengert::WENGERT_ISA_NAMESPACE
