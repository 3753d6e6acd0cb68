#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <new>

namespace wengert {

namespace {

// Size classes count 64-byte lines: 1, 2, 3, 4, then four steps to every power of two, so that at most a
// fifth of a block is slack. There is a class for every size_t, so the fast path needs no range check:
// classes beyond the machine's memory are always empty.
constexpr size_t kLine = 64;
constexpr int kNumClasses = 228;
constexpr uint8_t kForeign = 255;
constexpr size_t kHugePage = size_t{2} << 20;

inline int class_of(size_t bytes) {
  const size_t x = bytes == 0 ? 0 : (bytes - 1) / kLine;
  if (x < 4) return static_cast<int>(x);
  const int e = std::bit_width(x) - 1;
  return 4 * (e - 2) + static_cast<int>(x >> (e - 2));
}

struct ClassBytes {
  size_t of[kNumClasses];
  constexpr ClassBytes() {
    for (int c = 0; c < kNumClasses; ++c) {
      of[c] = c < 4 ? (c + 1) * kLine : (static_cast<size_t>(c % 4 + 5) << (c / 4 - 1)) * kLine;
    }
  }
};
constexpr ClassBytes kClassBytes;

// Cached blocks keep their headers: one pop gives both, and the block itself is not touched. `owner` is the
// link. Trivially destructible, as buffers may outlive static destructors.
struct Pool {
  Buffer* head[kNumClasses];
  FreeList<Buffer> headers;
  MemoryStats stats;         // but for pool_hits
  uint64_t system_requests;  // allocations that were not pool hits
  size_t most_pooled;        // half of the machine's memory; set before there is anything to pool
  ReclaimFn reclaim;
};
constinit Pool g = {};

size_t physical_memory() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return bytes;
}

inline void count(Buffer* b) {
  g.stats.live_bytes += b->bytes;
  if (g.stats.live_bytes > g.stats.peak_bytes) g.stats.peak_bytes = g.stats.live_bytes;
  g.stats.live_by_category[static_cast<int>(b->category)] += b->bytes;
}

char* system_allocate(size_t size) {
  if (size < kHugePage) return static_cast<char*>(std::aligned_alloc(kLine, size));
  // Map a huge page more than needed and give back what lies outside the aligned part.
  const size_t mapped = size + kHugePage;
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  char* start = static_cast<char*>(p);
  char* data = start + (-reinterpret_cast<uintptr_t>(start) & (kHugePage - 1));
  if (data > start) munmap(start, data - start);
  munmap(data + size, start + mapped - (data + size));
#ifdef MADV_HUGEPAGE
  // Whole huge pages only: a last page that is used in part would be resident in full.
  madvise(data, size & ~(kHugePage - 1), MADV_HUGEPAGE);
#endif
  return data;
}

void system_free(char* data, size_t size) {
  if (size < kHugePage) {
    std::free(data);
  } else {
    munmap(data, size);
  }
}

inline Buffer* pop(int c) {
  Buffer* b = g.head[c];
  if (b) {
    g.head[c] = static_cast<Buffer*>(b->owner);
    g.stats.pooled_bytes -= kClassBytes.of[c];
  }
  return b;
}

inline Buffer* finish(Buffer* b, size_t bytes, Category category) {
  b->refs = 1;
  b->version = 0;
  b->saved = 0;
  b->category = category;
  b->pinned = b->shared = false;
  b->bytes = bytes;
  b->written = {};
  ++g.stats.allocations;
  count(b);
  return b;
}

[[gnu::noinline]] Buffer* allocate_slow(size_t bytes, int c, Category category) {
  if (bytes > physical_memory()) throw std::bad_alloc();
  g.most_pooled = physical_memory() / 2;
  // What the hook frees may be just the block that is wanted.
  if (g.reclaim && g.reclaim(bytes)) {
    if (Buffer* b = pop(c)) return finish(b, bytes, category);
  }
  ++g.system_requests;
  const size_t size = kClassBytes.of[c];
  char* data = system_allocate(size);
  if (!data) {
    if (g.reclaim) g.reclaim(bytes);
    empty_pool();
    data = system_allocate(size);
    if (!data) throw std::bad_alloc();
  }
  Buffer* b;
  try {
    b = static_cast<Buffer*>(g.headers.take());
  } catch (...) {
    system_free(data, size);
    throw;
  }
  b->size_class = static_cast<uint8_t>(c);
  b->data = data;
  return finish(b, bytes, category);
}

}  // namespace

const char* name_of(Category c) {
  static constexpr const char* names[kNumCategories] = {"other",    "activation", "parameter",
                                                        "gradient", "optimizer",  "workspace"};
  return names[static_cast<int>(c)];
}

Buffer* allocate(size_t bytes, Category category) {
  const int c = class_of(bytes);
  if (Buffer* b = pop(c)) [[likely]]
    return finish(b, bytes, category);
  return allocate_slow(bytes, c, category);
}

Buffer* adopt_foreign(void* data, size_t bytes, void* owner, void (*release)(void*)) {
  Buffer* b = static_cast<Buffer*>(g.headers.take());
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
  g.headers.give(b);  // first: the owner's destructor may allocate
  if (release) release(owner);
}

[[gnu::noinline]] void give_back(Buffer* b) {
  system_free(b->data, kClassBytes.of[b->size_class]);
  g.headers.give(b);
}

}  // namespace

void (*drop_source_line)(SourceLine) = nullptr;

void destroy(Buffer* b) {
  if (b->written.code) [[unlikely]]
    drop_source_line(b->written);
  const int c = b->size_class;
  if (c == kForeign) [[unlikely]]
    return destroy_foreign(b);
  g.stats.live_bytes -= b->bytes;
  g.stats.live_by_category[static_cast<int>(b->category)] -= b->bytes;
  const size_t size = kClassBytes.of[c];
  if (g.stats.pooled_bytes + size > g.most_pooled) [[unlikely]]
    return give_back(b);
  g.stats.pooled_bytes += size;
  b->owner = g.head[c];
  g.head[c] = b;
}

void set_category(Buffer* b, Category c) {
  if (b->size_class != kForeign) {
    g.stats.live_by_category[static_cast<int>(b->category)] -= b->bytes;
    g.stats.live_by_category[static_cast<int>(c)] += b->bytes;
  }
  b->category = c;
}

void note_saved(Buffer* b) {
  if (b->saved++ == 0 && b->size_class != kForeign) g.stats.saved_bytes += b->bytes;
}

void note_unsaved(Buffer* b) {
  if (--b->saved == 0 && b->size_class != kForeign) g.stats.saved_bytes -= b->bytes;
}

MemoryStats memory_stats() {
  MemoryStats s = g.stats;
  s.pool_hits = s.allocations - g.system_requests;
  return s;
}

void reset_peak() { g.stats.peak_bytes = g.stats.live_bytes; }

void empty_pool() {
  for (int c = 0; c < kNumClasses; ++c) {
    while (Buffer* b = g.head[c]) {
      g.head[c] = static_cast<Buffer*>(b->owner);
      give_back(b);
    }
  }
  g.stats.pooled_bytes = 0;
}

void set_reclaim(ReclaimFn fn) { g.reclaim = fn; }

}  // namespace wengert
