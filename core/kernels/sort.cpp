#include "sort.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "../threads.h"
#include "sort_first.h"

namespace wengert {

namespace {

// Radix sort
// ------------------------------------------------------------------------------------------------------

constexpr int64_t kInsertion = 24;   // up to here insertion alone is faster
constexpr int64_t kChunk = 1 << 15;  // a long line is counted and moved in chunks, by several threads
constexpr int64_t kLong = 1 << 18;   // from here on all bits are sorted by radix, because insertion is serial
constexpr int kMaxDigit = 11;

// Whether a was sorted by moving no element far: given up after so many moves that radix passes are cheaper.
template <class Item>
bool insertion_sort(Item* a, int64_t n, int64_t moves) {
  for (int64_t i = 1; i < n; ++i) {
    if (a[i - 1] <= a[i]) continue;
    const Item item = a[i];
    int64_t j = i;
    for (; j > 0 && a[j - 1] > item; --j) a[j] = a[j - 1];
    a[j] = item;
    if ((moves -= i - j) < 0) return false;
  }
  return true;
}

// One stable pass by the digit at `shift`: counted and moved chunk by chunk, so that chunks are independent.
template <class Item>
void radix_pass(const Item* from, Item* to, int64_t n, int shift, int bits, uint32_t* counters) {
  const int64_t buckets = int64_t{1} << bits, chunks = (n + kChunk - 1) / kChunk;
  const Item mask = static_cast<Item>(buckets - 1);
  std::memset(counters, 0, static_cast<size_t>(chunks * buckets) * sizeof(uint32_t));
  parallel_for(chunks, [&](int64_t c) {
    uint32_t* count = counters + c * buckets;
    const int64_t end = std::min(n, (c + 1) * kChunk);
    for (int64_t i = c * kChunk; i < end; ++i) ++count[(from[i] >> shift) & mask];
  });
  uint32_t start = 0;
  for (int64_t b = 0; b < buckets; ++b) {
    for (int64_t c = 0; c < chunks; ++c) {
      const uint32_t count = counters[c * buckets + b];
      counters[c * buckets + b] = start;
      start += count;
    }
  }
  parallel_for(chunks, [&](int64_t c) {
    uint32_t* at = counters + c * buckets;
    const int64_t end = std::min(n, (c + 1) * kChunk);
    for (int64_t i = c * kChunk; i < end; ++i) to[at[(from[i] >> shift) & mask]++] = from[i];
  });
}

std::unique_ptr<uint32_t[]> new_counters(int64_t n) {
  const int64_t chunks = (n + kChunk - 1) / kChunk;
  return std::make_unique_for_overwrite<uint32_t[]>(static_cast<size_t>(std::max<int64_t>(1, chunks) << kMaxDigit));
}

// Sorts by the bits from `low` to `high`, evenly divided into digits; the result is in `a` or in `b`, and is returned.
template <class Item>
Item* radix_passes(Item* a, Item* b, int64_t n, int low, int high, uint32_t* counters) {
  const int passes = (high - low + kMaxDigit - 1) / kMaxDigit;
  for (int p = 0; p < passes; ++p) {
    const int bits = (high - low + passes - p - 1) / (passes - p);
    radix_pass(a, b, n, low, bits, counters);
    low += bits;
    std::swap(a, b);
  }
  return a;
}

// Sorts n items by the bits that are set in `varying`; the others are equal in all of them, or a position in the
// lowest bits, in order. The result is in `a` or in `b`, and is returned. Mostly the highest bits decide, a few more
// than count the items: insertion does the rest, unless it has too much to do.
template <class Item>
Item* sort_items(Item* a, Item* b, int64_t n, Item varying, uint32_t* counters) {
  if (varying == 0) return a;
  if (n <= kInsertion) {
    insertion_sort(a, n, n * n);
    return a;
  }
  const int low = std::countr_zero(varying), high = static_cast<int>(std::bit_width(varying));
  const int enough = high - (static_cast<int>(std::bit_width(static_cast<uint64_t>(n))) + 5);
  if (n < kLong && enough > low) {
    Item* sorted = radix_passes(a, b, n, enough, high, counters);
    if (insertion_sort(sorted, n, 8 * n)) return sorted;
    if (sorted != a) std::swap(a, b);
  }
  return radix_passes(a, b, n, low, high, counters);
}

// The line in the order of its keys
// --------------------------------------------------------------------------------------------

// Keys of a line, turned around for descending order; which of their bits vary; whether there is a NaN.
template <class T, class Put>
bool read_keys(const T* x, Line line, typename Order<T>::Key& varying, Put&& put) {
  using Key = typename Order<T>::Key;
  using B = typename Order<T>::Bits;
  const Key turn = line.descending ? static_cast<B>(~B{0}) : Key{0};
  const Key first = line.n > 0 ? key_of(x[0]) : Key{0};
  Key vary = 0, nan = 0;
  const auto read = [&](int64_t step) {
    for (int64_t i = 0; i < line.n; ++i) {
      const T value = x[i * step];
      const Key key = key_of(value);
      vary |= key ^ first;
      nan |= static_cast<Key>(is_nan(value));
      put(i, key ^ turn);
    }
  };
  line.step == 1 ? read(1) : read(line.step);
  varying = vary;
  return nan != 0;
}

constexpr uint64_t kUpper = 0xffffffff00000000u, kLower = 0xffffffffu;

// Positions in order, in the lower halves of the items that are returned, which are in `a` or in `b`; the upper halves
// of 32-bit keys are the keys.
template <class T>
uint64_t* order_line(const T* x, Line line, uint64_t* a, uint64_t* b, uint32_t* counters, bool& nan) {
  typename Order<T>::Key varying;
  if constexpr (sizeof(T) <= 4) {
    nan |= read_keys(x, line, varying, [&](int64_t i, uint32_t key) {
      a[i] = static_cast<uint64_t>(key) << 32 | static_cast<uint64_t>(i);
    });
    return sort_items(a, b, line.n, static_cast<uint64_t>(varying) << 32, counters);
  } else {
    // By the upper halves of the keys first. What is equal there, mostly nothing, then by the lower ones.
    nan |=
        read_keys(x, line, varying, [&](int64_t i, uint64_t key) { a[i] = (key & kUpper) | static_cast<uint64_t>(i); });
    uint64_t* sorted = sort_items(a, b, line.n, varying & kUpper, counters);
    if ((varying & kLower) == 0) return sorted;
    uint64_t* spare = sorted == a ? b : a;
    const uint32_t turn = line.descending ? ~0u : 0u;
    for (int64_t start = 0, end; start < line.n; start = end) {
      for (end = start + 1; end < line.n && ((sorted[end] ^ sorted[start]) & kUpper) == 0;) ++end;
      if (end - start == 1) continue;
      uint64_t vary = 0;
      for (int64_t i = start; i < end; ++i) {
        const uint64_t position = sorted[i] & kLower;
        const uint32_t key = static_cast<uint32_t>(key_of(x[static_cast<int64_t>(position) * line.step])) ^ turn;
        sorted[i] = static_cast<uint64_t>(key) << 32 | position;
        vary |= sorted[i] ^ sorted[start];
      }
      uint64_t* run = sort_items(sorted + start, spare + start, end - start, vary & kUpper, counters);
      if (run != sorted + start) std::memcpy(sorted + start, run, static_cast<size_t>(end - start) * sizeof(uint64_t));
    }
    return sorted;
  }
}

// `sorted` may be the memory of `indices`.
template <class T>
void write_ordered(const uint64_t* sorted, const T* x, Line line, int64_t keep, T* values, int64_t* indices) {
  using B = typename Order<T>::Bits;
  const uint32_t turn = line.descending ? static_cast<uint32_t>(static_cast<B>(~B{0})) : 0u;
  parallel_for((keep + kChunk - 1) / kChunk, [&](int64_t c) {
    const int64_t end = std::min(keep, (c + 1) * kChunk);
    for (int64_t i = c * kChunk; i < end; ++i) {
      const uint64_t item = sorted[i];
      const int64_t position = static_cast<int64_t>(item & kLower);
      if (indices != nullptr) indices[i * line.step] = position;
      if (values == nullptr) continue;
      if constexpr (sizeof(T) <= 4) {  // from the key, which is here, and not from x, which is anywhere
        const uint32_t key = static_cast<uint32_t>(item >> 32) ^ turn;
        const bool zero = kFloating<T> && key == kSignBit<T>;  // of either sign
        values[i * line.step] = zero ? x[position * line.step] : value_of<T>(key);
      } else {
        values[i * line.step] = x[position * line.step];
      }
    }
  });
}

// Values alone: keys are sorted without positions, and turned back into values.
template <class T, class Key = typename Order<T>::Key>
bool sort_values(const T* x, Line line, Key* a, Key* b, uint32_t* counters, T* values) {
  using B = typename Order<T>::Bits;
  Key varying;
  const bool nan = read_keys(x, line, varying, [&](int64_t i, Key key) { a[i] = key; });
  const Key* sorted = sort_items(a, b, line.n, varying, counters);
  const Key turn = line.descending ? static_cast<B>(~B{0}) : Key{0};
  parallel_for((line.n + kChunk - 1) / kChunk, [&](int64_t c) {
    const int64_t end = std::min(line.n, (c + 1) * kChunk);
    for (int64_t i = c * kChunk; i < end; ++i) values[i * line.step] = value_of<T>(sorted[i] ^ turn);
  });
  return nan;
}

// Zeros of both signs have one key, from which the sign cannot be told: they are copied in the order they came in.
template <class T>
void restore_zeros(const T* x, Line line, T* values) {
  if constexpr (kFloating<T>) {
    using B = typename Order<T>::Bits;
    const auto zero = [](T v) { return (std::bit_cast<B>(v) & static_cast<B>(~kSignBit<T>)) == 0; };
    int64_t at = 0;
    while (at < line.n && !zero(values[at * line.step])) ++at;
    for (int64_t i = 0; i < line.n; ++i) {
      if (zero(x[i * line.step])) values[at++ * line.step] = x[i * line.step];
    }
  }
}

template <class T>
bool has_negative_zero(const T* x, Line line) {
  bool found = false;
  if constexpr (kFloating<T>) {
    for (int64_t i = 0; i < line.n; ++i) {
      found |= std::bit_cast<typename Order<T>::Bits>(x[i * line.step]) == kSignBit<T>;
    }
  }
  return found;
}

constexpr int64_t kTileElements = 16384;
// Keeping the first few is faster than sorting if they are one of kFew elements, or one of kSome where they are a list.
constexpr int64_t kFew = 64, kSome = 6;

template <class T>
bool sort_all(const T* x, AxisExtents e, int64_t keep, bool descending, T* values, int64_t* indices) {
  const Line line{e.size, e.inner, descending};
  const int64_t lines = e.outer * e.inner, group = std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, e.size));
  std::atomic<bool> nan{false};
  const auto each_line = [&](int64_t tile, auto&& f) {
    bool found = false;
    for (int64_t l = tile * group; l < std::min(lines, (tile + 1) * group); ++l) {
      const int64_t from = l / e.inner * e.size * e.inner + l % e.inner;
      const int64_t to = l / e.inner * keep * e.inner + l % e.inner;
      found |= f(x + from, values == nullptr ? nullptr : values + to, indices == nullptr ? nullptr : indices + to);
    }
    if (found) nan = true;
  };
  parallel_for((lines + group - 1) / group, [&](int64_t tile) {
    if (keep * (keep <= FirstFew<typename Order<T>::Key>::kShort ? kSome : kFew) <= e.size) {
      each_line(tile, [&](const T* in, T* v, int64_t* i) {
        return descending ? first_of_line<true>(in, line, keep, v, i) : first_of_line<false>(in, line, keep, v, i);
      });
    } else if (indices == nullptr && keep == e.size) {
      using Key = typename Order<T>::Key;
      const auto items = std::make_unique_for_overwrite<Key[]>(static_cast<size_t>(2 * e.size));
      const auto counters = new_counters(e.size);
      each_line(tile, [&](const T* in, T* v, int64_t*) {
        const bool found = sort_values(in, line, items.get(), items.get() + e.size, counters.get(), v);
        if (has_negative_zero(in, line)) restore_zeros(in, line, v);
        return found;
      });
    } else {
      const bool in_place = indices != nullptr && e.inner == 1 && keep == e.size;  // the output is room to work in
      const auto items = std::make_unique_for_overwrite<uint64_t[]>(static_cast<size_t>((in_place ? 1 : 2) * e.size));
      const auto counters = new_counters(e.size);
      each_line(tile, [&](const T* in, T* v, int64_t* i) {
        bool found = false;
        uint64_t* spare = in_place ? reinterpret_cast<uint64_t*>(i) : items.get() + e.size;
        const uint64_t* sorted = order_line(in, line, items.get(), spare, counters.get(), found);
        write_ordered(sorted, in, line, keep, v, i);
        return found;
      });
    }
  });
  return nan;
}

