#include "scan.h"

#include <algorithm>

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

// `width` neighbouring lines: y points to the element of each that comes first, `step` leads to the next.
template <class T, Scan kind>
void scan_lines(T* y, int64_t n, int64_t step, int64_t width) {
  using N = Number<T>;
  using Wide = typename Running<T>::type;
  Wide running[kLanes];
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

template <class T, Scan kind>
void scan_all(T* y, AxisExtents e, bool reverse) {
  const int64_t pieces = (e.inner + kLanes - 1) / kLanes, units = e.outer * pieces;
  const int64_t step = reverse ? -e.inner : e.inner, start = reverse ? (e.size - 1) * e.inner : 0;
  const int64_t group = std::max<int64_t>(1, kTileElements / (e.size * std::min(e.inner, kLanes)));
  parallel_for((units + group - 1) / group, [&](int64_t tile) {
    for (int64_t u = tile * group; u < std::min(units, (tile + 1) * group); ++u) {
      const int64_t from = u % pieces * kLanes;
      scan_lines<T, kind>(y + u / pieces * e.size * e.inner + start + from, e.size, step,
                          std::min(kLanes, e.inner - from));
    }
  });
}

}  // namespace

void scan(Scan kind, DType dtype, void* y, AxisExtents e, bool reverse) {
  if (e.outer * e.size * e.inner == 0) return;
  with_number(dtype, [&]<class T>() {
    if (kind == Scan::sum) {
      scan_all<T, Scan::sum>(static_cast<T*>(y), e, reverse);
    } else {
      scan_all<T, Scan::prod>(static_cast<T*>(y), e, reverse);
    }
  });
}

}  // namespace wengert
