#include "host_memory.h"

#include <bit>
#include <map>
#include <memory>
#include <new>
#include <vector>

namespace wengert::cuda {

namespace {

constexpr unsigned kPortable = 1;  // for every GPU
constexpr size_t kLeast = 4096;

struct Block {
  char* data;
  size_t bytes;
  std::vector<std::pair<Events*, Event>> copies;  // that may be under way

  bool done() {
    for (; !copies.empty(); copies.pop_back()) {
      auto& [events, event] = copies.back();
      if (!events->done(event)) return false;
      events->give_back(event);
    }
    return true;
  }
};

struct HostMemory {
  std::multimap<size_t, std::unique_ptr<Block>> free;  // by size
  HostMemoryStats stats;
};

HostMemory& memory() {
  static auto* made = new HostMemory;
  return *made;
}

void release_block(void* owner) {
  if (in_forked_child()) return;
  std::unique_ptr<Block> block(static_cast<Block*>(owner));
  memory().stats.live_bytes -= block->bytes;
  const size_t bytes = block->bytes;
  memory().free.emplace(bytes, std::move(block));
}

std::unique_ptr<Block> take_free(size_t bytes) {
  auto [first, last] = memory().free.equal_range(bytes);
  for (auto at = first; at != last; ++at) {
    if (!at->second->done()) continue;
    std::unique_ptr<Block> found = std::move(at->second);
    memory().free.erase(at);
    return found;
  }
  return nullptr;
}

std::unique_ptr<Block> request(size_t bytes) {
  void* data = nullptr;
  if (driver().cuMemHostAlloc(&data, bytes, kPortable)) {
    empty_host_memory();
    checked(driver().cuMemHostAlloc(&data, bytes, kPortable), "cuMemHostAlloc");
  }
  memory().stats.reserved_bytes += bytes;
  return std::make_unique<Block>(Block{static_cast<char*>(data), bytes, {}});
}

}  // namespace

Buffer* allocate_page_locked(size_t bytes) {
  const size_t rounded = std::bit_ceil(bytes < kLeast ? kLeast : bytes);
  std::unique_ptr<Block> block = take_free(rounded);
  if (!block) block = request(rounded);
  Buffer* b = adopt_foreign(block->data, bytes, block.get(), release_block);
  b->pinned = false;  // nobody else knows it
  memory().stats.live_bytes += rounded;
  block.release();
  return b;
}

bool is_page_locked(const Buffer* b) { return b->size_class == kForeign && b->release == release_block; }

void note_copy(const Buffer* b, Events& events, Event event) {
  static_cast<Block*>(b->owner)->copies.emplace_back(&events, event);
}

HostMemoryStats host_memory_stats() { return memory().stats; }

void empty_host_memory() noexcept {
  for (auto& [bytes, block] : memory().free) {
    for (auto& [events, event] : block->copies) events->give_back(event);  // freeing waits for all that is under way
    driver().cuMemFreeHost(block->data);
    memory().stats.reserved_bytes -= bytes;
  }
  memory().free.clear();
}

}  // namespace wengert::cuda
