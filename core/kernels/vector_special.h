// Special functions of two arguments, in double and element by element.
#pragma once
#include "vector_math.h"

namespace wengert::WENGERT_ISA_NAMESPACE::math {

// ln Γ(x) − ((x − ½) ln x − x + ½ ln 2π) for x >= 10: the tail of Stirling's series (Abramowitz and Stegun 6.1.41).
WENGERT_INLINE double stirling_tail(double x) {
  const double r = 1.0 / x, z = r * r;
  return r * polynomial(z, 1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360, 1.0 / 156);
}

// ln |B(a, b)|. Where an argument is large, ln Γ(b) and ln Γ(a + b) are nearly equal: their difference is taken term by
// term of Stirling's series (the method of Didonato and Morris, TOMS 708).
inline double betaln(double a, double b) {
  const double low = a < b ? a : b, high = a < b ? b : a;
  if (!(low > 0.0) || !(high >= 10.0) || high == Format<double>::kInf) {
    if (low > 0.0 && high == Format<double>::kInf) return -high;
    return (libm::lgamma(low) + libm::lgamma(high)) - libm::lgamma(low + high);
  }
  const double part = low / (low + high);
  if (low >= 10.0) {
    const double tails = (stirling_tail(low) + stirling_tail(high)) - stirling_tail(low + high);
    return (0.91893853320467274178 - 0.5 * libm::log(high)) + tails + (low - 0.5) * libm::log(part) +
           high * libm::log1p(-part);
  }
  const double tails = stirling_tail(high) - stirling_tail(low + high);
  return libm::lgamma(low) + tails + (low - low * libm::log(low + high)) + (high - 0.5) * libm::log1p(-part);
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE::math
