// The texts of kernels. A body is a function of words (addresses, sizes, constants) and of the number of its block. A
// kernel runs one body, or the blocks of several that do not depend on each other; a unit of it may be a sequence of
// bodies that one block runs one after the other.
#pragma once
#include <string>
#include <vector>

namespace wengert::cuda {

struct Body {
  std::string name;        // what profilers show
  std::string header;      // the device header that it is written in terms of
  std::string text;        // what stands behind its name: parameters and statements
  int words = 0;           // that it takes
  int block = 256;         // threads
  int shared = 0;          // bytes of shared memory, at most; with them, threads of different warps wait for each other
  int dynamic_shared = 0;  // bytes that the launch gives besides; such a body runs alone
  int resident = 1;        // blocks for which a multiprocessor has registers, at least
  bool series = false;     // whether it calls functors of device_series.h
};

// The parameters of a body.
inline constexpr char kBodyParameters[] = "(const int64_t* words, int64_t block_number)";

// Such as "mul_add_tanh_kernel": the words of a text that C++ could name something by.
std::string kernel_name(const std::string& text);

// A kernel that runs one body, under `kernel_name` of the body's name.
std::string kernel_text(const Body& body);

using Unit = std::vector<const Body*>;  // one body, or a sequence of them

// Units whose blocks lie beside each other in one launch. Words: the first block of each unit, then for each body of a
// sequence its number of blocks, then the words of all bodies in order.
struct JoinedKernel {
  static constexpr int kBlock = 256;
  std::vector<Unit> units;

  std::string name(size_t number) const;
  int leading_words() const;
  int words() const;
};

// One source of kernels, under their names with their numbers.
std::string joined_text(const std::vector<JoinedKernel>& kernels);

}  // namespace wengert::cuda
