#include "gamma_slope.h"

#include <algorithm>

#include "../threads.h"
#include "number.h"
#include "scalar_gamma_slope.h"
#include "vector.h"

namespace wengert {

namespace {

constexpr int64_t kGroup = 64;  // elements whose nodes go through the vector kernels together

MapFn map_kernel(Elementwise op) { return kernels().map[static_cast<int>(op)][static_cast<int>(DType::Float64)]; }

// One group of elements, of which most are integrated: their nodes go through the exponential together.
template <int nodes>
class Group {
 public:
  void run(const double* a, const double* l, const double* psi, double* y, int64_t count) {
    waiting_ = 0;
    const void* in = l;
    map_kernel(Elementwise::exp)(z_, &in, count);
    for (int64_t i = 0; i < count; ++i) {
      if (slopes::slope_by_sums<nodes>(a[i], z_[i], l[i], psi[i], y + i)) continue;
      queue_[waiting_] = {i, slopes::integral_of_slope(a[i], z_[i], l[i], psi[i])};
      slopes::place_nodes<nodes>(queue_[waiting_].integral, s_ + waiting_ * nodes);
      ++waiting_;
    }
    integrate(y);
  }

 private:
  struct Waiting {
    int64_t at;
    slopes::Integral integral;
  };

  void integrate(double* y) {
    const MapFn exp = map_kernel(Elementwise::exp);
    const int64_t all = waiting_ * nodes;
    const void* in = s_;
    exp(e_, &in, all);
    for (int64_t j = 0; j < waiting_; ++j)
      slopes::set_exponents<nodes>(queue_[j].integral, s_ + j * nodes, e_ + j * nodes);
    in = e_;
    exp(e_, &in, all);
    for (int64_t j = 0; j < waiting_; ++j)
      y[queue_[j].at] = slopes::sum_of_slope<nodes>(queue_[j].integral, s_ + j * nodes, e_ + j * nodes);
  }

  int64_t waiting_ = 0;
  Waiting queue_[kGroup];
  double z_[kGroup], s_[kGroup * nodes], e_[kGroup * nodes];
};

template <int nodes>
void slope_all(DType dtype, const void* a, const void* l, void* y, int64_t n) {
  const CastFn widen = kernels().cast[static_cast<int>(dtype)][static_cast<int>(DType::Float64)];
  const CastFn narrow = kernels().cast[static_cast<int>(DType::Float64)][static_cast<int>(dtype)];
  const int64_t element = size_of(dtype);
  parallel_for((n + kGroup - 1) / kGroup, [&](int64_t group) {
    const int64_t first = group * kGroup, count = std::min(kGroup, n - first);
    double shapes[kGroup], logs[kGroup], psi[kGroup], slopes[kGroup];
    widen(shapes, static_cast<const char*>(a) + first * element, count);
    widen(logs, static_cast<const char*>(l) + first * element, count);
    for (int64_t i = 0; i < count; ++i) psi[i] = shapes[i] + 1.0;
    const void* in = psi;
    map_kernel(Elementwise::digamma)(psi, &in, count);
    Group<nodes> waiting;
    waiting.run(shapes, logs, psi, slopes, count);
    narrow(static_cast<char*>(y) + first * element, slopes, count);
  });
}

}  // namespace

void gamma_slope(DType dtype, const void* a, const void* l, void* y, int64_t n) {
  if (dtype == DType::Float64) return slope_all<slopes::kNodes>(dtype, a, l, y, n);
  slope_all<slopes::kNodesNarrow>(dtype, a, l, y, n);
}

void gamma_tail(DType dtype, const void* a, const void* l, void* y, int64_t n, int order) {
  with_number(dtype, [&]<class T>() {
    using N = Number<T>;
    if constexpr (std::is_floating_point_v<typename N::Wide>) {
      parallel_for((n + kGroup - 1) / kGroup, [&](int64_t group) {
        for (int64_t i = group * kGroup; i < std::min(n, (group + 1) * kGroup); ++i) {
          const double value =
              slopes::tail(N::widen(static_cast<const T*>(a)[i]), N::widen(static_cast<const T*>(l)[i]), order);
          static_cast<T*>(y)[i] = N::narrow(static_cast<typename N::Wide>(value));
        }
      });
    }
  });
}

}  // namespace wengert
