// What every thread has for itself, such as memory for blocks: one object of a type, made at its first use, on the
// heap. `thread_local` is for pointers and switches. Python loads this library at run time, and to such libraries the C
// library gives about 1,600 bytes of thread-local variables (those of the initial-exec model), all together: what we
// take may be missing where PyTorch's or scikit-learn's OpenMP is loaded next. tests/interop/test_libraries.py has our
// limit.
#pragma once
#include <memory>

namespace wengert {

template <class T>
T& per_thread() {
  static thread_local std::unique_ptr<T> object;
  if (!object) [[unlikely]]
    object = std::make_unique<T>();
  return *object;
}

}  // namespace wengert
