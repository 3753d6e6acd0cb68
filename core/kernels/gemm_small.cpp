#include "gemm_small.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace wengert {

namespace {

// panel[k × strip] = the first `columns` columns of b, whatever its strides.
template <class T, int Strip>
inline void pack_panel(T* panel, const T* b, int64_t k, int64_t columns, int64_t b_row, int64_t b_col) {
  int64_t p = 0;
  if (b_col == 1 && columns == Strip) {
    for (; p < k; ++p) std::memcpy(panel + p * Strip, b + p * b_row, Strip * sizeof(T));
    return;
  }
#if defined(__x86_64__)
  if (b_row == 1) {  // b is transposed: four by four (two by two) in registers
    if constexpr (sizeof(T) == 4) {
      for (; columns >= 4 && p + 4 <= k; p += 4) {
        for (int64_t next = 0; next < columns; next += 4) {
          const int64_t j = std::min(next, columns - 4);  // the last four may overlap with those before
          const float* s = b + j * b_col + p;
          __m128 r0 = _mm_loadu_ps(s), r1 = _mm_loadu_ps(s + b_col);
          __m128 r2 = _mm_loadu_ps(s + 2 * b_col), r3 = _mm_loadu_ps(s + 3 * b_col);
          _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
          float* d = panel + p * Strip + j;
          _mm_storeu_ps(d, r0);
          _mm_storeu_ps(d + Strip, r1);
          _mm_storeu_ps(d + 2 * Strip, r2);
          _mm_storeu_ps(d + 3 * Strip, r3);
        }
      }
    } else {
      for (; p + 2 <= k; p += 2) {
        int64_t j = 0;
        for (; j + 2 <= columns; j += 2) {
          const __m128d r0 = _mm_loadu_pd(b + j * b_col + p), r1 = _mm_loadu_pd(b + (j + 1) * b_col + p);
          _mm_store_pd(panel + p * Strip + j, _mm_unpacklo_pd(r0, r1));
          _mm_store_pd(panel + (p + 1) * Strip + j, _mm_unpackhi_pd(r0, r1));
        }
        for (; j < columns; ++j) {
          for (int q = 0; q < 2; ++q) panel[(p + q) * Strip + j] = b[j * b_col + p + q];
        }
      }
    }
  }
#endif
  for (; p < k; ++p) {
    for (int64_t j = 0; j < columns; ++j) panel[p * Strip + j] = b[p * b_row + j * b_col];
  }
}

// Loops over registers: an array of vectors is in registers only if every index is known.
#define UNROLL _Pragma("GCC unroll 16")

namespace plain {

// 16-byte vectors of the compiler, which every machine has. A "mask" is the number of lanes.
template <class Element>
struct Lanes {
  using T = Element;
  using Mask = int64_t;
  using Vec [[gnu::vector_size(16)]] = Element;
  static constexpr int kWidth = 16 / sizeof(T), kRows = 4;
  static Vec zero() { return Vec{}; }
  static Vec load(const T* p) {
    Vec v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  static Vec load_masked(const T* p, Mask lanes) {
    Vec v{};
    for (int i = 0; i < lanes; ++i) v[i] = p[i];
    return v;
  }
  static void store(T* p, Vec v) { std::memcpy(p, &v, sizeof(v)); }
  static void store_masked(T* p, Mask lanes, Vec v) {
    for (int i = 0; i < lanes; ++i) p[i] = v[i];
  }
  static Vec broadcast(const T* p) { return Vec{} + *p; }
  static Vec multiply_add(Vec x, Vec y, Vec z) { return x * y + z; }
  static Mask mask(int64_t lanes) { return lanes; }
  static void pack(T* panel, const T* b, int64_t k, int64_t columns, int64_t b_row, int64_t b_col) {
    pack_panel<T, 2 * kWidth>(panel, b, k, columns, b_row, b_col);
  }
};
using F32 = Lanes<float>;
using F64 = Lanes<double>;

#include "gemm_small.inc"

}  // namespace plain

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace avx2 {

alignas(32) constexpr int32_t kMask32[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
alignas(32) constexpr int64_t kMask64[8] = {-1, -1, -1, -1};

struct F32 {
  using T = float;
  using Mask = __m256i;
  using Vec = __m256;
  static constexpr int kWidth = 8, kRows = 6;
  static Vec zero() { return _mm256_setzero_ps(); }
  static Vec load(const T* p) { return _mm256_loadu_ps(p); }
  static Vec load_masked(const T* p, Mask m) { return _mm256_maskload_ps(p, m); }
  static void store(T* p, Vec v) { _mm256_storeu_ps(p, v); }
  static void store_masked(T* p, Mask m, Vec v) { _mm256_maskstore_ps(p, m, v); }
  static Vec broadcast(const T* p) { return _mm256_broadcast_ss(p); }
  static Vec multiply_add(Vec x, Vec y, Vec z) { return _mm256_fmadd_ps(x, y, z); }
  static Mask mask(int64_t lanes) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMask32 + 8 - lanes)); }
  static void pack(T* panel, const T* b, int64_t k, int64_t columns, int64_t b_row, int64_t b_col) {
    pack_panel<T, 16>(panel, b, k, columns, b_row, b_col);
  }
};

struct F64 {
  using T = double;
  using Mask = __m256i;
  using Vec = __m256d;
  static constexpr int kWidth = 4, kRows = 6;
  static Vec zero() { return _mm256_setzero_pd(); }
  static Vec load(const T* p) { return _mm256_loadu_pd(p); }
  static Vec load_masked(const T* p, Mask m) { return _mm256_maskload_pd(p, m); }
  static void store(T* p, Vec v) { _mm256_storeu_pd(p, v); }
  static void store_masked(T* p, Mask m, Vec v) { _mm256_maskstore_pd(p, m, v); }
  static Vec broadcast(const T* p) { return _mm256_broadcast_sd(p); }
  static Vec multiply_add(Vec x, Vec y, Vec z) { return _mm256_fmadd_pd(x, y, z); }
  static Mask mask(int64_t lanes) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMask64 + 4 - lanes)); }
  static void pack(T* panel, const T* b, int64_t k, int64_t columns, int64_t b_row, int64_t b_col) {
    pack_panel<T, 8>(panel, b, k, columns, b_row, b_col);
  }
};

