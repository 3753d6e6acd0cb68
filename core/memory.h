// Reference-counted, pooled memory. Every buffer is counted: live bytes, peak, and bytes by category.
// Reference counts are plain integers: buffers are created, shared and dropped under the GIL only; kernels on
// other threads see raw pointers.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

namespace wengert {

struct Device;

enum class Category : uint8_t { other, activation, parameter, gradient, optimizer, workspace, count };
inline constexpr int kNumCategories = static_cast<int>(Category::count);
const char* name_of(Category c);

// Where in the user's program something happened; decoded to file and line only when somebody asks.
struct SourceLine {
  void* code = nullptr;  // a PyCodeObject, owned by whoever stores the line; opaque here
  int32_t instruction = -1;
  uint32_t counted = 0;  // if the line of a buffer: its bytes are counted there (ledger.h)
};

struct alignas(64) Buffer {
  uint32_t refs;
  uint32_t version;  // raised by every write that others can see
  uint32_t saved;    // how many recorded instructions keep this buffer for backward
  Category category;
  bool shared;         // more than one tensor may hold it without being views of each other: copied before a write
  bool pinned;         // exported to or imported from outside: never recycled in place or donated
  uint8_t size_class;  // of the pool; kForeign when the memory is not ours, kOnDevice where a device has it
  char* data;
  size_t bytes;            // requested size
  void (*release)(void*);  // for foreign memory: called with `owner` when the last reference goes
  void* owner;
  // The line of the last in-place write, for error messages; while lines are noted, the line that made the buffer.
  SourceLine written;
};

Buffer* adopt_foreign(void* data, size_t bytes, void* owner, void (*release)(void*));
void destroy(Buffer* b);                                      // the last reference is gone: back to the pool
void free_on_device(void* device, char* data, size_t bytes);  // device.cpp

inline void retain(Buffer* b) { ++b->refs; }
inline void release(Buffer* b) {
  if (--b->refs == 0) destroy(b);
}
void set_category(Buffer* b, Category c);
// A buffer that replaces that of a parameter, gradient or optimizer state inherits its category.
inline void carry_category(const Buffer* from, Buffer* to) {
  const Category c = from->category;
  if (c == Category::parameter || c == Category::gradient || c == Category::optimizer) set_category(to, c);
}
extern void (*drop_source_line)(SourceLine line);  // gives up what a stored line owns; set by the bindings

struct MemoryStats {
  size_t live_bytes, peak_bytes, pooled_bytes;
  size_t live_by_category[kNumCategories];
  size_t saved_by_category[kNumCategories];  // the part that recorded instructions keep for backward
  uint64_t allocations, pool_hits;
};
MemoryStats memory_stats();

// Observes every allocation and every free; null if nobody does.
struct MemoryWatch {
  void (*allocated)(const Buffer* b);
  void (*freed)(const Buffer* b);
};
void watch_memory(const MemoryWatch* watch);

void reset_peak();
void empty_pool();  // give cached blocks back to the system

// A small object allocator with a free list, for the objects that every recorded op makes. GIL only. Objects are carved
// from chunks; when many are free (after a long graph is dropped), chunks without a living object go back to the
// system.
struct Chunk {  // header, in the first slot of each chunk
  uint32_t free;
  bool doomed;
};
Chunk* new_chunk();  // kChunkBytes, aligned to its size; only the header is touched; throws std::bad_alloc
void drop_chunk(Chunk* c);
inline constexpr size_t kChunkBytes = size_t{256} << 10;
inline constexpr size_t kMostFreeBytes = size_t{32} << 20;  // per kind of object, kept for the next graph

template <class T>
struct FreeList {
  union Slot {
    Slot* next;
    alignas(T) char storage[sizeof(T)];
  };
  static constexpr size_t kPerChunk = kChunkBytes / sizeof(Slot) - 1, kCarved = 128;
  static constexpr size_t kMostFree = kMostFreeBytes / sizeof(Slot);
  Slot* head = nullptr;
  size_t n_free = 0, trim_at = kMostFree;
  Slot *fresh = nullptr, *end = nullptr;  // the part of the latest chunk that was never used

  void* take() {
    if (!head) [[unlikely]]
      carve();
    Slot* s = head;
    head = s->next;
    --n_free;
    return s;
  }
  void give(void* p) {
    Slot* s = static_cast<Slot*>(p);
    s->next = head;
    head = s;
    if (++n_free > trim_at) [[unlikely]]
      trim(kMostFree / 2);
  }

