#include "indices.h"

#include <algorithm>
#include <atomic>

#include "../threads.h"
#include "strided.h"
#include "vector.h"

namespace wengert {

namespace {

constexpr int64_t kTileElements = 16384;

int64_t count_set(const bool* set, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += set[i];
  return count;
}

// The positions of the `count` true elements, plus `first`. No branch asks for an element: a random mask would be
// guessed wrong every other time.
void write_set(int64_t* to, const bool* set, int64_t count, int64_t first) {
  for (int64_t found = 0, i = 0; found < count; ++i) {
    to[found] = first + i;
    found += set[i];
  }
}

// Flat positions as one index for each axis.
void unravel(int64_t* rows, const int64_t* flat, int64_t n, const Value* x) {
  for (int64_t k = 0; k < n; ++k) {
    int64_t at = flat[k], *row = rows + k * x->ndim;
    for (int i = x->ndim - 1; i > 0; at /= x->shape[i--]) row[i] = at % x->shape[i];
    if (x->ndim > 0) row[0] = at;
  }
}

}  // namespace

Packed::Packed(const Value* v) : data_(v->data) {
  if (v->contiguous) return;
  copy_ = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(v->bytes()));
  copy_packed(copy_.get(), v->data, v->strides, v->ndim, v->shape, size_of(v->dtype));
  data_ = copy_.get();
}

Indices::Indices(const char* op, const Value* index, int axis, int64_t size)
    : op_(op),
      axis_(axis),
      size_(size),
      count_(index->size),
      packed_(index),
      data_(reinterpret_cast<const int64_t*>(packed_.data())) {}

const int64_t* Indices::all() {
  if (plain(data_, count_)) return data_;
  wrapped_.resize(static_cast<size_t>(count_));
  return wrapped(data_, count_, wrapped_.data());
}

const int64_t* Indices::wrapped(const int64_t* index, int64_t n, int64_t* room) const {
  for (int64_t p = 0; p < n; ++p) {
    if (index[p] < -size_ || index[p] >= size_) refuse();
    room[p] = index[p] + (index[p] < 0 ? size_ : 0);
  }
  return room;
}

void Indices::refuse() const {
  const int64_t* bad = std::find_if(data_, data_ + count_, [&](int64_t i) { return i < -size_ || i >= size_; });
  fail(ErrorKind::index, op_,
       "index " + std::to_string(*bad) + " is out of range for axis " + std::to_string(axis_) + " with size " +
           std::to_string(size_));
}

AxisExtents around_axis(const int64_t* shape, int ndim, int axis) {
  AxisExtents e{1, shape[axis], 1};
  for (int i = 0; i < axis; ++i) e.outer *= shape[i];
  for (int i = axis + 1; i < ndim; ++i) e.inner *= shape[i];
  return e;
}

void mark_last(bool* last, const int64_t* index, int64_t count, int64_t size) {
  std::vector<bool> seen(static_cast<size_t>(size));
  for (int64_t p = count - 1; p >= 0; --p) {
    last[p] = !seen[index[p]];
    seen[index[p]] = true;
  }
}

Value* nonzero_indices(const Value* x) {
  const Packed packed(x);
  const int64_t size = x->size, element = size_of(x->dtype), tiles = (size + kTileElements - 1) / kTileElements;
  const CastFn cast = kernels().cast[static_cast<int>(x->dtype)][static_cast<int>(DType::Bool)];
  const auto set = std::make_unique_for_overwrite<bool[]>(static_cast<size_t>(size));
  std::vector<int64_t> starts(static_cast<size_t>(tiles) + 1, 0);
  const auto length = [&](int64_t tile) { return std::min(kTileElements, size - tile * kTileElements); };
  parallel_for(tiles, [&](int64_t tile) {
    const int64_t first = tile * kTileElements;
    cast(set.get() + first, packed.data() + first * element, length(tile));
    starts[tile + 1] = count_set(set.get() + first, length(tile));
  });
  for (int64_t t = 0; t < tiles; ++t) starts[t + 1] += starts[t];
  Value* y = empty(DType::Int64, {Dim(starts[tiles]), Dim(x->ndim)});
  int64_t* rows = reinterpret_cast<int64_t*>(y->data);
  parallel_for(tiles, [&](int64_t tile) {
    const int64_t first = tile * kTileElements, n = starts[tile + 1] - starts[tile];
    if (x->ndim == 1) return write_set(rows + starts[tile], set.get() + first, n, first);
    std::vector<int64_t> flat(static_cast<size_t>(n));
    write_set(flat.data(), set.get() + first, n, first);
    unravel(rows + starts[tile] * x->ndim, flat.data(), n, x);
  });
  return y;
}

Value* linear_index(const std::vector<const Value*>& indices, const std::vector<int64_t>& sizes) {
  std::vector<Packed> packed(indices.begin(), indices.end());
  Ref y(empty_like(indices[0], DType::Int64));
  int64_t* linear = reinterpret_cast<int64_t*>(y->data);
  const int64_t size = y->size, tiles = (size + kTileElements - 1) / kTileElements;
  std::atomic<bool> inside = true;
  parallel_for(tiles, [&](int64_t tile) {
    const int64_t first = tile * kTileElements, end = std::min(first + kTileElements, size);
    bool fits = true;
    for (size_t k = 0; k < sizes.size(); ++k) {
      const int64_t n = sizes[k];
      const int64_t* index = reinterpret_cast<const int64_t*>(packed[k].data());
      for (int64_t p = first; p < end; ++p) {
        const int64_t i = index[p] < 0 ? index[p] + n : index[p];
        fits &= 0 <= i && i < n;
        linear[p] = k == 0 ? i : static_cast<int64_t>(static_cast<uint64_t>(linear[p]) * n + i);
      }
    }
    if (!fits) inside = false;
  });
  return inside ? y.take() : nullptr;
}

}  // namespace wengert