#include "gemm_small.inc"

}  // namespace avx2

#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl")
#endif

namespace avx512 {

// 16 × 16 numbers, read by whole lines: with powers of two between rows, lines that are read in parts leave the nearest
// cache before their next part.
inline void transpose_16(const float* from, int64_t step, float* to, int64_t to_step) {
  __m512 a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_ps(from + i * step);
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int h = 0; h < 2; ++h) {
      const __m512d x = _mm512_castps_pd(b[i + h]), y = _mm512_castps_pd(b[i + h + 2]);
      a[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
      a[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int h = 0; h < 16; h += 8) {
      b[i + h] = _mm512_shuffle_f32x4(a[i + h], a[i + h + 4], 0x88);
      b[i + h + 4] = _mm512_shuffle_f32x4(a[i + h], a[i + h + 4], 0xdd);
    }
  }
  for (int i = 0; i < 8; ++i) {
    _mm512_storeu_ps(to + i * to_step, _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88));
    _mm512_storeu_ps(to + (i + 8) * to_step, _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd));
  }
}

// 8 × 8 numbers.
inline void transpose_8(const float* from, int64_t step, float* to, int64_t to_step) {
  __m256 a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_ps(from + i * step);
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int h = 0; h < 2; ++h) {
      a[i + 2 * h] = _mm256_shuffle_ps(b[i + h], b[i + h + 2], 0x44);
      a[i + 2 * h + 1] = _mm256_shuffle_ps(b[i + h], b[i + h + 2], 0xee);
    }
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_step, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_step, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
  }
}

