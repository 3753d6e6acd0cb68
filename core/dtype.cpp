#include "dtype.h"

namespace wengert {

namespace {

// Rank within a kind, by width: the wider of two types of one kind wins.
DType wider(DType a, DType b) { return size_of(a) >= size_of(b) ? a : b; }

DType promote_integers(DType a, DType b) {
  bool a_signed = info(a).kind == 'i', b_signed = info(b).kind == 'i';
  if (a_signed == b_signed) return wider(a, b);
  DType s = a_signed ? a : b, u = a_signed ? b : a;
  if (size_of(s) > size_of(u)) return s;
  switch (u) {
    case DType::UInt8: return DType::Int16;
    case DType::UInt16: return DType::Int32;
    case DType::UInt32: return DType::Int64;
    default: return DType::Float32;
  }
}

}  // namespace

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::Bool) return b;
  if (b == DType::Bool) return a;
  if (is_integer(a) && is_integer(b)) return promote_integers(a, b);
  if (is_integer(a)) return b;
  if (is_integer(b)) return a;
  if (is_complex(a) || is_complex(b)) {
    DType widest = promote(real_of(a), real_of(b));
    return widest == DType::Float64 ? DType::Complex128 : DType::Complex64;
  }
  if (is_half(a) && is_half(b)) return DType::Float32;
  return wider(a, b);
}

float to_float(Half h) {
  uint32_t sign = (h.bits & 0x8000u) << 16, exponent = (h.bits >> 10) & 0x1f, mantissa = h.bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: mantissa · 2⁻²⁴ is exact in float
    float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

Half to_half(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f);
  uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (u >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds to infinity
  if (u < 0x38800000u) {  // subnormal half: adding 0.5 lets the float unit round to the 2⁻²⁴ grid
    float shifted = std::bit_cast<float>(u) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  uint32_t rounded = u + 0xfffu + ((u >> 13) & 1);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

}  // namespace wengert
