// Reading and writing at indices. Scratch memory is the heap's, not the pool's: kernels may run without the
// GIL.
#pragma once
#include "indices.h"

namespace wengert {

// Whole slices. x is outer × size × inner, slices are outer × count × inner, everything packed; index has
// `count` entries. `put` leaves the last of several writers, `add` first zeroes x and adds in the order of
// the index.
void take_slices(void* slices, const void* x, const int64_t* index, int64_t count, AxisExtents e, int64_t element);
void put_slices(void* x, const void* slices, const int64_t* index, int64_t count, AxisExtents e, int64_t element);
void add_slices(DType dtype, void* x, const void* slices, const int64_t* index, int64_t count, AxisExtents e);

// Single elements: indices and elements are both outer × count × inner. `add` adds to a copy of `base`, or to zeros if
// that is null, in the order of the index.
void take_along(void* elements, const void* x, const Indices& indices, int64_t count, AxisExtents e, int64_t element);
void put_along(void* x, const void* elements, const Indices& indices, int64_t count, AxisExtents e, int64_t element);
void add_along(DType dtype, void* x, const void* base, const void* elements, const Indices& indices, int64_t count,
               AxisExtents e);

// y, packed, is zeroed; then x is added at offset + Σ i·strides, element by element, where positions may
// meet.
void add_strided(DType dtype, void* y, int64_t y_size, const int64_t* strides, int64_t offset, const Value* x);

}  // namespace wengert
