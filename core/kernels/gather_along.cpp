// Single elements at an index of their own along an axis. Indices are checked where they are used.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "../threads.h"
#include "gather.h"
#include "number.h"

namespace wengert {

namespace {

constexpr int64_t kTileElements = 16384;
constexpr int64_t kLanes = 64;  // neighbouring lines that are written together
static_assert(kLanes <= Indices::kBlock);

// The inner extent is cut so that one tile's destinations stay in cache. fn(outer, from, to) per tile.
template <class F>
void for_inner_tiles(AxisExtents e, int64_t count, F&& fn) {
  const int64_t width = std::clamp<int64_t>(kTileElements / std::max<int64_t>(1, e.size), 1, kLanes);
  const int64_t pieces = (e.inner + width - 1) / width, units = e.outer * pieces;
  const int64_t length = std::max<int64_t>(1, std::max(count, e.size) * std::min(width, e.inner));
  const int64_t group = std::max<int64_t>(1, kTileElements / length);
  parallel_for((units + group - 1) / group, [&](int64_t tile) {
    for (int64_t u = tile * group; u < std::min(units, (tile + 1) * group); ++u) {
      const int64_t from = u % pieces * width;
      fn(u / pieces, from, std::min(e.inner, from + width));
    }
  });
}

// Elements along the last axis. These loops check as they go, and return how many they did: all, unless an index is not
// in [0, size).

// Four indices as numbers without a sign. `inside` asks about all with one branch.
struct FourIndices {
  uint64_t a, b, c, d;

