// Programs as CUDA graphs. A program that runs for the second time with operands of the same shapes is captured: its
// launches become the nodes of a graph, which later runs replay with one launch. What differs from run to run is
// written into the nodes: addresses of inputs and outputs, and numbers that the host computes.
#pragma once
#include <memory>

#include "../regions.h"
#include "device.h"

namespace wengert::cuda {

// Thrown while a graph is captured by what cannot be a node of it.
struct Uncapturable {};

// A launch of a kernel of ours, while a graph is captured.
struct RecordedLaunch {
  struct Number {
    int32_t word;
    const void* data;  // of the host
    int64_t bytes;
  };
  Function function;
  unsigned grid, block;
  std::vector<int64_t> words;
  std::vector<Number> numbers;
};

// What is noted while a graph is captured.
struct Recording : NumberLog {
  struct LibraryProduct {  // cuBLASLt's nodes cannot be changed later
    const void *a, *b, *y;
  };
  std::shared_ptr<Arena> arena;
  std::vector<RecordedLaunch> launches;
  std::vector<LibraryProduct> products;
  std::vector<std::pair<int32_t, Ref>> numbers;             // results of the host's steps, by slot
  std::vector<std::pair<const char*, const char*>> staged;  // memory that may be elsewhere in other runs

  void add_number(int32_t slot, Value* number) override { numbers.emplace_back(slot, Ref::share(number)); }
  bool is_staged(const void* p) const {
    for (auto& [begin, end] : staged)
      if (p >= begin && p < end) return true;
    return false;
  }
};

class GraphCache : public Prepared {
 public:
  GraphCache();
  ~GraphCache() override;
  // Runs the program by a graph, or returns false: it is to run step by step.
  bool run(CudaDevice& gpu, const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out,
           Value* const* donated, int given);

 private:
  struct Entry;
  std::vector<std::unique_ptr<Entry>> entries_;
  enum class Kind : uint8_t { unknown, capturable, other } kind_ = Kind::unknown;
};

}  // namespace wengert::cuda
