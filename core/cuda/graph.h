// Programs as CUDA graphs. A program that runs for the second time with operands of the same shapes is noted as tasks,
// which a schedule makes into the nodes of a graph; later runs replay it with one launch. What differs from run to run
// is written into the nodes: addresses of inputs and outputs, and numbers that the host computes.
#pragma once
#include <memory>

#include "device.h"

namespace wengert::cuda {

// Thrown while a graph is captured by what cannot be a node of it.
struct Uncapturable {};

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
