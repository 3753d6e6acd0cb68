#include "memory.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace wengert {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t physical_memory() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return bytes;
}

// Maps `alignment` more than needed and gives back what lies outside the aligned part.
char* map_aligned(size_t size, size_t alignment) {
  const size_t mapped = size + alignment;
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  char* start = static_cast<char*>(p);
  char* data = start + (-reinterpret_cast<uintptr_t>(start) & (alignment - 1));
  if (data > start) munmap(start, data - start);
  munmap(data + size, start + mapped - (data + size));
  return data;
}

// WENGERT_POOL_BYTES: the most that is cached. With 0, every buffer comes from malloc and goes back to it, where
// poisoned heaps (MALLOC_PERTURB_) and sanitizers see what is read before it is written, too late, or past its end.
size_t most_pooled_bytes() {
  const char* given = std::getenv("WENGERT_POOL_BYTES");
  return given && *given ? std::strtoull(given, nullptr, 10) : physical_memory() / 2;
}

// `size` is that of the block's size class; `used` is how much is needed, for a block that will not be reused.
char* system_allocate(size_t size, size_t used) {
  if (size < kHugePage) return static_cast<char*>(std::aligned_alloc(kLine, used));
  char* data = map_aligned(size, kHugePage);
  if (!data) return nullptr;
#ifdef MADV_HUGEPAGE
  // Whole huge pages only: a last page that is used in part would be resident in full.
  madvise(data, size & ~(kHugePage - 1), MADV_HUGEPAGE);
#endif
  return data;
}

size_t freed_to_malloc = 0;  // at most this much of malloc's free memory is resident

void system_free(char* data, size_t size) {
  if (size < kHugePage) {
    std::free(data);
    freed_to_malloc += size;
  } else {
    munmap(data, size);
  }
}

// malloc keeps the pages of blocks below kHugePage that lie between used ones. They are returned once they may be more
// than `most`; in between, the next block finds pages that need not be made anew.
void return_free_pages(size_t most) {
  if (freed_to_malloc <= most) return;
#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 33)
  freed_to_malloc = std::min(freed_to_malloc, mallinfo2().fordblks);  // the rest is in use again
  if (freed_to_malloc <= most) return;
#endif
  malloc_trim(0);
#endif
  freed_to_malloc = 0;
}

}  // namespace

constinit MemoryPool memory_pool = {};

namespace {

const MemoryWatch* memory_watch = nullptr;
size_t most_live = 0;  // at once, before the peak was last reset

void set_thresholds() {
  const size_t peak = memory_pool.stats.peak_bytes, limit = memory_pool.limit;
  const bool all = memory_watch || memory_pool.noting;
  memory_pool.notice_above = all ? 0 : limit ? std::min(peak, limit) : peak;
  memory_pool.pool_up_to = memory_watch ? 0 : memory_pool.most_pooled;
}

[[gnu::noinline]] void give_back(Buffer* b) {
  system_free(b->data, kClassBytes.of[b->size_class]);
  memory_pool.headers.give(b);
}

// Returns the most recently cached block of a class to the system.
void drop_cached(int c) {
  Buffer* b = memory_pool.head[c];
  memory_pool.head[c] = static_cast<Buffer*>(b->owner);
  memory_pool.stats.pooled_bytes -= kClassBytes.of[c];
  give_back(b);
}

}  // namespace

void watch_memory(const MemoryWatch* watch) {
  memory_watch = watch;
  set_thresholds();
}

Chunk* new_chunk() {
  char* p = map_aligned(kChunkBytes, kChunkBytes);
  if (!p) throw std::bad_alloc();
  return new (p) Chunk{};
}

void drop_chunk(Chunk* c) { munmap(c, kChunkBytes); }

const char* name_of(Category c) {
  static constexpr const char* names[kNumCategories] = {"other",    "activation", "parameter",
                                                        "gradient", "optimizer",  "workspace"};
  return names[static_cast<int>(c)];
}

MemoryHooks memory_hooks;
void (*drop_source_line)(SourceLine) = nullptr;

namespace {

// Makes room for this many more live bytes, or throws.
void require_room(size_t bytes) {
  auto missing = [bytes] {
    const size_t needed = memory_pool.stats.live_bytes + bytes;
    return needed > memory_pool.limit ? needed - memory_pool.limit : 0;
  };
  if (missing()) memory_hooks.make_room(missing());
  if (missing()) memory_hooks.fail(bytes);
}

// How much live and cached blocks may take together: the limit, or a twelfth more than was ever live at once, and some
// megabytes, within which a step with blocks of other sizes than the last one finds them cached again in the next.
size_t most_held() {
  constexpr size_t kSpare = size_t{12} << 20;
  const size_t most = std::max(most_live, memory_pool.stats.peak_bytes);
  return memory_pool.limit ? memory_pool.limit : most + std::max(most / 12, kSpare);
}

// Returns cached blocks to the system, largest first, until a new block fits.
void give_back_cached(size_t size) {
  const MemoryStats& s = memory_pool.stats;
  const size_t most = most_held();
  for (int c = kNumClasses; c-- > 0 && s.live_bytes + s.pooled_bytes + size > most;)
    while (memory_pool.head[c] && s.live_bytes + s.pooled_bytes + size > most) drop_cached(c);
  constexpr size_t kSpare = size_t{14} << 20;
  const size_t held = s.live_bytes + s.pooled_bytes + size;
  return_free_pages(kSpare + most / 32 + (held < most ? most - held : 0));
}

}  // namespace

