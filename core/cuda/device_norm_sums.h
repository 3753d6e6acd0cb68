// What the derivative of standardised rows needs of a row: with h, the standardised elements, and t, their cotangents.
#pragma once
#include "device_product.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// With strong zero: where nothing flows, h may be infinite or NaN.
template <class A>
WENGERT_INLINE A strong_term(A t, A h) {
  return t == 0 ? A{} : t * h;
}

template <class A>
struct NormSums {
  A bar, along, largest;  // of t, of t ∘ h, of |t|
  WENGERT_INLINE static NormSums of(A t, A h) { return {t, strong_term(t, h), t < 0 ? -t : t}; }
};

struct add_norm_sums {
  template <class A>
  WENGERT_INLINE static NormSums<A> apply(const NormSums<A>& a, const NormSums<A>& b) {
    return {a.bar + b.bar, a.along + b.along, reduction::max::apply(a.largest, b.largest)};
  }
};

}  // namespace wengert::WENGERT_ISA_NAMESPACE
