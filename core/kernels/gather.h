// Reading and writing at indices. Scratch memory is the heap's, not the pool's: kernels may run without the
// GIL.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "../value.h"

namespace wengert {

// The elements of a value in row-major order: its own memory where that is packed already, else a copy.
class Packed {
 public:
  explicit Packed(const Value* v);
  const char* data() const { return data_; }

 private:
  const char* data_;
  std::unique_ptr<char[]> copy_;
};

// Indices into an axis of `size` elements, all checked, negative ones wrapped. Throws an index error that
// names the op and the first offender.
class Indices {
 public:
  Indices(const char* op, const Value* index, int axis, int64_t size);
  const int64_t* data() const { return data_; }

 private:
  Packed packed_;
  const int64_t* data_;
  std::vector<int64_t> wrapped_;
};

// An array seen around one axis: outer × size × inner.
struct AxisExtents {
  int64_t outer, size, inner;
};
AxisExtents around_axis(const int64_t* shape, int ndim, int axis);

// Whole slices. x is outer × size × inner, slices are outer × count × inner, everything packed; index has
// `count` entries. `put` leaves the last of several writers, `add` first zeroes x and adds in the order of
// the index.
void take_slices(void* slices, const void* x, const int64_t* index, int64_t count, AxisExtents e, int64_t element);
void put_slices(void* x, const void* slices, const int64_t* index, int64_t count, AxisExtents e, int64_t element);
void add_slices(DType dtype, void* x, const void* slices, const int64_t* index, int64_t count, AxisExtents e);

// Single elements: index and elements are both outer × count × inner.
void take_along(void* elements, const void* x, const int64_t* index, int64_t count, AxisExtents e, int64_t element);
void put_along(void* x, const void* elements, const int64_t* index, int64_t count, AxisExtents e, int64_t element);
void add_along(DType dtype, void* x, const void* elements, const int64_t* index, int64_t count, AxisExtents e);

// y, packed, is zeroed; then x is added at offset + Σ i·strides, element by element, where positions may
// meet.
void add_strided(DType dtype, void* y, int64_t y_size, const int64_t* strides, int64_t offset, const Value* x);

// last[p] = whether no later position holds the same index.
void mark_last(bool* last, const int64_t* index, int64_t count, int64_t size);

// The positions of the non-zero elements, in row-major order: an int64 value of n × ndim. Its shape depends
// on data, so this is not an op.
Value* nonzero_indices(const Value* x);

}  // namespace wengert
