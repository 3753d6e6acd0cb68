// A list of numbers or pointers whose length is known when it is made: on the stack while it is short. Not initialised.
#pragma once
#include <cstddef>
#include <memory>
#include <type_traits>

namespace wengert {

template <class T, size_t kFew>
class SmallArray {
  static_assert(std::is_trivially_default_constructible_v<T>);
  T few_[kFew];
  std::unique_ptr<T[]> many_;
  T* at_ = few_;

 public:
  explicit SmallArray(size_t n) {
    if (n > kFew) [[unlikely]] {
      many_.reset(new T[n]);
      at_ = many_.get();
    }
  }
  SmallArray(const SmallArray&) = delete;
  SmallArray& operator=(const SmallArray&) = delete;
  T& operator[](size_t i) { return at_[i]; }
  T* data() { return at_; }
};

}  // namespace wengert
