// Looking for infinities and NaN, for one instruction set; see finite_rows.h.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "finite_rows.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

constexpr int64_t kBlock = 4096;  // elements between two looks at what was found: the loop over them has no branches

// An exponent of ones is that of infinities and NaN: one more in its last place carries into the sign.
template <class T>
bool finite(const T* x, int64_t n) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr int kMantissa = sizeof(T) == 4 ? 23 : 52;
  constexpr Bits sign = Bits{1} << (8 * sizeof(T) - 1), last = Bits{1} << kMantissa, exponent = sign - last;
  for (int64_t from = 0; from < n; from += kBlock) {
    const int64_t to = std::min(n, from + kBlock);
    Bits found = 0;
    for (int64_t i = from; i < to; ++i) found |= (std::bit_cast<Bits>(x[i]) & exponent) + last;
    if (found & sign) return false;
  }
  return true;
}

template <class T>
constexpr FiniteRows<T> kRows = {finite<T>};

}  // namespace

const FiniteRows<float>& finite_rows_f32();
const FiniteRows<double>& finite_rows_f64();
const FiniteRows<float>& finite_rows_f32() { return kRows<float>; }
const FiniteRows<double>& finite_rows_f64() { return kRows<double>; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