// Order is defined for integers and real floating numbers; the ops refuse others.
template <class F>
void with_ordered(DType dtype, F&& f) {
  with_number(dtype, [&]<class T>() {
    if constexpr (sizeof(T) <= 8 && !std::is_same_v<T, std::complex<float>>) f.template operator()<T>();
  });
}

}  // namespace

bool sort_lines(DType dtype, const void* x, AxisExtents e, int64_t keep, bool descending, void* values,
                int64_t* indices) {
  bool nan = false;
  if (e.outer * e.inner * keep == 0) return nan;
  with_ordered(dtype, [&]<class T>() {
    nan = sort_all(static_cast<const T*>(x), e, keep, descending, static_cast<T*>(values), indices);
  });
  return nan;
}

int64_t find_nan(DType dtype, const void* x, int64_t n) {
  int64_t found = -1;
  with_ordered(dtype, [&]<class T>() {
    for (int64_t i = 0; i < n && found < 0; ++i) {
      if (is_nan(static_cast<const T*>(x)[i])) found = i;
    }
  });
  return found;
}

void search_sorted(DType dtype, const void* x, int64_t n, const void* y, int64_t m, bool right, int64_t* places) {
  with_ordered(dtype, [&]<class T>() {
    const T *sorted = static_cast<const T*>(x), *wanted = static_cast<const T*>(y);
    parallel_for((m + kTileElements - 1) / kTileElements, [&](int64_t tile) {
      for (int64_t j = tile * kTileElements; j < std::min(m, (tile + 1) * kTileElements); ++j) {
        const auto key = key_of(wanted[j]);
        int64_t low = 0, size = n;  // the answer is in [low, low + size]; no branch depends on the data
        while (size > 0) {
          const int64_t half = size / 2;
          const auto middle = key_of(sorted[low + half]);
          const bool before = right ? middle <= key : middle < key;
          low = before ? low + half + 1 : low;
          size = before ? size - half - 1 : half;
        }
        places[j] = low;
      }
    });
  });
}

}  // namespace wengert
