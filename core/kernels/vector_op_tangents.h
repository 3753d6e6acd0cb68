// Products of tangents with strong zero, parts of complex numbers, and choices. One functor per line of
// elementwise.def.
#pragma once
#include "vector_op_arithmetic.h"

namespace wengert::WENGERT_ISA_NAMESPACE::op {

// The product of a tangent with a coefficient, with strong zero: nothing flows where the tangent is 0,
// whatever the coefficient.
struct scale {
  static constexpr bool modular = true;
  template <Integer T>
  WENGERT_INLINE static T apply(T t, T c) {
    return mul::apply(t, c);
  }
  template <Float T>
  WENGERT_INLINE static T apply(T t, T c) {
    return t == T{0} ? T{0} : t * c;
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> t, Complex<T> c) {
    const Complex<T> y = complex::mul(t, c);
    const bool zero = complex::is_zero(t);
    return {zero ? T{0} : y.re, zero ? T{0} : y.im};
  }
};
// Where both are tangents of their own: nothing flows where either is 0.
struct strong_product {
  static constexpr bool modular = true;
  template <Integer T>
  WENGERT_INLINE static T apply(T a, T b) {
    return mul::apply(a, b);
  }
  template <Float T>
  WENGERT_INLINE static T apply(T a, T b) {
    return a == T{0} || b == T{0} ? T{0} : a * b;
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a, Complex<T> b) {
    const Complex<T> y = complex::mul(a, b);
    const bool zero = complex::is_zero(a) || complex::is_zero(b);
    return {zero ? T{0} : y.re, zero ? T{0} : y.im};
  }
};
struct unscale {
  template <Float T>
  WENGERT_INLINE static T apply(T t, T c) {
    return t == T{0} ? T{0} : t / c;
  }
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> t, Complex<T> c) {
    const Complex<T> y = complex::div(t, c);
    const bool zero = complex::is_zero(t);
    return {zero ? T{0} : y.re, zero ? T{0} : y.im};
  }
};

struct conj {
  template <class T>
  WENGERT_INLINE static Complex<T> apply(Complex<T> a) {
    return {a.re, -a.im};
  }
};
struct real {
  template <class T>
  WENGERT_INLINE static T apply(Complex<T> a) {
    return a.re;
  }
};
struct imag {
  template <class T>
  WENGERT_INLINE static T apply(Complex<T> a) {
    return a.im;
  }
};
struct make_complex {
  template <Float T>
  WENGERT_INLINE static Complex<T> apply(T re, T im) {
    return {re, im};
  }
};

// Told apart by the table, which maps them on the size of an element.
struct where {};
struct copy {};

}  // namespace wengert::WENGERT_ISA_NAMESPACE::op
