// Page-locked memory of the host: what GPUs copy to and from while the host does something else. Locking takes long, so
// blocks are kept and used again, once the copies from and to them are done.
#pragma once
#include "../memory.h"
#include "events.h"

namespace wengert::cuda {

struct HostMemoryStats {
  size_t live_bytes = 0, reserved_bytes = 0;
};

Buffer* allocate_page_locked(size_t bytes);  // in the context of a GPU; throws std::bad_alloc
bool is_page_locked(const Buffer* b);        // whether it was made by that
// A copy from or to the buffer is under way until the event; `events` is where it came from.
void note_copy(const Buffer* b, Events& events, Event event);
HostMemoryStats host_memory_stats();
void empty_host_memory() noexcept;  // gives cached blocks back to the driver

}  // namespace wengert::cuda
