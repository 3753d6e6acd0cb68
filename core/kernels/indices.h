// Indices that are data: packed, checked, found. Scratch memory is the heap's, not the pool's: kernels may run without
// the GIL.
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

// Indices into an axis of `size` elements. They are checked, and negative ones wrapped, when they are asked for: in
// blocks, whoever uses them finds them in the cache. One out of range throws an index error that names the op and the
// first offender, whichever block was asked for.
class Indices {
 public:
  static constexpr int64_t kBlock = 512;

  Indices(const char* op, const Value* index, int axis, int64_t size);
  const int64_t* all();
  // Calls f(index, from, n) for the n indices from `first`, which are those of a line, with `from` counted in the line.
  // It works until it meets one that is not in [0, size), and returns how many it did; the rest it gets again, wrapped.
  template <class F>
  void in_line(int64_t first, int64_t n, F&& f) const {
    int64_t done = f(data_ + first, int64_t{0}, n);
    if (done == n) return;
    int64_t room[kBlock];
    for (; done < n; done += kBlock) {
      const int64_t count = n - done < kBlock ? n - done : kBlock;
      f(wrapped(data_ + (first + done), count, room), done, count);
    }
  }
  // n indices from `first`: where they lie or, if some are negative, in `room`, which has place for n.
  const int64_t* block(int64_t first, int64_t n, int64_t* room) const {
    const int64_t* index = data_ + first;
    return plain(index, n) ? index : wrapped(index, n, room);
  }

 private:
  // Whether all are in [0, size). One sign bit tells it of all, without a branch.
  bool plain(const int64_t* index, int64_t n) const {
    const uint64_t last = static_cast<uint64_t>(size_ - 1);
    uint64_t signs = 0;
    for (int64_t p = 0; p < n; ++p) signs |= static_cast<uint64_t>(index[p]) | (last - static_cast<uint64_t>(index[p]));
    return static_cast<int64_t>(signs) >= 0;
  }
  const int64_t* wrapped(const int64_t* index, int64_t n, int64_t* room) const;
  [[noreturn]] void refuse() const;

  const char* op_;
  int axis_;
  int64_t size_, count_;
  Packed packed_;
  const int64_t* data_;
  std::vector<int64_t> wrapped_;
};

// An array seen around one axis: outer × size × inner.
struct AxisExtents {
  int64_t outer, size, inner;
};
AxisExtents around_axis(const int64_t* shape, int ndim, int axis);

// last[p] = whether no later position holds the same index.
void mark_last(bool* last, const int64_t* index, int64_t count, int64_t size);

// The positions of the non-zero elements, in row-major order: an int64 value of n × ndim. Its shape depends
// on data, so this is not an op.
Value* nonzero_indices(const Value* x);

// int64 arrays of one shape that index axes of these sizes, as one array of indices into these axes as one. Null where
// one of them is out of range.
Value* linear_index(const std::vector<const Value*>& indices, const std::vector<int64_t>& sizes);

}  // namespace wengert
