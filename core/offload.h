// Buffer contents moved elsewhere: to a file, or to memory in a smaller type.
#pragma once
#include <memory>
#include <string>

#include "memory.h"
#include "shape.h"

namespace wengert {

enum class Codec : uint8_t { none, bfloat16, int8 };

// Where contents go: an unnamed file in a folder, or memory if the folder is empty. Space that was read back is reused.
class Store;
std::shared_ptr<Store> open_store(const std::string& folder);  // throws if there is no such folder

// Stored contents. The codec rounds floating numbers of 4 and 8 bytes; everything else is stored unchanged.
class Stored {
 public:
  Stored(std::shared_ptr<Store> store, DType dtype, Codec codec, const char* data, size_t bytes);
  Stored(const Stored&) = delete;
  ~Stored();
  void read(char* data) const;  // writes as many bytes as were stored

 private:
  std::shared_ptr<Store> store_;
  DType dtype_;
  Codec codec_;
  size_t bytes_, kept_ = 0;
  double scale_ = 1;  // int8 only: the value that 127 represents
  int64_t at_ = 0;
};

}  // namespace wengert
