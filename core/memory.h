// Reference-counted, pooled memory. Every buffer is counted: live bytes, peak, and bytes by category.
// Reference counts are plain integers: buffers are created, shared and dropped under the GIL only; kernels on
// other threads see raw pointers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>

namespace wengert {

enum class Category : uint8_t { other, activation, parameter, gradient, optimizer, workspace, count };
inline constexpr int kNumCategories = static_cast<int>(Category::count);
const char* name_of(Category c);

// Where in the user's program something happened; decoded to file and line only when somebody asks.
struct SourceLine {
  void* code = nullptr;  // a PyCodeObject, owned by whoever stores the line; opaque here
  int32_t instruction = -1;
};

struct alignas(64) Buffer {
  uint32_t refs;
  uint32_t version;       // raised by every write that others can see
  uint32_t saved;         // how many recorded instructions keep this buffer for backward
  Category category;
  bool shared;            // more than one tensor may hold it without being views of each other: copied before a write
  bool pinned;            // exported to or imported from outside: never recycled in place or donated
  uint8_t size_class;     // of the pool; kForeign when the memory is not ours
  char* data;
  size_t bytes;           // as asked for
  void (*release)(void*);  // for foreign memory: called with `owner` when the last reference goes
  void* owner;
  SourceLine written;     // the last in-place write, for error messages
};

// 64-byte aligned, padded to a whole number of 64-byte lines, contents undefined. Throws std::bad_alloc with the
// pool unharmed; sizes above the machine's physical memory are refused at once, without touching the kernel.
Buffer* allocate(size_t bytes, Category category = Category::other);
Buffer* adopt_foreign(void* data, size_t bytes, void* owner, void (*release)(void*));
void destroy(Buffer* b);  // the last reference is gone: back to the pool

inline void retain(Buffer* b) { ++b->refs; }
inline void release(Buffer* b) {
  if (--b->refs == 0) destroy(b);
}
void set_category(Buffer* b, Category c);
extern void (*drop_source_line)(SourceLine line);  // gives up what a stored line owns; set by the bindings

// The tape's own accounting: a buffer counts once, however many instructions keep it.
void note_saved(Buffer* b);
void note_unsaved(Buffer* b);

struct MemoryStats {
  size_t live_bytes, peak_bytes, saved_bytes, pooled_bytes;
  size_t live_by_category[kNumCategories];
  uint64_t allocations, pool_hits;
};
MemoryStats memory_stats();
void reset_peak();
void empty_pool();  // give cached blocks back to the system

// Called before an allocation goes to the system, with the bytes wanted; returns whether it freed something.
// The hook for memory budgets; null by default.
using ReclaimFn = bool (*)(size_t bytes);
void set_reclaim(ReclaimFn fn);

// A small object allocator with free lists, for the objects that every recorded op makes. GIL only.
template <class T>
struct FreeList {
  union Slot {
    Slot* next;
    alignas(T) char storage[sizeof(T)];
  };
  Slot* head = nullptr;
  void* take() {
    if (!head) [[unlikely]]
      grow();
    Slot* s = head;
    head = s->next;
    return s;
  }
  void give(void* p) {
    Slot* s = static_cast<Slot*>(p);
    s->next = head;
    head = s;
  }
  [[gnu::noinline]] void grow() {
    constexpr int kChunk = 128;
    Slot* chunk = static_cast<Slot*>(::operator new(sizeof(Slot) * kChunk, std::align_val_t{alignof(Slot)}));
    for (int i = kChunk - 1; i >= 0; --i) give(&chunk[i]);  // handed out in the order of memory
  }
};

}  // namespace wengert
