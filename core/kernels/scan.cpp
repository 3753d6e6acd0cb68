#include "scan.h"

#include <algorithm>
#include <cmath>

#include "../threads.h"
#include "number.h"

namespace wengert {

namespace {

constexpr int kLanes = 64;  // neighbouring lines that are scanned together
constexpr int kRows = 4;    // the same along the last axis: each step waits for the one before, but not for other lines
constexpr int64_t kTileElements = 16384;

// What a line is accumulated in: float32 in double, because the error of a running sum grows with its length.
template <class T>
struct Running {
  using type = typename Number<T>::Wide;
};
template <>
struct Running<float> {
  using type = double;
};
template <>
struct Running<std::complex<float>> {
  using type = std::complex<double>;
};

// A bundle of lines that are scanned together: the offset of its first element, the step along a line, and from line to
// line. `kWidth` is the number of lines, or kLanes for as many or fewer that are neighbours.
template <int kWidth>
struct Bundle {
  int64_t at, step, apart, lines;

  int64_t width() const { return kWidth == kLanes ? lines : kWidth; }
  int64_t line(int64_t i) const { return kWidth == kLanes ? i : i * apart; }
};

// Calls f(bundle) for all lines, in parallel.
template <class F>
void for_lines(AxisExtents e, bool reverse, F&& f) {
  const bool rows = e.inner == 1;
  const int64_t lines = rows ? e.outer : e.inner, apart = rows ? e.size : 1;
  const int64_t most = !rows ? kLanes : e.outer < 4 * kRows ? 1 : kRows;  // few rows are left to as many threads
  const int64_t pieces = (lines + most - 1) / most, units = (rows ? 1 : e.outer) * pieces;
  const int64_t step = reverse ? -e.inner : e.inner, start = reverse ? (e.size - 1) * e.inner : 0;
  const int64_t group = std::max<int64_t>(1, kTileElements / (e.size * std::min(lines, most)));
  parallel_for((units + group - 1) / group, [&](int64_t tile) {
    for (int64_t u = tile * group; u < std::min(units, (tile + 1) * group); ++u) {
      const int64_t first = u % pieces * most, width = std::min(most, lines - first);
      const int64_t at = u / pieces * e.size * e.inner + start + first * apart;
      if (!rows) {
        f(Bundle<kLanes>{at, step, 1, width});
      } else if (width == kRows) {
        f(Bundle<kRows>{at, step, apart, width});
      } else {
        for (int64_t i = 0; i < width; ++i) f(Bundle<1>{at + i * apart, step, apart, 1});
      }
    }
  });
}

template <Scan kind, class T, int kWidth>
void scan_lines(const T* x, T* y, int64_t n, Bundle<kWidth> b) {
  using N = Number<T>;
  using Wide = typename Running<T>::type;
  const int64_t width = b.width();
  x += b.at;
  y += b.at;
  Wide running[kWidth];
  for (int64_t i = 0; i < width; ++i) {
    running[i] = static_cast<Wide>(N::widen(x[b.line(i)]));
    y[b.line(i)] = x[b.line(i)];
  }
  for (int64_t k = 1; k < n; ++k) {
    x += b.step;
    y += b.step;
    for (int64_t i = 0; i < width; ++i) {
      if constexpr (kind == Scan::sum) {
        running[i] += static_cast<Wide>(N::widen(x[b.line(i)]));
      } else {
        running[i] *= static_cast<Wide>(N::widen(x[b.line(i)]));
      }
      y[b.line(i)] = N::narrow(static_cast<typename N::Wide>(running[i]));
    }
  }
}

// ln Σ eˣ as m + ln s, where m is the largest x so far and s the sum of e^(x − m): nothing overflows.
template <class T, int kWidth>
void logsumexp_lines(const T* from, T* y, int64_t n, Bundle<kWidth> b) {
  using N = Number<T>;
  using Wide = typename Running<T>::type;
  const int64_t width = b.width();
  from += b.at;
  y += b.at;
  Wide largest[kWidth], sum[kWidth];
  for (int64_t i = 0; i < width; ++i) {
    largest[i] = static_cast<Wide>(N::widen(from[b.line(i)]));
    sum[i] = Wide{1};
    y[b.line(i)] = from[b.line(i)];
  }
  for (int64_t k = 1; k < n; ++k) {
    from += b.step;
    y += b.step;
    for (int64_t i = 0; i < width; ++i) {
      const Wide x = static_cast<Wide>(N::widen(from[b.line(i)]));
      if (x > largest[i]) {
        sum[i] = sum[i] * std::exp(largest[i] - x) + Wide{1};
        largest[i] = x;
      } else if (x != largest[i]) {
        sum[i] += std::exp(x - largest[i]);  // NaN enters here, and stays
      } else {
        sum[i] += Wide{1};  // also for two infinities, whose difference is NaN
      }
      y[b.line(i)] = N::narrow(static_cast<typename N::Wide>(largest[i] + std::log(sum[i])));
    }
  }
}

template <class T, int kWidth>
void recur_lines(const T* a, const T* terms, T* h, int64_t n, Bundle<kWidth> b) {
  using N = Number<T>;
  using Wide = typename Running<T>::type;
  const int64_t width = b.width();
  a += b.at;
  terms += b.at;
  h += b.at;
  Wide running[kWidth];
  for (int64_t i = 0; i < width; ++i) {
    running[i] = static_cast<Wide>(N::widen(terms[b.line(i)]));
    h[b.line(i)] = terms[b.line(i)];
  }
  for (int64_t k = 1; k < n; ++k) {
    a += b.step;
    terms += b.step;
    h += b.step;
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = b.line(i);
      running[i] = static_cast<Wide>(N::widen(a[at])) * running[i] + static_cast<Wide>(N::widen(terms[at]));
      h[at] = N::narrow(static_cast<typename N::Wide>(running[i]));
    }
  }
}

template <bool largest, class T, int kWidth>
void extremum_lines(const T* x, T* values, int64_t* indices, int64_t n, Bundle<kWidth> b) {
  using N = Number<T>;
  const auto wide = [](T v) {
    if constexpr (std::is_integral_v<T>) {
      return v;  // N widens integers without their sign
    } else {
      return N::widen(v);
    }
  };
  const int64_t width = b.width();
  x += b.at;
  values += b.at;
  indices += b.at;
  T best[kWidth];
  int64_t at[kWidth];
  for (int64_t i = 0; i < width; ++i) {
    values[b.line(i)] = best[i] = x[b.line(i)];
    indices[b.line(i)] = at[i] = 0;
  }
  for (int64_t k = 1; k < n; ++k) {
    x += b.step;
    values += b.step;
    indices += b.step;
    for (int64_t i = 0; i < width; ++i) {
      const auto before = wide(best[i]), now = wide(x[b.line(i)]);
      const bool replaces = (largest ? now > before : now < before) || (now != now && before == before);
      values[b.line(i)] = best[i] = replaces ? x[b.line(i)] : best[i];
      indices[b.line(i)] = at[i] = replaces ? k : at[i];
    }
  }
}

template <class F>
void with_ordered(DType dtype, F&& f) {
  with_number(dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, std::complex<float>> && !std::is_same_v<T, std::complex<double>>) {
      f.template operator()<T>();
    }
  });
}

}  // namespace

