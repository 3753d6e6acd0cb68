// Contents of buffers, put away elsewhere: into a file, or into memory in a smaller type.
#pragma once
#include <memory>
#include <string>

#include "memory.h"
#include "shape.h"

namespace wengert {

enum class Codec : uint8_t { none, bfloat16, int8 };

// Where contents are put: a file without a name in a folder; or memory, if the folder is empty. Places of what was
// taken back are used again.
class Store;
std::shared_ptr<Store> open_store(const std::string& folder);  // throws if there is no such folder

// Contents that were put away. Floating numbers of 4 and 8 bytes are rounded by the codec; others stay as they are.
class Stored {
 public:
  Stored(std::shared_ptr<Store> store, DType dtype, Codec codec, const char* data, size_t bytes);
  Stored(const Stored&) = delete;
  ~Stored();
  void read(char* data) const;  // of as many bytes as were put away

 private:
  std::shared_ptr<Store> store_;
  DType dtype_;
  Codec codec_;
  size_t bytes_, kept_ = 0;
  double scale_ = 1;  // of int8: what 127 stands for
  int64_t at_ = 0;
};

}  // namespace wengert
