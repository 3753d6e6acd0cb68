#include "pool.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "../error.h"
#include "../per_thread.h"
#include "../threads.h"
#include "pool_rows.h"

namespace wengert {

namespace {

constexpr int64_t kTileElements = 16384;

int64_t volume(const int64_t (&n)[3]) { return n[0] * n[1] * n[2]; }

// f(plane) for every plane, several to a tile if they are small.
template <class F>
void for_each_plane(const PoolShape& s, F&& f) {
  const int64_t work = std::max<int64_t>(1, volume(s.in) + volume(s.out));
  const int64_t group = std::max<int64_t>(1, kTileElements / work);
  parallel_for((s.planes + group - 1) / group, [&](int64_t tile) {
    for (int64_t p = tile * group; p < std::min(s.planes, (tile + 1) * group); ++p) f(p);
  });
}

// Windows [low, high) for which tap k along axis i lies inside x.
struct Range {
  int64_t low, high;
};
Range inside(const PoolShape& s, int i, int64_t k) {
  const int64_t offset = k * s.dilation[i] - s.padding[i], stride = s.stride[i];
  const int64_t low = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const int64_t room = s.in[i] - offset;
  const int64_t high = room <= 0 ? 0 : (room + stride - 1) / stride;
  return {std::min(low, s.out[i]), std::clamp(high, std::min(low, s.out[i]), s.out[i])};
}

// f(tap, offset of x's element, first window, windows) for every tap of row (d, h) of windows, along the last axis.
template <class F>
void for_each_tap(const PoolShape& s, const std::vector<Range>& columns, int64_t d, int64_t h, F&& f) {
  for (int64_t kd = 0; kd < s.kernel[0]; ++kd) {
    const int64_t z = d * s.stride[0] + kd * s.dilation[0] - s.padding[0];
    if (z < 0 || z >= s.in[0]) continue;
    for (int64_t kh = 0; kh < s.kernel[1]; ++kh) {
      const int64_t y = h * s.stride[1] + kh * s.dilation[1] - s.padding[1];
      if (y < 0 || y >= s.in[1]) continue;
      const int64_t line = (z * s.in[1] + y) * s.in[2];
      for (int64_t kw = 0; kw < s.kernel[2]; ++kw) {
        const auto [low, high] = columns[kw];
        if (low == high) continue;
        const int64_t x = low * s.stride[2] + kw * s.dilation[2] - s.padding[2];
        f((kd * s.kernel[1] + kh) * s.kernel[2] + kw, line + x, low, high - low);
      }
    }
  }
}

std::vector<Range> column_ranges(const PoolShape& s) {
  std::vector<Range> ranges;
  for (int64_t k = 0; k < s.kernel[2]; ++k) ranges.push_back(inside(s, 2, k));
  return ranges;
}

template <class F>
void for_each_row(const PoolShape& s, F&& f) {
  for (int64_t d = 0; d < s.out[0]; ++d) {
    for (int64_t h = 0; h < s.out[1]; ++h) f(d, h, (d * s.out[1] + h) * s.out[2]);
  }
}

// Offsets of the taps within a plane, and of the windows.
std::vector<int64_t> tap_offsets(const PoolShape& s) {
  std::vector<int64_t> offsets;
  for (int64_t d = 0; d < s.kernel[0]; ++d) {
    for (int64_t h = 0; h < s.kernel[1]; ++h) {
      for (int64_t w = 0; w < s.kernel[2]; ++w) {
        offsets.push_back((d * s.dilation[0] * s.in[1] + h * s.dilation[1]) * s.in[2] + w * s.dilation[2]);
      }
    }
  }
  return offsets;
}

int64_t row_offset(const PoolShape& s, int64_t d, int64_t h) {
  const int64_t z = d * s.stride[0] - s.padding[0], y = h * s.stride[1] - s.padding[1];
  return (z * s.in[1] + y) * s.in[2] - s.padding[2];
}

// f(plane, position in x, position in y) for every window; the position is that of the window's winner.
template <class I, class F>
void for_each_winner(const char* op, const PoolShape& s, const I* index, F&& f) {
  const std::vector<int64_t> offsets = tap_offsets(s);
  const int64_t in = volume(s.in), out = volume(s.out), step = s.stride[2];
  for_each_plane(s, [&](int64_t plane) {
    const I* taps = index + plane * out;
    f(plane, [&](auto&& each) {
      for_each_row(s, [&](int64_t d, int64_t h, int64_t row) {
        int64_t at = row_offset(s, d, h);
        for (int64_t j = row; j < row + s.out[2]; ++j, at += step) {
          const auto tap = static_cast<size_t>(taps[j]);
          const int64_t position = tap < offsets.size() ? at + offsets[tap] : -1;
          if (position < 0 || position >= in) [[unlikely]]
            fail(ErrorKind::index, op, "tap " + std::to_string(tap) + " is not inside its window");
          each(position, j);
        }
      });
    });
  });
}

}  // namespace

namespace {

bool two_by_two(const PoolShape& s) {
  bool yes = s.kernel[0] == 1 && s.stride[0] == 1;
  for (int i : {1, 2})
    yes = yes && s.kernel[i] == 2 && s.stride[i] == 2 && s.padding[i] == 0 && s.dilation[i] == 1 &&
          s.in[i] >= 2 * s.out[i];
  return yes;
}

template <class T>
void argmax_two_by_two(const PoolShape& s, const T* x, uint8_t* index) {
  const auto argmax = pool_rows(T{}).argmax_two_by_two;
  for_each_plane(s, [&](int64_t plane) {
    for_each_row(s, [&](int64_t d, int64_t h, int64_t row) {
      const T* first = x + plane * volume(s.in) + (d * s.in[1] + 2 * h) * s.in[2];
      argmax(index + plane * volume(s.out) + row, first, first + s.in[2], s.out[2]);
    });
  });
}

// Of a row of windows: the greatest element of each so far, and where in the window it is.
template <class T>
struct RowOfWinners {
  std::vector<T> best;
  std::vector<int32_t> taps;
};

}  // namespace

template <class T, class I>
void pool_argmax(const PoolShape& s, const T* x, I* index) {
  if constexpr (std::is_same_v<I, uint8_t>) {
    if (two_by_two(s)) return argmax_two_by_two(s, x, index);
  }
  const std::vector<Range> columns = column_ranges(s);
  const auto maximum = pool_rows(T{}).maximum;
  for_each_plane(s, [&](int64_t plane) {
    std::vector<T>& best = per_thread<RowOfWinners<T>>().best;
    std::vector<int32_t>& taps = per_thread<RowOfWinners<T>>().taps;
    best.resize(static_cast<size_t>(s.out[2]));
    taps.resize(static_cast<size_t>(s.out[2]));
    const T* from = x + plane * volume(s.in);
    I* to = index + plane * volume(s.out);
    for_each_row(s, [&](int64_t d, int64_t h, int64_t row) {
      // The first tap inside wins where nothing is larger: -inf everywhere.
      std::fill(best.begin(), best.end(), -std::numeric_limits<T>::infinity());
      std::fill(taps.begin(), taps.end(), -1);
      int64_t marked = 0;  // windows whose first tap inside x has been met
      auto mark_first = [&](int64_t tap, int64_t low, int64_t n) {
        if (marked == s.out[2]) return;
        for (int64_t j = low; j < low + n; ++j) {
          if (taps[j] >= 0) continue;
          taps[j] = static_cast<int32_t>(tap);
          ++marked;
        }
      };
      for_each_tap(s, columns, d, h, [&](int64_t tap, int64_t at, int64_t low, int64_t n) {
        mark_first(tap, low, n);
        maximum(best.data() + low, taps.data() + low, from + at, s.stride[2], static_cast<int32_t>(tap), n);
      });
      for (int64_t j = 0; j < s.out[2]; ++j) to[row + j] = static_cast<I>(taps[j]);
    });
  });
}

template <class T, class I>
void pool_take(const PoolShape& s, const T* x, const I* index, T* y) {
  for_each_winner("pool_take", s, index, [&](int64_t plane, auto&& each_window) {
    const T* from = x + plane * volume(s.in);
    T* to = y + plane * volume(s.out);
    each_window([&](int64_t at, int64_t j) { to[j] = from[at]; });
  });
}

template <class T, class I>
void pool_put(const PoolShape& s, const T* y, const I* index, T* x) {
  for_each_winner("pool_put", s, index, [&](int64_t plane, auto&& each_window) {
    const T* from = y + plane * volume(s.out);
    T* to = x + plane * volume(s.in);
    std::fill_n(to, volume(s.in), T(0));
    each_window([&](int64_t at, int64_t j) { to[at] += from[j]; });
  });
}

namespace {

bool all_inside(const PoolShape& s) {
  bool yes = true;
  for (int i = 0; i < 3; ++i) {
    yes = yes && s.padding[i] == 0 && (s.out[i] - 1) * s.stride[i] + (s.kernel[i] - 1) * s.dilation[i] < s.in[i];
  }
  return yes;
}

}  // namespace

template <class T>
void pool_sum(const PoolShape& s, const T* x, T* y) {
  if (all_inside(s)) {
    const std::vector<int64_t> offsets = tap_offsets(s);
    const auto sum = pool_rows(T{}).sum;
    return for_each_plane(s, [&](int64_t plane) {
      for_each_row(s, [&](int64_t d, int64_t h, int64_t row) {
        sum(y + plane * volume(s.out) + row, x + plane * volume(s.in) + row_offset(s, d, h), offsets.data(),
            static_cast<int64_t>(offsets.size()), s.stride[2], s.out[2]);
      });
    });
  }
  const std::vector<Range> columns = column_ranges(s);
  const auto gather = pool_rows(T{}).gather;
  for_each_plane(s, [&](int64_t plane) {
    const T* from = x + plane * volume(s.in);
    T* to = y + plane * volume(s.out);
    std::fill_n(to, volume(s.out), T(0));
    for_each_row(s, [&](int64_t d, int64_t h, int64_t row) {
      for_each_tap(s, columns, d, h, [&](int64_t, int64_t at, int64_t low, int64_t n) {
        gather(to + row + low, from + at, s.stride[2], n);
      });
    });
  });
}

template <class T>
void pool_spread(const PoolShape& s, const T* y, T* x) {
  const std::vector<Range> columns = column_ranges(s);
  const auto scatter = pool_rows(T{}).scatter;
  for_each_plane(s, [&](int64_t plane) {
    const T* from = y + plane * volume(s.out);
    T* to = x + plane * volume(s.in);
    std::fill_n(to, volume(s.in), T(0));
    for_each_row(s, [&](int64_t d, int64_t h, int64_t row) {
      for_each_tap(s, columns, d, h, [&](int64_t, int64_t at, int64_t low, int64_t n) {
        scatter(to + at, s.stride[2], from + row + low, n);
      });
    });
  });
}

#define WENGERT_POOL(T)                                                    \
  template void pool_argmax(const PoolShape&, const T*, uint8_t*);         \
  template void pool_argmax(const PoolShape&, const T*, int32_t*);         \
  template void pool_take(const PoolShape&, const T*, const uint8_t*, T*); \
  template void pool_take(const PoolShape&, const T*, const int32_t*, T*); \
  template void pool_put(const PoolShape&, const T*, const uint8_t*, T*);  \
  template void pool_put(const PoolShape&, const T*, const int32_t*, T*);  \
  template void pool_sum(const PoolShape&, const T*, T*);                  \
  template void pool_spread(const PoolShape&, const T*, T*);
WENGERT_POOL(float)
WENGERT_POOL(double)
#undef WENGERT_POOL

}  // namespace wengert
