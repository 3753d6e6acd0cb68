// Matrix products on OpenBLAS, held at one thread, and on kernels for small tiles and, with AVX-512, for large ones.
// Tiles depend on shapes and strides only: the same bits for any number of threads.
#pragma once
#include <cstdint>

#include "../dtype.h"

namespace wengert {

// One matrix operand: `row` and `col` are strides in elements. Any strides are accepted; those with one stride
// equal to 1 (and the other at least the extent) need no copy.
struct MatrixView {
  const void* data;
  int64_t row, col;
};

// c[m×n] (row stride ldc, unit column stride) = a[m×k] · b[k×n]. float32, float64, complex64, complex128; float16 and
// bfloat16 are computed in float32 and rounded once. Extents may be zero; k = 0 gives zeros.
void gemm(DType dtype, int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, void* c, int64_t ldc);

// `batch` independent products; the pointers of batch i are given by offsets in elements.
void gemm_batched(DType dtype, int64_t batch, const int64_t* a_offset, const int64_t* b_offset, const int64_t* c_offset,
                  int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, void* c, int64_t ldc);

// One product on the calling thread, for kernels that have tiles of their own: c = a · b, or c += a · b if `add`.
// float32 and float64; of each operand one stride is 1 and the other at least the extent along it.
void gemm_tile(DType dtype, int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, void* c, int64_t ldc,
               bool add);

void init_blas();  // one thread; called at import

}  // namespace wengert
