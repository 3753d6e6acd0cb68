// Element types: their sizes, names, classes, and the promotion of two of them (array API rules).
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace wengert {

enum class DType : uint8_t {
  Bool,
  Int8,
  Int16,
  Int32,
  Int64,
  UInt8,
  UInt16,
  UInt32,
  UInt64,
  Float16,
  BFloat16,
  Float32,
  Float64,
  Complex64,
  Complex128,
};
inline constexpr int kNumDTypes = 15;

struct DTypeInfo {
  const char* name;
  uint8_t bytes;
  char kind;  // 'b' bool, 'i' signed, 'u' unsigned, 'f' floating, 'c' complex
};

inline constexpr DTypeInfo kDTypeInfo[kNumDTypes] = {
    {"bool", 1, 'b'},     {"int8", 1, 'i'},    {"int16", 2, 'i'},   {"int32", 4, 'i'},     {"int64", 8, 'i'},
    {"uint8", 1, 'u'},    {"uint16", 2, 'u'},  {"uint32", 4, 'u'},  {"uint64", 8, 'u'},    {"float16", 2, 'f'},
    {"bfloat16", 2, 'f'}, {"float32", 4, 'f'}, {"float64", 8, 'f'}, {"complex64", 8, 'c'}, {"complex128", 16, 'c'},
};

constexpr const DTypeInfo& info(DType t) { return kDTypeInfo[static_cast<int>(t)]; }
constexpr int64_t size_of(DType t) { return info(t).bytes; }
constexpr const char* name_of(DType t) { return info(t).name; }
constexpr bool is_floating(DType t) { return info(t).kind == 'f'; }
constexpr bool is_complex(DType t) { return info(t).kind == 'c'; }
constexpr bool is_inexact(DType t) { return is_floating(t) || is_complex(t); }
constexpr bool is_integer(DType t) { return info(t).kind == 'i' || info(t).kind == 'u'; }
constexpr bool is_half(DType t) { return t == DType::Float16 || t == DType::BFloat16; }
constexpr DType real_of(DType t) {
  return t == DType::Complex64 ? DType::Float32 : t == DType::Complex128 ? DType::Float64 : t;
}
constexpr DType complex_of(DType t) {
  return t == DType::Float32 ? DType::Complex64 : t == DType::Float64 ? DType::Complex128 : t;
}

// The dtype of an operation on two tensors. A floating operand wins over an integer one; float16 with
// bfloat16 gives float32; uint64 with a signed integer gives float32, the default floating type.
DType promote(DType a, DType b);

// Storage of the two 16-bit floating types; arithmetic is done in float.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

float to_float(Half h);
Half to_half(float f);  // round to nearest even, overflow to infinity

inline float to_float(BFloat b) { return std::bit_cast<float>(static_cast<uint32_t>(b.bits) << 16); }
inline BFloat to_bfloat(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40)};  // keep NaN a NaN
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16)};
}

}  // namespace wengert
