#include "special.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../threads.h"
#include "number.h"

namespace wengert {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 3.14159265358979323846;

// Σ_k (q + k)^-s for integer s > 1 and q > 0, by Euler and Maclaurin's sum from q + k >= 10 on (NIST DLMF 25.11.28);
// the coefficients are B_2j / (2j)!.
double zeta_positive(int s, double q) {
  if (q == kInf) return 0.0;
  constexpr double kBernoulli[] = {1.0 / 12,
                                   -1.0 / 720,
                                   1.0 / 30240,
                                   -1.0 / 1209600,
                                   1.0 / 47900160,
                                   -691.0 / 1307674368000.0,
                                   1.0 / 74724249600.0,
                                   -3617.0 / 10670622842880000.0,
                                   43867.0 / 5109094217170944000.0};
  double sum = 0.0;
  for (; q < 10.0 + 0.5 * s; q += 1.0) {
    const double term = std::pow(q, -s);
    sum += term;
    if (term < 1e-17 * sum) return sum;
  }
  const double tail = std::pow(q, -s);
  sum += tail * (q / (s - 1) + 0.5);
  double factor = s * tail / q;
  for (int j = 0; j < 9; ++j) {
    const double term = kBernoulli[j] * factor;
    sum += term;
    if (std::abs(term) < 1e-17 * std::abs(sum)) break;
    factor *= (s + 2 * j + 1) * (s + 2 * j + 2) / (q * q);
  }
  return sum;
}

// The same for every q, with infinite terms at the poles. Left of 0 the sum over all integers, which has the period 1,
// without the terms that do not belong.
double zeta(int s, double q) {
  if (q > 0.0) return zeta_positive(s, q);
  const double sign = s % 2 == 0 ? 1.0 : -1.0, rest = q - std::rint(q), a = std::abs(rest);
  if (a == 0.0) return s % 2 == 0 || q != 0.0 ? kInf : std::copysign(kInf, q);
  const double around = zeta_positive(s, a) + sign * zeta_positive(s, 1.0 - a);
  return (rest < 0.0 ? sign * around : around) - sign * zeta_positive(s, 1.0 - q);
}

double polygamma(int n, double x) {
  if (!(x > -kInf)) return kNaN;
  double factorial = 1.0;
  for (int k = 2; k <= n; ++k) factorial *= k;
  const double y = factorial * zeta(n + 1, x);
  return n % 2 == 0 ? -y : y;
}

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
      term *= y / (static_cast<double>(k) * (n + k));
      sum += term;
    }
    return x == x ? sum * std::exp(-x) : x;
  }
  double term = 1.0, sum = 1.0;
  for (int k = 1; k < 60 && std::abs(term) > 1e-17; ++k) {
    term *= -(4.0 * n * n - (2.0 * k - 1.0) * (2.0 * k - 1.0)) / (8.0 * k * x);
    sum += term;
  }
  return sum / (std::sqrt(2.0 * kPi * x) * std::pow(x, n));
}

// The exponential is applied in two steps: it overflows before the function does.
double bessel_i(int n, double x) {
  const double half = std::exp(0.5 * std::abs(x)), y = bessel_i_scaled(n, x);
  return half == kInf ? kInf : y * half * half;
}

template <class F>
void map_all(DType dtype, const void* x, void* y, int64_t n, F&& f) {
  constexpr int64_t kTile = 2048;
  with_number(dtype, [&]<class T>() {
    using N = Number<T>;
    if constexpr (std::is_floating_point_v<typename N::Wide>) {
      parallel_for((n + kTile - 1) / kTile, [&](int64_t tile) {
        for (int64_t i = tile * kTile; i < std::min(n, (tile + 1) * kTile); ++i) {
          const double value = f(static_cast<double>(N::widen(static_cast<const T*>(x)[i])));
          static_cast<T*>(y)[i] = N::narrow(static_cast<typename N::Wide>(value));
        }
      });
    }
  });
}

}  // namespace

void map_ordered(OrderedFunction f, DType dtype, int order, const void* x, void* y, int64_t n) {
  switch (f) {
    case OrderedFunction::polygamma: return map_all(dtype, x, y, n, [&](double v) { return polygamma(order, v); });
    case OrderedFunction::bessel_i: return map_all(dtype, x, y, n, [&](double v) { return bessel_i(order, v); });
    case OrderedFunction::bessel_i_scaled:
      return map_all(dtype, x, y, n, [&](double v) { return bessel_i_scaled(order, v); });
  }
}

}  // namespace wengert
