// Element types as C++ types, for the kernels that do arithmetic outside the vector tables.
#pragma once
#include <complex>

#include "../dtype.h"
#include "../error.h"

namespace wengert {

// What an element is computed in. Half types are widened to float; integers wrap modulo 2⁶⁴, so that overflow
// is defined and narrowing gives the same bits as arithmetic in the narrow type.
template <class T>
struct Number {
  using Wide = uint64_t;
  static Wide widen(T x) { return static_cast<Wide>(x); }
  static T narrow(Wide x) { return static_cast<T>(x); }
};
template <class T>
struct SameNumber {
  using Wide = T;
  static Wide widen(T x) { return x; }
  static T narrow(Wide x) { return x; }
};
template <>
struct Number<float> : SameNumber<float> {};
template <>
struct Number<double> : SameNumber<double> {};
template <>
struct Number<std::complex<float>> : SameNumber<std::complex<float>> {};
template <>
struct Number<std::complex<double>> : SameNumber<std::complex<double>> {};
template <>
struct Number<Half> {
  using Wide = float;
  static Wide widen(Half x) { return to_float(x); }
  static Half narrow(Wide x) { return to_half(x); }
};
template <>
struct Number<BFloat> {
  using Wide = float;
  static Wide widen(BFloat x) { return to_float(x); }
  static BFloat narrow(Wide x) { return to_bfloat(x); }
};

// An element as bits. Packed, because foreign buffers promise the alignment of their own type only (a
// complex64 is aligned to 4 bytes); may_alias, because the bits belong to another type.
template <class T>
struct __attribute__((packed, may_alias)) Bits {
  T bits;
};
struct Pair {
  uint64_t low, high;
};

// Calls f.operator()<E>() with the type of elements of 1, 2, 4, 8 or 16 bytes.
template <class F>
void with_element(int64_t element, F&& f) {
  switch (element) {
    case 1: return f.template operator()<Bits<uint8_t>>();
    case 2: return f.template operator()<Bits<uint16_t>>();
    case 4: return f.template operator()<Bits<uint32_t>>();
    case 8: return f.template operator()<Bits<uint64_t>>();
    default: return f.template operator()<Bits<Pair>>();
  }
}

// Calls f.operator()<T>() with the C++ type of a numeric dtype. Bool is refused: arithmetic on it is not
// defined.
template <class F>
void with_number(DType dtype, F&& f) {
  switch (dtype) {
    case DType::Bool: break;
    case DType::Int8: return f.template operator()<int8_t>();
    case DType::Int16: return f.template operator()<int16_t>();
    case DType::Int32: return f.template operator()<int32_t>();
    case DType::Int64: return f.template operator()<int64_t>();
    case DType::UInt8: return f.template operator()<uint8_t>();
    case DType::UInt16: return f.template operator()<uint16_t>();
    case DType::UInt32: return f.template operator()<uint32_t>();
    case DType::UInt64: return f.template operator()<uint64_t>();
    case DType::Float16: return f.template operator()<Half>();
    case DType::BFloat16: return f.template operator()<BFloat>();
    case DType::Float32: return f.template operator()<float>();
    case DType::Float64: return f.template operator()<double>();
    case DType::Complex64: return f.template operator()<std::complex<float>>();
    case DType::Complex128: return f.template operator()<std::complex<double>>();
  }
  throw Error(ErrorKind::dtype, "arithmetic on bool is not defined; cast to an integer dtype first");
}

}  // namespace wengert
