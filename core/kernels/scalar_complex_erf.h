// The error functions of complex numbers, from Faddeeva's w(z) = e^−z² erfc(−iz).
//
// w by the trapezoidal rules of M. Al Azah, S. N. Chandler-Wilde: Computation of the complex error function using
// modified trapezoidal rules, SIAM J. Numer. Anal. 59 (2021), with N = 11: a relative error of a few 1e-15 in the first
// quadrant.
#pragma once
#include "scalar_gamma_parts.h"

namespace wengert::special {

struct ComplexNumber {
  double re, im;
};

namespace complex_erf {

inline ComplexNumber operator+(ComplexNumber a, ComplexNumber b) { return {a.re + b.re, a.im + b.im}; }
inline ComplexNumber operator-(ComplexNumber a, ComplexNumber b) { return {a.re - b.re, a.im - b.im}; }
inline ComplexNumber operator*(ComplexNumber a, ComplexNumber b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
inline ComplexNumber operator*(double a, ComplexNumber b) { return {a * b.re, a * b.im}; }
inline ComplexNumber conj(ComplexNumber z) { return {z.re, -z.im}; }
inline double norm(ComplexNumber z) { return z.re * z.re + z.im * z.im; }

// 1/z, by Smith's method: the squares of its parts could overflow.
inline ComplexNumber reciprocal(ComplexNumber z) {
  const bool wide = std::abs(z.re) >= std::abs(z.im);
  const double r = wide ? z.im / z.re : z.re / z.im, d = wide ? z.re + z.im * r : z.re * r + z.im;
  return wide ? ComplexNumber{1.0 / d, -r / d} : ComplexNumber{r / d, -1.0 / d};
}

inline ComplexNumber exp(ComplexNumber z) {
  const double size = std::exp(z.re);
  return {size * std::cos(z.im), size * std::sin(z.im)};
}

inline constexpr double kPi = 0.5 * kTwoPi, kRootOfPi = 1.77245385090551602730;
inline constexpr int kPoints = 11;
inline constexpr double kStep = 0.51166335397324424;  // √(π / (kPoints + 1))
// Beyond, e^(2πy/h) is infinite, or so large that what is divided by it does not count.
inline constexpr double kFarUp = 25.0;

// (2ihz/π) Σ e^−t² / (z² − t²) over t = (k + offset) h
inline ComplexNumber rule(ComplexNumber z, double offset, int first) {
  ComplexNumber sum{0.0, 0.0};
  const ComplexNumber square = z * z;
  for (int k = first; k <= kPoints; ++k) {
    const double t = (k + offset) * kStep;
    sum = sum + std::exp(-t * t) * reciprocal({square.re - t * t, square.im});
  }
  return ComplexNumber{0.0, 2.0 * kStep / kPi} * z * sum;
}

// For Re z, Im z >= 0.
inline ComplexNumber faddeeva(ComplexNumber z) {
  const double x = z.re, y = z.im;
  if (std::hypot(x, y) > 1e5) return ComplexNumber{0.0, 1.0 / kRootOfPi} * reciprocal(z);
  if (y >= std::fmax(x, kPi / kStep)) return rule(z, 0.5, 0);
  const double place = x / kStep - std::floor(x / kStep);
  const bool between = y < x && place >= 0.25 && place <= 0.75;  // far from the nodes of the other rule
  ComplexNumber pole{0.0, 0.0};
  if (y < kFarUp) {
    const double turn_size = std::exp(kTwoPi / kStep * y), angle = -kTwoPi / kStep * x;
    const ComplexNumber turn{turn_size * std::cos(angle), turn_size * std::sin(angle)};
    const double sign = between ? -1.0 : 1.0;
    pole = 2.0 * exp(-1.0 * (z * z)) * reciprocal({1.0 + sign * turn.re, sign * turn.im});
  }
  if (!between) return pole + rule(z, 0.5, 0);
  return pole + ComplexNumber{0.0, kStep / kPi} * reciprocal(z) + rule(z, 0.0, 1);
}

// Σ (−1)ᵏ z^(2k + 1) / (k! (2k + 1)), for |z| <= 1
inline ComplexNumber near_zero(ComplexNumber z) {
  const ComplexNumber square = z * z;
  ComplexNumber power = z, sum = z;
  for (int k = 1; k < 40; ++k) {
    power = power * ((-1.0 / k) * square);
    const ComplexNumber term = (1.0 / (2.0 * k + 1.0)) * power;
    sum = sum + term;
    if (norm(term) < 1e-34 * norm(sum)) break;
  }
  return (2.0 / kRootOfPi) * sum;
}

// erfc(z) in the first quadrant: e^−z² w(iz), where iz = −y + ix and w(−conj(u)) = conj(w(u)).
inline ComplexNumber far_from_zero(ComplexNumber z) {
  const double x = z.re, y = z.im;
  const double size = std::exp((y - x) * (y + x));
  if (size == 0.0) return {0.0, 0.0};
  const ComplexNumber gauss{size * std::cos(2.0 * x * y), -size * std::sin(2.0 * x * y)};
  return gauss * conj(faddeeva({y, x}));
}

}  // namespace complex_erf

// By erf(−z) = −erf(z) and erf(z̄) = conj(erf(z)) the first quadrant is enough.
inline ComplexNumber erf(ComplexNumber z) {
  using namespace complex_erf;
  if (z.im == 0.0) return {std::erf(z.re), z.im};
  const bool left = std::copysign(1.0, z.re) < 0.0;
  ComplexNumber q = left ? -1.0 * z : z;
  const bool below = q.im < 0.0;
  if (below) q = conj(q);
  ComplexNumber y = norm(q) < 1.0 ? near_zero(q) : ComplexNumber{1.0, 0.0} - far_from_zero(q);
  if (below) y = conj(y);
  return left ? -1.0 * y : y;
}

// By erfc(−z) = 2 − erfc(z), and erfc(z̄) = conj(erfc(z)).
inline ComplexNumber erfc(ComplexNumber z) {
  using namespace complex_erf;
  if (z.im == 0.0) return {std::erfc(z.re), -z.im};
  const bool left = z.re < 0.0;
  ComplexNumber q = left ? -1.0 * z : z;
  const bool below = q.im < 0.0;
  if (below) q = conj(q);
  ComplexNumber y = norm(q) < 1.0 ? ComplexNumber{1.0, 0.0} - near_zero(q) : far_from_zero(q);
  if (below) y = conj(y);
  return left ? ComplexNumber{2.0, 0.0} - y : y;
}

}  // namespace wengert::special