  // Returns chunks without a living object to the system, but keeps at least `keep` free slots.
  [[gnu::noinline]] void trim(size_t keep) {
    for (Slot* s = head; s; s = s->next) ++chunk_of(s)->free;
    const Chunk* latest = fresh ? chunk_of(end - 1) : nullptr;
    size_t kept = 0;
    Slot *list = nullptr, *dropped = nullptr;
    for (Slot *s = head, *next; s; s = next) {
      next = s->next;
      Chunk* c = chunk_of(s);
      if (c->free == kPerChunk && c != latest && !c->doomed) {  // seen for the first time
        if (kept >= keep)
          c->doomed = true;
        else
          kept += kPerChunk, c->free = 0;
      }
      Slot*& to = c->doomed ? dropped : list;
      s->next = to;
      to = s;
    }
    head = nullptr;
    n_free = 0;
    for (Slot *s = list, *next; s; s = next) {  // restores the original order
      next = s->next;
      chunk_of(s)->free = 0;
      s->next = head;
      head = s;
      ++n_free;
    }
    while (dropped) {
      Chunk* c = chunk_of(dropped);
      Slot* next = dropped->next;
      if (--c->free == 0) drop_chunk(c);
      dropped = next;
    }
    trim_at = n_free < kMostFree / 2 ? kMostFree : 2 * n_free;
  }

