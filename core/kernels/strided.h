// Loops over memory with any strides.
#pragma once
#include <cstdint>

#include "../shape.h"

namespace wengert {

// dst[i, j, ...] = src[i, j, ...]; strides in elements of `element` bytes (1, 2, 4, 8 or 16); a source stride
// may be 0 or negative. Source and destination do not overlap. Large copies run on the thread pool.
void copy_strided(void* dst, const int64_t* dst_strides, const void* src, const int64_t* src_strides, int ndim,
                  const int64_t* shape, int64_t element);

// The same into packed memory: dst holds the elements in row-major order.
void copy_packed(void* dst, const void* src, const int64_t* src_strides, int ndim, const int64_t* shape,
                 int64_t element);

// Elements [start, start + n) of a strided array in row-major order, packed into dst.
void gather_block(void* dst, const void* src, const int64_t* strides, int ndim, const int64_t* shape, int64_t element,
                  int64_t start, int64_t n);

void fill(void* dst, const void* one, int64_t element, int64_t n);

}  // namespace wengert