void scan(Scan kind, DType dtype, const void* x, void* y, AxisExtents e, bool reverse) {
  if (e.outer * e.size * e.inner == 0) return;
  if (kind == Scan::logsumexp) {
    with_ordered(dtype, [&]<class T>() {
      if constexpr (!std::is_integral_v<T>) {
        for_lines(e, reverse,
                  [&](auto lines) { logsumexp_lines(static_cast<const T*>(x), static_cast<T*>(y), e.size, lines); });
      }
    });
    return;
  }
  with_number(dtype, [&]<class T>() {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    for_lines(e, reverse, [&](auto lines) {
      if (kind == Scan::sum) {
        scan_lines<Scan::sum>(from, to, e.size, lines);
      } else {
        scan_lines<Scan::prod>(from, to, e.size, lines);
      }
    });
  });
}

void recur(DType dtype, const void* a, const void* b, void* h, AxisExtents e, bool reverse) {
  if (e.outer * e.size * e.inner == 0) return;
  with_number(dtype, [&]<class T>() {
    for_lines(e, reverse, [&](auto lines) {
      recur_lines(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(h), e.size, lines);
    });
  });
}

void scan_extremum(DType dtype, const void* x, void* values, int64_t* indices, AxisExtents e, bool largest) {
  if (e.outer * e.size * e.inner == 0) return;
  with_ordered(dtype, [&]<class T>() {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(values);
    for_lines(e, false, [&](auto lines) {
      if (largest) {
        extremum_lines<true>(from, to, indices, e.size, lines);
      } else {
        extremum_lines<false>(from, to, indices, e.size, lines);
      }
    });
  });
}

}  // namespace wengert
