// One pool of worker threads for everything. Work comes as a number of tiles that depends on shapes only, so that
// results do not depend on the number of threads.
#pragma once
#include <cstdint>
#include <type_traits>

namespace wengert {

int num_threads();
void set_num_threads(int n);  // throws std::invalid_argument unless 1 <= n <= 1024

// What the bindings do around work that takes long enough to be split: release the GIL, and take it back. `leave` gets
// what `enter` returned. Tiles see raw pointers only; whoever starts them holds references to what they point to.
struct WaitingHooks {
  void* (*enter)() = nullptr;
  void (*leave)(void* token) = nullptr;
  bool (*interrupted)() = nullptr;  // runs signal handlers, under the GIL; whether one has raised
};
extern WaitingHooks waiting_hooks;

// Throws if the user has asked to stop. Under the GIL, and where nothing is half done.
void check_interrupt();

// While one of these exists, work of this thread that is split into tiles may be given up between them: for work whose
// results nobody sees if it fails, never for writing into memory that was there before.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;

 private:
  bool before_;
};

// While one of these exists, this thread finishes what it does: changes that belong together.
class Uninterruptible {
 public:
  Uninterruptible();
  ~Uninterruptible();
  Uninterruptible(const Uninterruptible&) = delete;
};

// Calls fn(context, tile) once for every tile in [0, tiles), on this thread and the workers; returns when all are
// finished. An exception thrown by a tile is rethrown here (the first one), and so is that of a signal. Calls from
// inside a tile, or while another thread is using the pool, run serially on the caller. Works after fork() in the
// child.
void parallel_tiles(int64_t tiles, void (*fn)(void* context, int64_t tile), void* context);

template <class F>
void parallel_for(int64_t tiles, F&& f) {
  if (tiles <= 1) {
    if (tiles == 1) f(int64_t{0});
    return;
  }
  using Body = std::remove_reference_t<F>;
  parallel_tiles(tiles, [](void* c, int64_t t) { (*static_cast<Body*>(c))(t); }, &f);
}

}  // namespace wengert