struct F32 {
  using T = float;
  using Mask = __mmask16;
  using Vec = __m512;
  static constexpr int kWidth = 16, kRows = 8;
  static Vec zero() { return _mm512_setzero_ps(); }
  static Vec load(const T* p) { return _mm512_loadu_ps(p); }
  static Vec load_masked(const T* p, Mask m) { return _mm512_maskz_loadu_ps(m, p); }
  static void store(T* p, Vec v) { _mm512_storeu_ps(p, v); }
  static void store_masked(T* p, Mask m, Vec v) { _mm512_mask_storeu_ps(p, m, v); }
  static Vec broadcast(const T* p) { return _mm512_set1_ps(*p); }
  static Vec multiply_add(Vec x, Vec y, Vec z) { return _mm512_fmadd_ps(x, y, z); }
  static Mask mask(int64_t lanes) { return static_cast<Mask>((1u << lanes) - 1); }
  static void pack(T* panel, const T* b, int64_t k, int64_t columns, int64_t b_row, int64_t b_col) {
    int64_t p = 0;
    if (b_row == 1 && columns == 32) {
      for (; p + 16 <= k; p += 16) {
        transpose_16(b + p, b_col, panel + p * 32, 32);
        transpose_16(b + p + 16 * b_col, b_col, panel + p * 32 + 16, 32);
      }
    }
    pack_panel<T, 32>(panel + p * 32, b + p * b_row, k - p, columns, b_row, b_col);
  }
  static void pack_rows(T* panel, const T* a, int64_t k, int64_t rows, int64_t a_row, int64_t a_col) {
    int64_t p = 0;
    if (a_col == 1 && rows == kRows) {
      for (; p + 16 <= k; p += 16) {
        transpose_8(a + p, a_row, panel + p * kRows, kRows);
        transpose_8(a + p + 8, a_row, panel + (p + 8) * kRows, kRows);
      }
    }
    pack_panel<T, kRows>(panel + p * kRows, a + p * a_col, k - p, rows, a_col, a_row);
  }
};

struct F64 {
  using T = double;
  using Mask = __mmask8;
  using Vec = __m512d;
  static constexpr int kWidth = 8, kRows = 8;
  static Vec zero() { return _mm512_setzero_pd(); }
  static Vec load(const T* p) { return _mm512_loadu_pd(p); }
  static Vec load_masked(const T* p, Mask m) { return _mm512_maskz_loadu_pd(m, p); }
  static void store(T* p, Vec v) { _mm512_storeu_pd(p, v); }
  static void store_masked(T* p, Mask m, Vec v) { _mm512_mask_storeu_pd(p, m, v); }
  static Vec broadcast(const T* p) { return _mm512_set1_pd(*p); }
  static Vec multiply_add(Vec x, Vec y, Vec z) { return _mm512_fmadd_pd(x, y, z); }
  static Mask mask(int64_t lanes) { return static_cast<Mask>((1u << lanes) - 1); }
  static void pack(T* panel, const T* b, int64_t k, int64_t columns, int64_t b_row, int64_t b_col) {
    pack_panel<T, 16>(panel, b, k, columns, b_row, b_col);
  }
  static void pack_rows(T* panel, const T* a, int64_t k, int64_t rows, int64_t a_row, int64_t a_col) {
    pack_panel<T, kRows>(panel, a, k, rows, a_col, a_row);
  }
};

#include "gemm_small.inc"

}  // namespace avx512

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#undef UNROLL

// The same override as for the vector kernels.
bool allows(std::string_view level) {
  const char* isa = std::getenv("WENGERT_ISA");
  return !isa || !*isa || std::string_view(isa) >= level;
}

bool use_avx2() {
#if defined(__x86_64__)
  return allows("v3") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

bool use_avx512() {
#if defined(__x86_64__)
  return allows("v4") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

}  // namespace

#if defined(__x86_64__)
const SmallGemmFn<float> small_gemm_f32 = use_avx512() ? avx512::gemm<avx512::F32>
                                          : use_avx2() ? avx2::gemm<avx2::F32>
                                                       : plain::gemm<plain::F32>;
const SmallGemmFn<double> small_gemm_f64 = use_avx512() ? avx512::gemm<avx512::F64>
                                           : use_avx2() ? avx2::gemm<avx2::F64>
                                                        : plain::gemm<plain::F64>;
const PackedGemmFn<float> packed_gemm_f32 = use_avx512() ? avx512::packed_gemm<avx512::F32> : nullptr;
const PackedGemmFn<double> packed_gemm_f64 = use_avx512() ? avx512::packed_gemm<avx512::F64> : nullptr;
#else
const SmallGemmFn<float> small_gemm_f32 = plain::gemm<plain::F32>;
const SmallGemmFn<double> small_gemm_f64 = plain::gemm<plain::F64>;
const PackedGemmFn<float> packed_gemm_f32 = nullptr;
const PackedGemmFn<double> packed_gemm_f64 = nullptr;
#endif

}  // namespace wengert
