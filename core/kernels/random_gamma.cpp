#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "../threads.h"
#include "random_draws.h"
#include "random_element.h"
#include "vector.h"

namespace wengert {

namespace {

constexpr int64_t kTile = 512;

MapFn map_kernel(Elementwise e, DType d) { return kernels().map[static_cast<int>(e)][static_cast<int>(d)]; }

template <class Real>
void apply(Elementwise e, Real* x, int64_t n) {
  const void* in = x;
  map_kernel(e, sizeof(Real) == 4 ? DType::Float32 : DType::Float64)(x, &in, n);
}

// What the first attempt of every element of a tile uses: a normal number and two uniform ones in (0, 1).
template <class Real>
struct FirstAttempt {
  Real normal[kTile], uniform[kTile], boost[kTile];

  void draw(int64_t count, RandomStream s) {
    Real radius[kTile];
    uint32_t words[2][4 * kTile];
    for (uint32_t part = 0; part < (sizeof(Real) == 8 ? 2 : 1); ++part) philox_words(words[part], s, count, 0, part);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t* w = words[0] + 4 * i;
      if constexpr (sizeof(Real) == 4) {
        radius[i] = draws::open_unit(w[0]), normal[i] = static_cast<float>(w[1] >> 8) * 0x1p-24f;
        uniform[i] = draws::open_unit(w[2]), boost[i] = draws::open_unit(w[3]);
      } else {
        const uint32_t* more = words[1] + 4 * i;
        radius[i] = draws::open_unit(wide_word(w)), normal[i] = draws::open_unit(wide_word(w + 2));
        uniform[i] = draws::open_unit(wide_word(more)), boost[i] = draws::open_unit(wide_word(more + 2));
      }
      normal[i] *= Real(2 * std::numbers::pi);
    }
    apply(Elementwise::log, radius, count);
    for (int64_t i = 0; i < count; ++i) radius[i] *= -2;
    apply(Elementwise::sqrt, radius, count);
    apply(Elementwise::cos, normal, count);
    for (int64_t i = 0; i < count; ++i) normal[i] *= radius[i];
  }
};

// y = ln(boost) / a where a < 1, else 0: Gamma(a) is Gamma(a + 1) times U^(1/a).
template <class Real>
void log_boosts(const Real* a, Real* boost, int64_t count) {
  apply(Elementwise::log, boost, count);
  for (int64_t i = 0; i < count; ++i) boost[i] = a[i] < Real(1) ? boost[i] / a[i] : Real(0);
}

template <class Real>
void gamma_tile(const Real* a, Real* y, int64_t first, int64_t count, bool logarithm, RandomStream s) {
  FirstAttempt<Real> drawn;
  const RandomStream here{s.key_low, s.key_high, s.counter + static_cast<uint64_t>(first)};
  drawn.draw(count, here);
  bool small = false;
  for (int64_t i = 0; i < count; ++i) {
    const Real shape = a[i] < Real(1) ? a[i] + Real(1) : a[i];
    y[i] = draws::squeezed_gamma(shape, drawn.normal[i], drawn.uniform[i]);
    small |= a[i] < Real(1);
  }
  for (int64_t i = 0; i < count; ++i) {
    if (!(a[i] > Real(0))) {
      y[i] = std::numeric_limits<Real>::quiet_NaN();
    } else if (!(y[i] >= Real(0))) {
      const double shape = a[i] < Real(1) ? double(a[i]) + 1.0 : double(a[i]);
      y[i] = static_cast<Real>(draws::redrawn_gamma(shape, drawn.normal[i], drawn.uniform[i], ElementStream(here, i)));
    }
  }
  if (small) log_boosts(a, drawn.boost, count);
  if (logarithm) {
    apply(Elementwise::log, y, count);
    if (!small) return;
    for (int64_t i = 0; i < count; ++i) y[i] += drawn.boost[i];
  } else if (small) {
    apply(Elementwise::exp, drawn.boost, count);
    for (int64_t i = 0; i < count; ++i) y[i] *= drawn.boost[i];
  }
}

template <class Real>
void gamma_all(DType dtype, const void* a, void* y, int64_t n, bool logarithm, RandomStream s) {
  const DType wide = sizeof(Real) == 4 ? DType::Float32 : DType::Float64;
  const CastFn widen = kernels().cast[static_cast<int>(dtype)][static_cast<int>(wide)];
  const CastFn narrow = kernels().cast[static_cast<int>(wide)][static_cast<int>(dtype)];
  const Real floor = static_cast<Real>(draws::least_gamma(dtype));
  parallel_for((n + kTile - 1) / kTile, [&](int64_t tile) {
    const int64_t first = tile * kTile, count = std::min(kTile, n - first);
    Real shapes[kTile], drawn[kTile];
    widen(shapes, static_cast<const char*>(a) + first * size_of(dtype), count);
    gamma_tile(shapes, drawn, first, count, logarithm, s);
    if (!logarithm) {
      for (int64_t i = 0; i < count; ++i) drawn[i] = drawn[i] < floor ? floor : drawn[i];
    }
    narrow(static_cast<char*>(y) + first * size_of(dtype), drawn, count);
  });
}

}  // namespace

void random_gamma(DType dtype, const void* a, void* y, int64_t n, bool logarithm, RandomStream s) {
  if (dtype == DType::Float64) return gamma_all<double>(dtype, a, y, n, logarithm, s);
  gamma_all<float>(dtype, a, y, n, logarithm, s);
}

}  // namespace wengert
