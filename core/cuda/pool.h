// A caching allocator of a GPU's memory. Blocks that are given back are kept by size, the last one first: a loop gets
// the same addresses every time round. Each stream has blocks of its own: what was used on one stream alone can be used
// again there at once, since the stream does one thing after the other. Of others the pool is told who uses them.
#pragma once
#include <memory>
#include <vector>

#include "events.h"
#include "libraries.h"

namespace wengert::cuda {

struct PoolStats {
  size_t reserved_bytes = 0, peak_reserved_bytes = 0;  // taken from the driver
  size_t live_bytes = 0, peak_bytes = 0;
  uint64_t allocations = 0, system_requests = 0;
};

// Memory that belongs to a graph: what its nodes use between its inputs and outputs. It stays as long as the graph.
class Arena;

class Pool {
 public:
  PoolStats stats;

  explicit Pool(Events& events);
  ~Pool();
  Pool(const Pool&) = delete;

  // For use on this stream; null is the device's own. Throws std::bad_alloc, after giving what is cached back to the
  // driver and trying again.
  char* allocate(size_t bytes, Stream stream);
  void free(char* data, size_t bytes) noexcept;
  void empty() noexcept;  // gives cached blocks back to the driver; waits where it is not known whether they are in use

  // The block is used on this stream, too: once it is given back, it waits until that work has been done.
  void note_use(const char* block, Stream stream);
  // Other libraries know the block, and may use it on streams that are not known here: once it is given back, it waits
  // until everything has been done.
  void note_outside(const char* block);
  // Everything that was started before `ticket` was asked for has been done: what waited for it can be used again.
  uint64_t ticket() const noexcept;
  void settle(uint64_t ticket) noexcept;

  // Between these, memory comes from the arena, and goes back to it whenever it is given back.
  std::shared_ptr<Arena> begin_arena();
  void end_arena();

 private:
  friend class Arena;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace wengert::cuda
