// What reductions do with two elements, what they accumulate in, and their values for nothing.
#pragma once
#include "vector_complex.h"
#include "vector_types.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// The type that a reduction accumulates in: signed sums and products wrap, 16-bit floating ones are in float.
template <class S, bool Modular>
struct AccumulatorOf {
  using type = S;
};
template <Integer S>
struct AccumulatorOf<S, true> {
  using type = std::make_unsigned_t<S>;
};
template <HalfNumber S, bool Modular>
struct AccumulatorOf<S, Modular> {
  using type = float;
};
template <class Op, class S>
using Accumulator = typename AccumulatorOf<S, Op::modular>::type;

template <class S, class A>
WENGERT_INLINE S store_as(A a) {
  if constexpr (HalfNumber<S>) {
    return narrow<S>(a);
  } else if constexpr (Integer<S>) {
    return static_cast<S>(a);
  } else {
    return a;
  }
}

// Each op on two elements, on two vectors, and its value for nothing. Vectors go by reference: how functions take and
// return them differs between instruction sets.
namespace reduction {

struct sum {
  static constexpr bool modular = true;
  template <class T>
  static constexpr T identity() {
    return T{};
  }
  template <class V>
  WENGERT_INLINE static void vector(V& a, const V& b) {
    a = a + b;
  }
  template <Real T>
  WENGERT_INLINE static T apply(T a, T b) {
    return static_cast<T>(a + b);
  }
  template <ComplexNumber T>
  WENGERT_INLINE static T apply(T a, T b) {
    return {a.re + b.re, a.im + b.im};
  }
};

struct prod {
  static constexpr bool modular = true;
  template <class T>
  static constexpr T identity() {
    if constexpr (ComplexNumber<T>) {
      return T{1, 0};
    } else {
      return T{1};
    }
  }
  template <class V>
  WENGERT_INLINE static void vector(V& a, const V& b) {
    a = a * b;
  }
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T b) {
    return static_cast<T>(Unsigned<T>(a) * Unsigned<T>(b));
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a, T b) {
    return a * b;
  }
  template <ComplexNumber T>
  WENGERT_INLINE static T apply(T a, T b) {
    return complex::mul(a, b);
  }
};

// The extremes keep a NaN once met: nothing compares greater than it, and another NaN replaces it.
template <class T>
constexpr T lowest() {
  if constexpr (Float<T>) {
    return -Format<T>::kInf;
  } else {
    return std::is_signed_v<T> ? static_cast<T>(uint64_t{1} << (sizeof(T) * 8 - 1)) : T{0};
  }
}
template <class T>
constexpr T highest() {
  if constexpr (Float<T>) {
    return Format<T>::kInf;
  } else {
    return static_cast<T>(~lowest<T>());
  }
}

struct max {
  static constexpr bool modular = false;
  template <class T>
  static constexpr T identity() {
    return lowest<T>();
  }
  template <class V>
  WENGERT_INLINE static void vector(V& a, const V& b) {
    a = (b > a) | (b != b) ? b : a;
  }
  template <Real T>
  WENGERT_INLINE static T apply(T a, T b) {
    return (b > a) | (b != b) ? b : a;
  }
};

struct min {
  static constexpr bool modular = false;
  template <class T>
  static constexpr T identity() {
    return highest<T>();
  }
  template <class V>
  WENGERT_INLINE static void vector(V& a, const V& b) {
    a = (b < a) | (b != b) ? b : a;
  }
  template <Real T>
  WENGERT_INLINE static T apply(T a, T b) {
    return (b < a) | (b != b) ? b : a;
  }
};

// On bytes of 0 and 1.
struct any : max {
  template <class T>
  static constexpr T identity() {
    return 0;
  }
};
struct all : min {
  template <class T>
  static constexpr T identity() {
    return 1;
  }
};

}  // namespace reduction

}  // namespace wengert::WENGERT_ISA_NAMESPACE
