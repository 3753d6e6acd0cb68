// A caching allocator of a GPU's memory. Blocks that are given back are kept by size, the last one first: a loop gets
// the same addresses every time round. All work is on one stream, so that a block can be used again at once.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "libraries.h"

namespace wengert::cuda {

struct PoolStats {
  size_t reserved_bytes = 0;  // taken from the driver
  size_t live_bytes = 0, peak_bytes = 0;
  uint64_t allocations = 0, system_requests = 0;
};

// Memory that belongs to a graph: what its nodes use between its inputs and outputs. It stays as long as the graph.
class Arena;

class Pool {
 public:
  PoolStats stats;

  Pool();
  ~Pool();
  Pool(const Pool&) = delete;

  // Throws std::bad_alloc, after giving what is cached back to the driver and trying again.
  char* allocate(size_t bytes);
  void free(char* data, size_t bytes) noexcept;
  void empty() noexcept;  // gives cached blocks back to the driver

  // Between these, memory comes from the arena, and goes back to it whenever it is given back.
  std::shared_ptr<Arena> begin_arena();
  void end_arena();

 private:
  friend class Arena;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace wengert::cuda