 private:
  static Chunk* chunk_of(Slot* s) {
    return reinterpret_cast<Chunk*>(reinterpret_cast<uintptr_t>(s) & ~(kChunkBytes - 1));
  }
  [[gnu::noinline]] void carve() {
    if (fresh == end) {
      fresh = reinterpret_cast<Slot*>(new_chunk()) + 1;
      end = fresh + kPerChunk;
    }
    Slot* from = fresh;
    fresh = end - fresh > static_cast<ptrdiff_t>(kCarved) ? fresh + kCarved : end;
    for (Slot* s = fresh; s != from;) {  // so that they are handed out in address order
      (--s)->next = head;
      head = s;
      ++n_free;
    }
  }
};

// The caching pool. Size classes count 64-byte lines: 1, 2, 3, 4, then four steps to every power of two, so that at
// most a fifth of a block is slack. There is a class for every size_t, so the fast path needs no range check: classes
// beyond the machine's memory are always empty. Cached blocks keep their headers: one pop gives both, and the block
// itself is not touched. `owner` is the link. Trivially destructible, as buffers may outlive static destructors.
inline constexpr size_t kLine = 64;
inline constexpr int kNumClasses = 228;
inline constexpr uint8_t kForeign = 255;   // memory that is not ours
inline constexpr uint8_t kOnDevice = 254;  // memory of a device, which does its own accounting
// Recomputable (blocks.h): memory of a device, and ours, whose size class is stored in its block.
inline constexpr uint8_t kManagedOnDevice = 253, kManaged = 252;
inline bool is_managed(const Buffer* b) { return b->size_class == kManaged || b->size_class == kManagedOnDevice; }
inline bool is_on_device(const Buffer* b) { return b->size_class == kOnDevice || b->size_class == kManagedOnDevice; }

struct ClassBytes {
  size_t of[kNumClasses];
  constexpr ClassBytes() {
    for (int c = 0; c < kNumClasses; ++c) {
      of[c] = c < 4 ? (c + 1) * kLine : (static_cast<size_t>(c % 4 + 5) << (c / 4 - 1)) * kLine;
    }
  }
};
inline constexpr ClassBytes kClassBytes;

constexpr int class_of(size_t bytes) {
  const size_t x = bytes == 0 ? 0 : (bytes - 1) / kLine;
  if (x < 4) return static_cast<int>(x);
  const int e = std::bit_width(x) - 1;
  return 4 * (e - 2) + static_cast<int>(x >> (e - 2));
}

// Blocks of these classes are as large as is asked for, in whole pages: the slack of large blocks would be felt. They
// are reused for the same size only.
inline constexpr int kFirstExact = class_of(size_t{512} << 10);
inline constexpr size_t kPage = 4096;
inline size_t block_bytes(int c, size_t bytes) {
  return c < kFirstExact ? kClassBytes.of[c] : (bytes + kPage - 1) & ~(kPage - 1);
}

struct MemoryPool {
  Buffer* head[kNumClasses];
  FreeList<Buffer> headers;
  MemoryStats stats;         // except pool_hits
  uint64_t system_requests;  // allocations that were not pool hits
  size_t most_pooled;        // half of the machine's memory; set before the first use
  size_t limit;              // live bytes may not exceed it; 0: no limit
  bool noting;               // note the lines that make buffers
  // Thresholds that the fast paths test anyway. With a watch they are always exceeded, so watching needs no extra
  // branch.
  size_t notice_above;  // live bytes: the peak, or the limit where that is lower, or 0
  size_t pool_up_to;    // pooled bytes: most_pooled, or 0
};
extern constinit MemoryPool memory_pool;

// Callbacks that make room under a limit (replay.cpp) and count bytes by line (ledger.cpp); set once at start.
struct MemoryHooks {
  void (*make_room)(size_t bytes) = nullptr;  // drops values of at least this size, if it can; runs nothing
  // The same on a device; returns whether anything was dropped.
  bool (*make_room_on)(Device& device, size_t bytes) = nullptr;
  [[noreturn]] void (*fail_on)(const Device& device, size_t bytes) = nullptr;
  void (*destroy_managed)(Buffer* b) = nullptr;
  [[noreturn]] void (*fail)(size_t bytes) = nullptr;  // throws: this much more was requested and does not fit
  void (*note_made)(Buffer* b) = nullptr;             // while lines are noted
  void (*uncount)(Buffer* b) = nullptr;               // a buffer counted at its line goes away
};
extern MemoryHooks memory_hooks;
void set_limit(size_t bytes);  // 0: none
void note_lines(bool on);      // where every buffer is made
void set_written(Buffer* b, SourceLine owned);
// Called when a new buffer raised the live bytes above `notice_above`. If they exceed the limit and no room can be
// made, frees the buffer and throws.
void note_allocation(Buffer* b);

// Resets a recycled buffer's header and updates the statistics.
inline void start_life(Buffer* b, size_t bytes, Category category) {
  b->refs = 1;
  b->version = 0;
  b->saved = 0;
  b->category = category;
  b->pinned = b->shared = false;
  b->bytes = bytes;
  b->written = {};
  MemoryStats& s = memory_pool.stats;
  ++s.allocations;
  s.live_bytes += bytes;
  s.live_by_category[static_cast<int>(category)] += bytes;
  if (s.live_bytes > memory_pool.notice_above) [[unlikely]]
    note_allocation(b);
}

Buffer* take_exact(int c, size_t bytes, Category category);

inline Buffer* take_pooled(int c, size_t bytes, Category category) {
  Buffer* b = memory_pool.head[c];
  if (!b) [[unlikely]]
    return nullptr;
  if (c >= kFirstExact) [[unlikely]]
    return take_exact(c, bytes, category);
  memory_pool.head[c] = static_cast<Buffer*>(b->owner);
  memory_pool.stats.pooled_bytes -= kClassBytes.of[c];
  start_life(b, bytes, category);
  return b;
}

Buffer* allocate_slow(size_t bytes, int c, Category category);

// 64-byte aligned, padded to a whole number of 64-byte lines, contents undefined. Throws std::bad_alloc with the
// pool unharmed; sizes above the machine's physical memory are refused at once, without touching the kernel.
inline Buffer* allocate(size_t bytes, Category category = Category::other) {
  const int c = class_of(bytes);
  Buffer* b = take_pooled(c, bytes, category);
  return b ? b : allocate_slow(bytes, c, category);
}

// Accounting for the tape: a buffer counts once, however many instructions keep it.
inline void note_saved(Buffer* b) {
  if (b->saved++ == 0 && b->size_class < kManagedOnDevice)
    memory_pool.stats.saved_by_category[static_cast<int>(b->category)] += b->bytes;
}
inline void note_unsaved(Buffer* b) {
  if (--b->saved == 0 && b->size_class < kManagedOnDevice)
    memory_pool.stats.saved_by_category[static_cast<int>(b->category)] -= b->bytes;
}

// The same when the memory of a kept buffer is dropped, and when it comes back.
inline void note_dropped(const Buffer* b) {
  if (b->saved) memory_pool.stats.saved_by_category[static_cast<int>(b->category)] -= b->bytes;
}
inline void note_back(const Buffer* b) {
  if (b->saved) memory_pool.stats.saved_by_category[static_cast<int>(b->category)] += b->bytes;
}

}  // namespace wengert
