// Buffer contents moved elsewhere: to a file, or to memory in a smaller type.
#pragma once
#include <memory>
#include <string>

#include "device.h"
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
  // `device`: whose memory it is; null: the host's.
  Stored(std::shared_ptr<Store> store, DType dtype, Codec codec, Device* device, const char* data, size_t bytes);
  Stored(const Stored&) = delete;
  ~Stored();
  // Writes as many bytes as were stored; a device may go on copying until `arrive`, which what it does afterwards waits
  // for.
  void fetch(char* data) const;
  void arrive() const;

 private:
  void put(const char* data);
  void get(char* data) const;

  std::shared_ptr<Store> store_;
  DType dtype_;
  Codec codec_;
  Device* device_;
  std::unique_ptr<Parked> parked_;  // of a device: in the host's memory as it is
  size_t bytes_, kept_ = 0;
  double scale_ = 1;  // int8 only: the value that 127 represents
  int64_t at_ = 0;
};

}  // namespace wengert
