// A register full of numbers, with the operations that rows of them need. Where there are masks, the end of a row costs
// no more than another pack.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "vector_lanes.h"
#include "vector_math.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

template <class T>
struct Pack {
  using Lanes = std::conditional_t<std::is_same_v<T, float>, F32, F64>;
  using Register = typename Lanes::Vec;
  using Bits [[gnu::vector_size(sizeof(Register))]] = BitsOf<T>;
  static constexpr int64_t kLanes = Lanes::kWidth;
  Register v;

  Pack() = default;
  WENGERT_INLINE Pack(T x) : v(x - Lanes::zero()) {}  // not 0 + x, which is never −0
  WENGERT_INLINE explicit Pack(Register r) : v(r) {}
  WENGERT_INLINE friend Pack operator+(const Pack& x, const Pack& y) { return Pack(x.v + y.v); }
  WENGERT_INLINE friend Pack operator-(const Pack& x, const Pack& y) { return Pack(x.v - y.v); }
  WENGERT_INLINE friend Pack operator*(const Pack& x, const Pack& y) { return Pack(x.v * y.v); }
  WENGERT_INLINE friend Pack madd(const Pack& x, const Pack& y, const Pack& z) {
    return Pack(Lanes::multiply_add(x.v, y.v, z.v));
  }
};

template <class T>
WENGERT_INLINE Pack<T> load_pack(const T* p) {
  return Pack<T>(Pack<T>::Lanes::load(p));
}
template <class T>
WENGERT_INLINE void store_pack(T* p, const Pack<T>& x) {
  Pack<T>::Lanes::store(p, x.v);
}
template <class T>
WENGERT_INLINE void store_first(T* p, int64_t n, const Pack<T>& x) {
  Pack<T>::Lanes::store_first(p, n, x.v);
}

// Of each pair of elements the larger or the smaller, and y's where one is NaN; (1 + y) 2^n for whole n; the first n
// elements of p, n < kLanes, and `rest` in the other lanes; those of x, and zeros.
#if defined(__AVX512F__)

// Masked, although max, min and scalef need no mask: GCC warns of a register in its own header that is not set.
#define WENGERT_PACK(T, suffix, Mask)                                                         \
  WENGERT_INLINE Pack<T> larger(const Pack<T>& x, const Pack<T>& y) {                         \
    return Pack<T>(_mm512_maskz_max_##suffix(static_cast<Mask>(-1), x.v, y.v));               \
  }                                                                                           \
  WENGERT_INLINE Pack<T> smaller(const Pack<T>& x, const Pack<T>& y) {                        \
    return Pack<T>(_mm512_maskz_min_##suffix(static_cast<Mask>(-1), x.v, y.v));               \
  }                                                                                           \
  WENGERT_INLINE Pack<T> scale_successor(const Pack<T>& y, const Pack<T>& n) {                \
    return Pack<T>(_mm512_maskz_scalef_##suffix(static_cast<Mask>(-1), (y + T{1}).v, n.v));   \
  }                                                                                           \
  WENGERT_INLINE Pack<T> load_first(const T* p, int64_t n, T rest) {                          \
    return Pack<T>(_mm512_mask_loadu_##suffix(Pack<T>(rest).v, Pack<T>::Lanes::first(n), p)); \
  }                                                                                           \
  WENGERT_INLINE Pack<T> first(const Pack<T>& x, int64_t n) {                                 \
    return Pack<T>(_mm512_maskz_mov_##suffix(Pack<T>::Lanes::first(n), x.v));                 \
  }
WENGERT_PACK(float, ps, __mmask16)
WENGERT_PACK(double, pd, __mmask8)
#undef WENGERT_PACK

#else

template <class T>
WENGERT_INLINE Pack<T> larger(const Pack<T>& x, const Pack<T>& y) {
  return Pack<T>(x.v > y.v ? x.v : y.v);
}
template <class T>
WENGERT_INLINE Pack<T> smaller(const Pack<T>& x, const Pack<T>& y) {
  return Pack<T>(x.v < y.v ? x.v : y.v);
}
template <class T>
WENGERT_INLINE Pack<T> scale_successor(const Pack<T>& y, const Pack<T>& n) {  // in two steps: 2^n may be no number
  using Bits = typename Pack<T>::Bits;
  constexpr BitsOf<T> kOffset = 2048;  // keeps the shifted value positive
  const Bits whole = reinterpret_cast<Bits>((n + Format<T>::kRounder).v) - to_bits(Format<T>::kRounder);
  const Bits half = ((whole + 2 * kOffset) >> 1) - kOffset;
  const auto power = [](const Bits& of) {
    return Pack<T>(reinterpret_cast<typename Pack<T>::Register>((of + Format<T>::kBias) << Format<T>::kMantissa));
  };
  const Pack<T> s = power(half);
  return madd(s, y, s) * power(whole - half);
}
template <class T>
WENGERT_INLINE Pack<T> first(const Pack<T>& x, int64_t n, T rest = T{0}) {
  typename Pack<T>::Bits lane;
  for (int64_t k = 0; k < Pack<T>::kLanes; ++k) lane[k] = static_cast<BitsOf<T>>(k);
  return Pack<T>(lane < static_cast<BitsOf<T>>(n) ? x.v : Pack<T>(rest).v);
}
template <class T>
WENGERT_INLINE Pack<T> load_first(const T* p, int64_t n, T rest) {
  return first(Pack<T>(Pack<T>::Lanes::load_first(p, n)), n, rest);
}

#endif

WENGERT_INLINE Pack<float> expm1_reduced(const Pack<float>& r) { return expm1_reduced_single(r); }
WENGERT_INLINE Pack<double> expm1_reduced(const Pack<double>& r) { return madd(r * r, exp_quadratic(r), r); }

namespace math {

// NaN of NaN.
template <class T>
WENGERT_INLINE Pack<T> exp(const Pack<T>& x) {
  using F = Format<T>;
  const Pack<T> c = smaller(Pack<T>(F::kExpHigh), larger(Pack<T>(F::kExpLow), x));
  const Pack<T> t = madd(c, Pack<T>(static_cast<T>(1.4426950408889634)), Pack<T>(F::kRounder));
  const Pack<T> n = t - F::kRounder;
  const Pack<T> r = madd(n, Pack<T>(-F::kLn2Low), madd(n, Pack<T>(-F::kLn2High), c));
  return scale_successor(expm1_reduced(r), n);
}

}  // namespace math

// All lanes as one: a half with the other, as long as there are two. `join(x, y)` changes x.
template <class T, class Join>
WENGERT_INLINE T join_lanes(const Pack<T>& x, Join join) {
  using Quad [[gnu::vector_size(16)]] = T;
  constexpr int kQuads = sizeof(x.v) / 16;
  Quad q[kQuads];
  std::memcpy(q, &x.v, sizeof(x.v));
#pragma GCC unroll 4
  for (int width = kQuads / 2; width > 0; width /= 2) {
#pragma GCC unroll 2
    for (int k = 0; k < width; ++k) join(q[k], q[k + width]);
  }
  T a = q[0][0], b = q[0][1];
  if constexpr (sizeof(T) == 4) {
    const T c = q[0][2], d = q[0][3];
    join(a, c);
    join(b, d);
  }
  join(a, b);
  return a;
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
