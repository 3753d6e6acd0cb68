// Products too small to be worth a BLAS call, whose fixed cost is about 100 ns, and tiles of products whose operands
// stay in the nearest cache, which BLAS would pack first: a register-blocked kernel that takes any strides. Built for
// several instruction sets from gemm_small.inc and chosen once. With AVX-512 it computes larger tiles as well, on
// operands that are packed by whole cache lines.
#pragma once
#include <cstdint>

namespace wengert {

// The kernel keeps a packed panel of b on its stack; k must not exceed this.
inline constexpr int64_t kSmallMaxK = 512;

// c[m×n] (row stride ldc, unit column stride) = a[m×k] · b[k×n]; strides in elements; m, n, k >= 1.
template <class T>
using SmallGemmFn = void (*)(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b,
                             int64_t b_row, int64_t b_col, T* c, int64_t ldc);

extern const SmallGemmFn<float> small_gemm_f32;
extern const SmallGemmFn<double> small_gemm_f64;

// The same for tiles of any depth, with both operands packed. `rows` is memory for packed_rows(m, k) elements. Null
// where BLAS is as fast: without AVX-512.
template <class T>
using PackedGemmFn = void (*)(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b,
                              int64_t b_row, int64_t b_col, T* c, int64_t ldc, T* rows);
constexpr int64_t packed_rows(int64_t m, int64_t k) { return (m + 7) / 8 * 8 * (k < kSmallMaxK ? k : kSmallMaxK); }

extern const PackedGemmFn<float> packed_gemm_f32;
extern const PackedGemmFn<double> packed_gemm_f64;

}  // namespace wengert
