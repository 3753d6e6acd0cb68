#include "scan.h"

#include <algorithm>
#include <cmath>

#include "../threads.h"
#include "number.h"

namespace wengert {

namespace {

constexpr int64_t kLanes = 64;  // neighbouring lines that are scanned together
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

// Calls f(offset, step, width) for pieces of at most kLanes neighbouring lines, in parallel: the offset of the element
// that comes first, and the step to the next.
template <class F>
void for_lines(AxisExtents e, bool reverse, F&& f) {
  const int64_t pieces = (e.inner + kLanes - 1) / kLanes, units = e.outer * pieces;
  const int64_t step = reverse ? -e.inner : e.inner, start = reverse ? (e.size - 1) * e.inner : 0;
  const int64_t group = std::max<int64_t>(1, kTileElements / (e.size * std::min(e.inner, kLanes)));
  parallel_for((units + group - 1) / group, [&](int64_t tile) {
    for (int64_t u = tile * group; u < std::min(units, (tile + 1) * group); ++u) {
      const int64_t from = u % pieces * kLanes;
      f(u / pieces * e.size * e.inner + start + from, step, std::min(kLanes, e.inner - from));
    }
  });
}

// `kWidth` is the number of lines where it is known: a single one then runs in a register.
template <class T, Scan kind, int kWidth>
void scan_lines(T* y, int64_t n, int64_t step, int64_t lines) {
  using N = Number<T>;
  using Wide = typename Running<T>::type;
  const int64_t width = kWidth == 1 ? 1 : lines;
  Wide running[kWidth];
  for (int64_t i = 0; i < width; ++i) running[i] = static_cast<Wide>(N::widen(y[i]));
  for (int64_t k = 1; k < n; ++k) {
    y += step;
    for (int64_t i = 0; i < width; ++i) {
      if constexpr (kind == Scan::sum) {
        running[i] += static_cast<Wide>(N::widen(y[i]));
      } else {
        running[i] *= static_cast<Wide>(N::widen(y[i]));
      }
      y[i] = N::narrow(static_cast<typename N::Wide>(running[i]));
    }
  }
}

// ln Σ eˣ as m + ln s, where m is the largest x so far and s the sum of e^(x − m): nothing overflows.
template <class T>
void logsumexp_lines(T* y, int64_t n, int64_t step, int64_t width) {
  using N = Number<T>;
  using Wide = typename Running<T>::type;
  Wide largest[kLanes], sum[kLanes];
  for (int64_t i = 0; i < width; ++i) {
    largest[i] = static_cast<Wide>(N::widen(y[i]));
    sum[i] = Wide{1};
  }
  for (int64_t k = 1; k < n; ++k) {
    y += step;
    for (int64_t i = 0; i < width; ++i) {
      const Wide x = static_cast<Wide>(N::widen(y[i]));
      if (x > largest[i]) {
        sum[i] = sum[i] * std::exp(largest[i] - x) + Wide{1};
        largest[i] = x;
      } else if (x != largest[i]) {
        sum[i] += std::exp(x - largest[i]);  // NaN enters here, and stays
      } else {
        sum[i] += Wide{1};  // also for two infinities, whose difference is NaN
      }
      y[i] = N::narrow(static_cast<typename N::Wide>(largest[i] + std::log(sum[i])));
    }
  }
}

template <class T, int kWidth>
void recur_lines(const T* a, T* h, int64_t n, int64_t step, int64_t lines) {
  using N = Number<T>;
  using Wide = typename Running<T>::type;
  const int64_t width = kWidth == 1 ? 1 : lines;
  Wide running[kWidth];
  for (int64_t i = 0; i < width; ++i) running[i] = static_cast<Wide>(N::widen(h[i]));
  for (int64_t k = 1; k < n; ++k) {
    a += step;
    h += step;
    for (int64_t i = 0; i < width; ++i) {
      running[i] = static_cast<Wide>(N::widen(a[i])) * running[i] + static_cast<Wide>(N::widen(h[i]));
      h[i] = N::narrow(static_cast<typename N::Wide>(running[i]));
    }
  }
}

template <class T, bool largest, int kWidth>
void extremum_lines(const T* x, T* values, int64_t* indices, int64_t n, int64_t step, int64_t lines) {
  using N = Number<T>;
  const auto wide = [](T v) {
    if constexpr (std::is_integral_v<T>) {
      return v;  // N widens integers without their sign
    } else {
      return N::widen(v);
    }
  };
  const int64_t width = kWidth == 1 ? 1 : lines;
  T best[kWidth];
  int64_t at[kWidth];
  for (int64_t i = 0; i < width; ++i) {
    values[i] = best[i] = x[i];
    indices[i] = at[i] = 0;
  }
  for (int64_t k = 1; k < n; ++k) {
    x += step;
    values += step;
    indices += step;
    for (int64_t i = 0; i < width; ++i) {
      const auto before = wide(best[i]), now = wide(x[i]);
      const bool replaces = (largest ? now > before : now < before) || (now != now && before == before);
      values[i] = best[i] = replaces ? x[i] : best[i];
      indices[i] = at[i] = replaces ? k : at[i];
    }
  }
}

// Calls f.operator()<kWidth>() with 1 for a single line, else with the most lines that there can be.
template <class F>
void with_width(int64_t lines, F&& f) {
  lines == 1 ? f.template operator()<1>() : f.template operator()<kLanes>();
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

void scan(Scan kind, DType dtype, void* y, AxisExtents e, bool reverse) {
  if (e.outer * e.size * e.inner == 0) return;
  if (kind == Scan::logsumexp) {
    with_ordered(dtype, [&]<class T>() {
      if constexpr (!std::is_integral_v<T>) {
        for_lines(e, reverse, [&](int64_t at, int64_t step, int64_t width) {
          logsumexp_lines(static_cast<T*>(y) + at, e.size, step, width);
        });
      }
    });
    return;
  }
  with_number(dtype, [&]<class T>() {
    for_lines(e, reverse, [&](int64_t at, int64_t step, int64_t width) {
      with_width(width, [&]<int kWidth>() {
        if (kind == Scan::sum) {
          scan_lines<T, Scan::sum, kWidth>(static_cast<T*>(y) + at, e.size, step, width);
        } else {
          scan_lines<T, Scan::prod, kWidth>(static_cast<T*>(y) + at, e.size, step, width);
        }
      });
    });
  });
}

void recur(DType dtype, const void* a, void* h, AxisExtents e, bool reverse) {
  if (e.outer * e.size * e.inner == 0) return;
  with_number(dtype, [&]<class T>() {
    for_lines(e, reverse, [&](int64_t at, int64_t step, int64_t width) {
      with_width(width, [&]<int kWidth>() {
        recur_lines<T, kWidth>(static_cast<const T*>(a) + at, static_cast<T*>(h) + at, e.size, step, width);
      });
    });
  });
}

void scan_extremum(DType dtype, const void* x, void* values, int64_t* indices, AxisExtents e, bool largest) {
  if (e.outer * e.size * e.inner == 0) return;
  with_ordered(dtype, [&]<class T>() {
    for_lines(e, false, [&](int64_t at, int64_t step, int64_t width) {
      const T* from = static_cast<const T*>(x) + at;
      T* to = static_cast<T*>(values) + at;
      with_width(width, [&]<int kWidth>() {
        if (largest) {
          extremum_lines<T, true, kWidth>(from, to, indices + at, e.size, step, width);
        } else {
          extremum_lines<T, false, kWidth>(from, to, indices + at, e.size, step, width);
        }
      });
    });
  });
}

}  // namespace wengert
