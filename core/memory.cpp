#include "memory.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "arena.h"

namespace wengert {

namespace {

constexpr size_t kFromArena = size_t{16} << 10;  // size classes from here on are whole pages
static_assert(kClassBytes.of[class_of(kFromArena)] == kFromArena && kFromArena / 4 == kPage);

size_t physical_memory() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return bytes;
}

// WENGERT_POOL_BYTES: the most that is cached. With 0, every buffer comes from malloc and goes back to it, where
// poisoned heaps (MALLOC_PERTURB_) and sanitizers see what is read before it is written, too late, or past its end.
size_t most_pooled_bytes() {
  const char* given = std::getenv("WENGERT_POOL_BYTES");
  return given && *given ? std::strtoull(given, nullptr, 10) : physical_memory() / 2;
}

// Never destroyed, as buffers may outlive static objects.
Arena& arena() {
  static auto* const only = new Arena;
  return *only;
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

// Whether blocks of this size come from the arena. Without a pool all come from malloc.
bool from_arena(size_t size) { return size >= kFromArena && memory_pool.most_pooled; }

void free_block(char* data, size_t size) {
  if (!from_arena(size)) return std::free(data);
  arena().give(data, size);
}

[[gnu::noinline]] void give_back(Buffer* b) {
  free_block(b->data, block_bytes(b->size_class, b->bytes));
  memory_pool.headers.give(b);
}

// Gives up the most recently cached block of a class.
void drop_cached(int c) {
  Buffer* b = memory_pool.head[c];
  memory_pool.head[c] = static_cast<Buffer*>(b->owner);
  memory_pool.stats.pooled_bytes -= block_bytes(c, b->bytes);
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

// Gives up cached blocks, largest first, until a new block fits.
void give_back_cached(size_t size) {
  const MemoryStats& s = memory_pool.stats;
  const size_t most = most_held();
  for (int c = kNumClasses; c-- > 0 && s.live_bytes + s.pooled_bytes + size > most;)
    while (memory_pool.head[c] && s.live_bytes + s.pooled_bytes + size > most) drop_cached(c);
}

// Under a limit, live and cached blocks and free resident memory together may be a little more than live and cached
// blocks alone: memory that is free in pieces would otherwise go to the system and come back all the time.
char* cut_block(size_t size) {
  constexpr size_t kInPieces = size_t{10} << 20;
  char* data = arena().take(size);
  if (!data) return nullptr;
  const MemoryStats& s = memory_pool.stats;
  const size_t most = most_held() + (memory_pool.limit ? memory_pool.limit / 32 + kInPieces : 0);
  const size_t others = s.live_bytes + s.pooled_bytes + size;
  arena().keep_resident(most > others ? most - others : 0);
  return data;
}

// `size` is that of the block, `bytes` what is asked for, which is enough without a pool.
char* new_block(size_t size, size_t bytes) {
  if (from_arena(size)) return cut_block(size);
  const size_t lines = std::max<size_t>(1, (bytes + kLine - 1) / kLine);
  return static_cast<char*>(std::aligned_alloc(kLine, memory_pool.most_pooled ? size : kLine * lines));
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

Buffer* take_exact(int c, size_t bytes, Category category) {
  const size_t size = block_bytes(c, bytes);
  Buffer* before = nullptr;
  for (Buffer* b = memory_pool.head[c]; b; before = b, b = static_cast<Buffer*>(b->owner)) {
    if (block_bytes(c, b->bytes) != size) continue;
    if (before)
      before->owner = b->owner;
    else
      memory_pool.head[c] = static_cast<Buffer*>(b->owner);
    memory_pool.stats.pooled_bytes -= size;
    start_life(b, bytes, category);
    return b;
  }
  return nullptr;
}

Buffer* allocate_slow(size_t bytes, int c, Category category) {
  if (bytes > physical_memory()) throw std::bad_alloc();
  if (memory_pool.limit) {
    require_room(bytes);
    if (Buffer* b = take_pooled(c, bytes, category)) return b;  // reuse memory that was just dropped
  }
  const size_t size = block_bytes(c, bytes);
  give_back_cached(size);
  if (memory_pool.system_requests == 0) {
    memory_pool.most_pooled = most_pooled_bytes();
    set_thresholds();
  }
  ++memory_pool.system_requests;
  char* data = new_block(size, bytes);
  if (!data) {
    empty_pool();
    data = new_block(size, bytes);
    if (!data) throw std::bad_alloc();
  }
  Buffer* b;
  try {
    b = static_cast<Buffer*>(memory_pool.headers.take());
  } catch (...) {
    free_block(data, size);
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
  const size_t size = block_bytes(c, b->bytes);
  if (memory_pool.stats.pooled_bytes + size > memory_pool.pool_up_to) [[unlikely]] {
    if (memory_watch) memory_watch->freed(b);
    if (memory_pool.stats.pooled_bytes + size > memory_pool.most_pooled) {
      give_back(b);
      return arena().keep_resident(memory_pool.most_pooled - memory_pool.stats.pooled_bytes);
    }
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
  s.pooled_bytes += arena().resident_bytes();
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
  arena().unmap_unused();
  memory_pool.headers.trim(0);
#ifdef __GLIBC__
  malloc_trim(0);  // returns the free memory that malloc keeps between used blocks
#endif
}

}  // namespace wengert