  explicit FourIndices(const int64_t* index)
      : a(static_cast<uint64_t>(index[0])),
        b(static_cast<uint64_t>(index[1])),
        c(static_cast<uint64_t>(index[2])),
        d(static_cast<uint64_t>(index[3])) {}
  bool inside(uint64_t size) const {
    const uint64_t last = size - 1, beyond = (last - a) | (last - b) | (last - c) | (last - d);
    return static_cast<int64_t>(a | b | c | d | beyond) >= 0;
  }
  bool equal() const { return a == d && a == b && a == c; }
};

template <class E>
int64_t take_line(E* __restrict to, const E* __restrict line, const int64_t* __restrict index, int64_t n,
                  uint64_t size) {
  int64_t p = 0;
  for (; p + 4 <= n; p += 4) {
    const FourIndices i(index + p);
    if (!i.inside(size)) return p;
    const E w = line[i.a], x = line[i.b], y = line[i.c], z = line[i.d];
    to[p].bits = w.bits;
    to[p + 1].bits = x.bits;
    to[p + 2].bits = y.bits;
    to[p + 3].bits = z.bits;
  }
  for (; p < n; ++p) {
    if (static_cast<uint64_t>(index[p]) >= size) return p;
    to[p].bits = line[index[p]].bits;
  }
  return n;
}

template <class E>
int64_t put_line(E* __restrict line, const E* __restrict x, const int64_t* __restrict index, int64_t n, uint64_t size) {
  for (int64_t p = 0; p < n; ++p) {
    if (static_cast<uint64_t>(index[p]) >= size) return p;
    line[index[p]].bits = x[p].bits;
  }
  return n;
}

template <class S, class T>
S added(S sum, T x) {
  return Number<S>::narrow(Number<S>::widen(sum) + Number<T>::widen(x));
}

// In the order of x. Neighbours often go to one place (a running maximum), where each would wait for the one before to
// reach memory: four of them stay in a register.
template <class S, class T>
int64_t add_line(S* __restrict sums, const T* __restrict x, const int64_t* __restrict index, int64_t n, uint64_t size) {
  int64_t p = 0;
  for (; p + 4 <= n; p += 4) {
    const FourIndices i(index + p);
    if (!i.inside(size)) return p;
    if (i.equal()) {
      sums[i.a] = added(added(added(added(sums[i.a], x[p]), x[p + 1]), x[p + 2]), x[p + 3]);
    } else {
      sums[i.a] = added(sums[i.a], x[p]);
      sums[i.b] = added(sums[i.b], x[p + 1]);
      sums[i.c] = added(sums[i.c], x[p + 2]);
      sums[i.d] = added(sums[i.d], x[p + 3]);
    }
  }
  for (; p < n; ++p) {
    if (static_cast<uint64_t>(index[p]) >= size) return p;
    sums[index[p]] = added(sums[index[p]], x[p]);
  }
  return n;
}

template <class E>
void take_along_last(E* to, const E* x, const Indices& indices, int64_t count, AxisExtents e) {
  const int64_t total = e.outer * count;
  parallel_for((total + kTileElements - 1) / kTileElements, [&](int64_t tile) {
    const int64_t start = tile * kTileElements, end = std::min(total, start + kTileElements);
    const E* line = x + start / count * e.size;
    for (int64_t at = start, n = count - start % count; at < end; at += n, n = count, line += e.size) {
      indices.in_line(at, std::min(n, end - at), [&](const int64_t* index, int64_t from, int64_t m) {
        return take_line(to + (at + from), line, index, m, static_cast<uint64_t>(e.size));
      });
    }
  });
}

// The lines [from, to) of one entry of the outer extent, row by row: f(index, lane, position), where lane counts
// from `from` and position is that of the index and of its element.
template <class F>
void for_lanes(const Indices& indices, AxisExtents e, int64_t count, int64_t o, int64_t from, int64_t to, F&& f) {
  int64_t room[kLanes];
  for (int64_t j = o * count; j < (o + 1) * count; ++j) {
    const int64_t at = j * e.inner + from;
    const int64_t* index = indices.block(at, to - from, room);
    for (int64_t i = 0; i < to - from; ++i) f(index[i], i, at + i);
  }
}

template <class T>
inline constexpr bool kHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;

// What is added to, for the lines [from, to) of one entry of the outer extent: x itself, or floats for half types,
// which are rounded once. fn(sums, row), where row is the step to the next element of a line.
template <class T, class F>
void with_sums(T* x, const T* base, AxisExtents e, int64_t from, int64_t to, F&& fn) {
  using N = Number<T>;
  const int64_t width = to - from;
  if constexpr (kHalf<T>) {
    std::vector<float> sums(static_cast<size_t>(e.size * width), 0.0f);
    for (int64_t s = 0; base != nullptr && s < e.size; ++s)
      for (int64_t i = 0; i < width; ++i) sums[s * width + i] = N::widen(base[s * e.inner + from + i]);
    fn(sums.data(), width);
    for (int64_t s = 0; s < e.size; ++s)
      for (int64_t i = 0; i < width; ++i) x[s * e.inner + from + i] = N::narrow(sums[s * width + i]);
  } else {
    const int64_t rows = width == e.inner ? 1 : e.size;  // one run of memory, or a piece of every row
    const size_t bytes = static_cast<size_t>(rows == 1 ? e.size * width : width) * sizeof(T);
    for (int64_t s = 0; s < rows; ++s) {
      void* row = x + s * e.inner + from;
      base == nullptr ? std::memset(row, 0, bytes) : std::memcpy(row, base + s * e.inner + from, bytes);
    }
    fn(x + from, e.inner);
  }
}

}  // namespace

void take_along(void* elements, const void* x, const Indices& indices, int64_t count, AxisExtents e, int64_t element) {
  const int64_t rows = e.outer * count, total = rows * e.inner;
  if (total == 0) return;
  with_element(element, [&]<class E>() {
    const E* from = static_cast<const E*>(x);
    E* to = static_cast<E*>(elements);
    if (e.inner == 1) return take_along_last(to, from, indices, count, e);
    const int64_t pieces = (e.inner + Indices::kBlock - 1) / Indices::kBlock;
    const int64_t group = std::max<int64_t>(1, kTileElements / std::min(e.inner, Indices::kBlock));
    parallel_for((rows * pieces + group - 1) / group, [&](int64_t tile) {
      int64_t room[Indices::kBlock];
      for (int64_t u = tile * group; u < std::min(rows * pieces, (tile + 1) * group); ++u) {
        const int64_t r = u / pieces, first = u % pieces * Indices::kBlock;
        const int64_t n = std::min(Indices::kBlock, e.inner - first), at = r * e.inner + first;
        const int64_t* index = indices.block(at, n, room);
        const E* lines = from + (r / count * e.size * e.inner + first);
        for (int64_t i = 0; i < n; ++i) to[at + i].bits = lines[index[i] * e.inner + i].bits;
      }
    });
  });
}

void put_along(void* x, const void* elements, const Indices& indices, int64_t count, AxisExtents e, int64_t element) {
  if (e.outer * count * e.inner == 0) return;
  with_element(element, [&]<class E>() {
    const E* values = static_cast<const E*>(elements);
    for_inner_tiles(e, count, [&](int64_t o, int64_t from, int64_t to) {
      E* out = static_cast<E*>(x) + o * e.size * e.inner;
      if (e.inner == 1) {
        return indices.in_line(o * count, count, [&](const int64_t* index, int64_t first, int64_t n) {
          return put_line(out, values + (o * count + first), index, n, static_cast<uint64_t>(e.size));
        });
      }
      for_lanes(indices, e, count, o, from, to, [&](int64_t index, int64_t lane, int64_t at) {
        out[index * e.inner + from + lane].bits = values[at].bits;
      });
    });
  });
}

void add_along(DType dtype, void* x, const void* base, const void* elements, const Indices& indices, int64_t count,
               AxisExtents e) {
  if (e.outer * e.size * e.inner == 0) return;
  with_number(dtype, [&]<class T>() {
    const T* values = static_cast<const T*>(elements);
    for_inner_tiles(e, count, [&](int64_t o, int64_t from, int64_t to) {
      const int64_t skip = o * e.size * e.inner;
      const T* start = base == nullptr ? nullptr : static_cast<const T*>(base) + skip;
      with_sums(static_cast<T*>(x) + skip, start, e, from, to, [&]<class S>(S* sums, int64_t row) {
        if (e.inner == 1) {
          return indices.in_line(o * count, count, [&](const int64_t* index, int64_t first, int64_t n) {
            return add_line(sums, values + (o * count + first), index, n, static_cast<uint64_t>(e.size));
          });
        }
        for_lanes(indices, e, count, o, from, to, [&](int64_t index, int64_t lane, int64_t at) {
          S& sum = sums[index * row + lane];
          sum = added(sum, values[at]);
        });
      });
    });
  });
}

}  // namespace wengert
