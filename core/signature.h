// The signature of a call, as bytes, on the stack if they are few. Calls with equal signatures may share a trace;
// guards on sizes and numbers decide.
#pragma once
#include <cstring>
#include <string>
#include <string_view>

#include "value.h"

namespace wengert {

class CallSignature {
 public:
  void put(char tag) { append(&tag, 1); }

  template <class T>
  void put(char tag, T x) {
    char bytes[1 + sizeof x];
    bytes[0] = tag;
    std::memcpy(bytes + 1, &x, sizeof x);
    append(bytes, sizeof bytes);
  }

  void put_text(char tag, std::string_view text) {
    put(tag, text.size());
    append(text.data(), text.size());
  }

  // Dtype, device, rank, and which sizes are 1.
  void put_tensor(const Value* v) {
    put('T', static_cast<uint16_t>(static_cast<uint16_t>(v->dtype) << 8 | v->device));
    uint16_t ones = 0;
    for (int i = 0; i < v->ndim; ++i) ones |= static_cast<uint16_t>((v->shape[i] == 1) << i);
    put(static_cast<char>(v->ndim), ones);
  }

  std::string_view bytes() const { return many_.empty() ? std::string_view(few_, n_) : std::string_view(many_); }

 private:
  char few_[224];
  size_t n_ = 0;
  std::string many_;

  void append(const void* bytes, size_t n) {
    if (many_.empty() && n_ + n <= sizeof few_) [[likely]] {
      std::memcpy(few_ + n_, bytes, n);
      n_ += n;
      return;
    }
    if (many_.empty()) many_.assign(few_, n_);
    many_.append(static_cast<const char*>(bytes), n);
  }
};

}  // namespace wengert
