// DLPack, by which array libraries share memory: the structures of its binary interface, versions 0.8 and 1.x
// (dmlc.github.io/dlpack).
#pragma once
#include <cstdint>

namespace wengert::dlpack {

enum DeviceType : int32_t { kHost = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };  // of those that we know
enum TypeCode : uint8_t { kInt = 0, kUnsigned = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };

struct Place {  // DLDevice
  int32_t type;
  int32_t number;
};

struct ElementType {  // DLDataType
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Array {  // DLTensor
  void* data;
  Place place;
  int32_t ndim;
  ElementType type;
  int64_t* shape;
  int64_t* strides;  // in elements; null: packed
  uint64_t byte_offset;
};

// Of the two the consumer calls `drop` when it needs the memory no more: at any time, on any thread.
struct Unversioned {  // DLManagedTensor
  Array array;
  void* owner;
  void (*drop)(Unversioned*);
};

struct Versioned {  // DLManagedTensorVersioned
  uint32_t major, minor;
  void* owner;
  void (*drop)(Versioned*);
  uint64_t flags;
  Array array;
};

inline constexpr uint64_t kReadOnly = 1, kCopied = 2;
inline constexpr uint32_t kMajor = 1, kMinor = 0;

}  // namespace wengert::dlpack