void set_limit(size_t bytes) {
  memory_pool.limit = bytes;
  set_thresholds();
}

void note_allocation(Buffer* b) {
  MemoryStats& s = memory_pool.stats;
  if (memory_pool.limit && s.live_bytes > memory_pool.limit) {
    try {
      require_room(0);
    } catch (...) {
      destroy(b);
      throw;
    }
  }
  s.peak_bytes = std::max(s.peak_bytes, s.live_bytes);
  set_thresholds();
  if (memory_watch) memory_watch->allocated(b);
  if (memory_pool.noting) memory_hooks.note_made(b);
}

void note_lines(bool on) {
  memory_pool.noting = on;
  set_thresholds();
}

namespace {

[[gnu::noinline]] void drop_written(Buffer* b) {
  if (b->written.counted) memory_hooks.uncount(b);
  drop_source_line(b->written);
}

}  // namespace

void set_written(Buffer* b, SourceLine owned) {
  if (b->written.code) drop_written(b);
  b->written = owned;
}

Buffer* allocate_slow(size_t bytes, int c, Category category) {
  if (bytes > physical_memory()) throw std::bad_alloc();
  if (memory_pool.limit) {
    require_room(bytes);
    if (Buffer* b = take_pooled(c, bytes, category)) return b;  // reuse memory that was just dropped
  }
  give_back_cached(kClassBytes.of[c]);
  if (memory_pool.system_requests == 0) {
    memory_pool.most_pooled = most_pooled_bytes();
    set_thresholds();
  }
  ++memory_pool.system_requests;
  const size_t size = kClassBytes.of[c];
  const size_t used = memory_pool.most_pooled ? size : kLine * std::max<size_t>(1, (bytes + kLine - 1) / kLine);
  char* data = system_allocate(size, used);
  if (!data) {
    empty_pool();
    data = system_allocate(size, used);
    if (!data) throw std::bad_alloc();
  }
  Buffer* b;
  try {
    b = static_cast<Buffer*>(memory_pool.headers.take());
  } catch (...) {
    system_free(data, size);
    throw;
  }
  b->size_class = static_cast<uint8_t>(c);
  b->data = data;
  start_life(b, bytes, category);
  return b;
}

Buffer* adopt_foreign(void* data, size_t bytes, void* owner, void (*release)(void*)) {
  Buffer* b = static_cast<Buffer*>(memory_pool.headers.take());
  *b = Buffer{.refs = 1,
              .version = 0,
              .saved = 0,
              .category = Category::other,
              .shared = false,
              .pinned = true,
              .size_class = kForeign,
              .data = static_cast<char*>(data),
              .bytes = bytes,
              .release = release,
              .owner = owner,
              .written = {}};
  return b;
}

namespace {

[[gnu::noinline]] void destroy_foreign(Buffer* b) {
  void (*release)(void*) = b->release;
  void* owner = b->owner;
  if (b->size_class == kOnDevice) free_on_device(owner, b->data, b->bytes);
  memory_pool.headers.give(b);  // first: the owner's destructor may allocate
  if (release) release(owner);
}

}  // namespace

void destroy(Buffer* b) {
  if (b->written.code) [[unlikely]]
    drop_written(b);
  const int c = b->size_class;
  if (c >= kManaged) [[unlikely]]
    return is_managed(b) ? memory_hooks.destroy_managed(b) : destroy_foreign(b);
  memory_pool.stats.live_bytes -= b->bytes;
  memory_pool.stats.live_by_category[static_cast<int>(b->category)] -= b->bytes;
  const size_t size = kClassBytes.of[c];
  if (memory_pool.stats.pooled_bytes + size > memory_pool.pool_up_to) [[unlikely]] {
    if (memory_watch) memory_watch->freed(b);
    if (memory_pool.stats.pooled_bytes + size > memory_pool.most_pooled) return give_back(b);
  }
  memory_pool.stats.pooled_bytes += size;
  b->owner = memory_pool.head[c];
  memory_pool.head[c] = b;
}

void set_category(Buffer* b, Category c) {
  if (b->size_class < kManagedOnDevice && b->category != c) {
    MemoryStats& s = memory_pool.stats;
    const int from = static_cast<int>(b->category), to = static_cast<int>(c);
    s.live_by_category[from] -= b->bytes;
    s.live_by_category[to] += b->bytes;
    if (b->saved) {
      s.saved_by_category[from] -= b->bytes;
      s.saved_by_category[to] += b->bytes;
    }
  }
  b->category = c;
}

MemoryStats memory_stats() {
  MemoryStats s = memory_pool.stats;
  s.pool_hits = s.allocations - memory_pool.system_requests;
  return s;
}

void reset_peak() {
  most_live = std::max(most_live, memory_pool.stats.peak_bytes);
  memory_pool.stats.peak_bytes = memory_pool.stats.live_bytes;
  set_thresholds();
}

void empty_pool() {
  for (int c = 0; c < kNumClasses; ++c) {
    while (memory_pool.head[c]) drop_cached(c);
  }
  memory_pool.headers.trim(0);
#ifdef __GLIBC__
  malloc_trim(0);  // returns the free memory that malloc keeps between used blocks
#endif
  freed_to_malloc = 0;
}

}  // namespace wengert
