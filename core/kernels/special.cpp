#include "special.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "../threads.h"
#include "gamma_parts.h"
#include "number.h"

namespace wengert {

namespace {

// 1 / k: a product for each term of a series instead of a division, which takes three times as long.
constexpr std::array<double, 128> kReciprocals = [] {
  std::array<double, 128> r{};
  for (int k = 1; k < 128; ++k) r[static_cast<size_t>(k)] = 1.0 / k;
  return r;
}();

double reciprocal(int k) { return k < 128 ? kReciprocals[static_cast<size_t>(k)] : 1.0 / k; }

}  // namespace

// e^-|x| I_n(x) / x^n. The power series (NIST DLMF 10.25.2) has positive terms only; beyond, Hankel's expansion
// (10.40.1) reaches full accuracy before its terms grow again.
double bessel_i_scaled(int n, double x) {
  x = std::abs(x);
  if (x < 25.0 + n * n) {
    double term = 1.0;
    for (int k = 1; k <= n; ++k) term /= 2.0 * k;
    const double y = 0.25 * x * x;
    double sum = term;
    for (int k = 1; term > 1e-17 * sum; ++k) {
      term *= y * (reciprocal(k) * reciprocal(n + k));
      sum += term;
    }
    return x == x ? sum * std::exp(-x) : x;
  }
  double term = 1.0, sum = 1.0;
  for (int k = 1; k < 60 && std::abs(term) > 1e-17; ++k) {
    term *= -(4.0 * n * n - (2.0 * k - 1.0) * (2.0 * k - 1.0)) / (8.0 * k * x);
    sum += term;
  }
  return sum / (std::sqrt(special::kTwoPi * x) * std::pow(x, n));
}

// The exponential is applied in two steps: it overflows before the function does.
double bessel_i(int n, double x) {
  const double half = std::exp(0.5 * std::abs(x)), y = bessel_i_scaled(n, x);
  return half == special::kInf ? special::kInf : y * half * half;
}

void map_ordered(OrderedFunction f, DType dtype, const int* orders, const void* const* x, int operands, void* y,
                 int64_t n) {
  constexpr int64_t kTile = 2048;
  with_number(dtype, [&]<class T>() {
    using N = Number<T>;
    if constexpr (std::is_floating_point_v<typename N::Wide>) {
      parallel_for((n + kTile - 1) / kTile, [&](int64_t tile) {
        for (int64_t i = tile * kTile; i < std::min(n, (tile + 1) * kTile); ++i) {
          double at[3];
          for (int k = 0; k < operands; ++k) at[k] = static_cast<double>(N::widen(static_cast<const T*>(x[k])[i]));
          static_cast<T*>(y)[i] = N::narrow(static_cast<typename N::Wide>(f(at, orders)));
        }
      });
    }
  });
}

}  // namespace wengert
