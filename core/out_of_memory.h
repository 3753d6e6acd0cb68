// What is said when the memory of a tensor cannot be had.
#pragma once
#include <cstdio>
#include <new>
#include <string>

#include "shape.h"

namespace wengert {

// How much room there is on a device, as a part of a sentence; set by devices.
extern std::string (*describe_room)(uint8_t device);

class OutOfMemory : public std::bad_alloc {
  std::string message_;

 public:
  uint8_t device = 0;

  explicit OutOfMemory(const Type& t) : device(t.device) {
    double bytes = static_cast<double>(size_of(t.dtype));  // the product may overflow any integer
    for (Dim d : t.shape) bytes *= static_cast<double>(d.hint());
    char needed[64];
    std::snprintf(needed, sizeof needed, "%.0f MB", bytes / (1 << 20));
    message_ = "out of memory: " + to_string(t) + " takes " + needed;
    if (t.device && describe_room) message_ += describe_room(t.device);
    message_ += "; live tensors are unharmed";
  }
  OutOfMemory(const char* op, const Dims& shape)
      : message_(std::string(op) + ": out of memory: a tensor of shape " + to_string(shape) +
                 " exceeds the address space") {}
  const char* what() const noexcept override { return message_.c_str(); }
};

}  // namespace wengert
