#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "error.h"

namespace wengert {

namespace {

constexpr int kMaxThreads = 1024;
constexpr int kSpins = 2000;  // pauses, 20 to 50 µs: the gap between the kernels of one training step
constexpr int64_t kMaxTiles = int64_t{1} << 31;  // in one job

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

// A job's tiles are claimed from `claims`, which packs the job's generation with the number of tiles left. A
// claim is a compare-and-swap of that word, so it succeeds only while the job that the worker read is still
// running, and a worker that comes late can neither take a tile of another job nor see that job's
// half-written fields. The caller waits for tiles that were claimed, never for workers to arrive.
struct Pool {
  std::atomic<uint64_t> claims{0};
  std::atomic<int64_t> finished{0};
  // Written before `claims` opens the job; atomics because a late worker may read them while the next job is
  // set up.
  std::atomic<void (*)(void*, int64_t)> fn{nullptr};
  std::atomic<void*> context{nullptr};
  std::atomic<int64_t> first{0}, tiles{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // written by the one who set `failed`, read after the join

  std::atomic<int> wake{0};  // sleepers wait for it to change
  std::atomic<int> sleepers{0};
  std::atomic<int> workers_wanted{0};  // a worker whose number is not below this leaves
  std::vector<std::thread> workers;
  int sized_for = 1;  // the thread count that `workers` was last made for
};

std::atomic<Pool*> pool{nullptr};
std::atomic<bool> busy{false};     // a caller is using the pool
std::atomic<int> thread_count{0};  // 0: not yet known
thread_local constinit bool inside_tile = false;
thread_local constinit bool interruptible = false;
thread_local constinit int uninterruptible = 0;

int default_threads() {
  if (const char* s = std::getenv("WENGERT_NUM_THREADS")) {
    char* end;
    const long n = std::strtol(s, &end, 10);
    if (end != s && *end == 0 && n >= 1 && n <= kMaxThreads) return static_cast<int>(n);
  }
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::clamp(CPU_COUNT(&set), 1, kMaxThreads);
#endif
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
}

constexpr uint64_t tiles_left(uint64_t claims) { return claims & 0xffffffffu; }

// What the thread that waits for a job looks at between its own tiles, now and then: whether to go on.
class Patience {
 public:
  explicit Patience(void*& token)
      : token_(interruptible && !uninterruptible && !inside_tile && token ? &token : nullptr) {
    if (token_) next_ = Clock::now() + kInterval;
  }
  bool ended() {
    if (!token_ || Clock::now() < next_) return false;
    waiting_hooks.leave(*token_);
    const bool interrupted = waiting_hooks.interrupted();
    *token_ = waiting_hooks.enter();
    next_ = Clock::now() + kInterval;
    return interrupted;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kInterval{50};
  void** token_;
  Clock::time_point next_;
};

// Runs tiles of the current job until none is left to claim. Only the caller has patience to lose.
void run_tiles(Pool& p, Patience* patience = nullptr) {
  uint64_t c = p.claims.load(std::memory_order_acquire);
  while (tiles_left(c) != 0) {
    auto* fn = p.fn.load(std::memory_order_relaxed);
    void* context = p.context.load(std::memory_order_relaxed);
    const int64_t tile = p.first.load(std::memory_order_relaxed) + p.tiles.load(std::memory_order_relaxed) -
                         static_cast<int64_t>(tiles_left(c));
    if (!p.claims.compare_exchange_weak(c, c - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    if (!p.failed.load(std::memory_order_relaxed)) {
      try {
        fn(context, tile);
      } catch (...) {
        if (!p.failed.exchange(true)) p.error = std::current_exception();
      }
    }
    p.finished.fetch_add(1, std::memory_order_release);
    if (patience && patience->ended() && !p.failed.exchange(true))
      p.error = std::make_exception_ptr(Error(ErrorKind::python, ""));
    c = p.claims.load(std::memory_order_acquire);
  }
}

void worker(Pool& p, int number) {
  inside_tile = true;
  auto has_news = [&] { return tiles_left(p.claims.load()) != 0 || number >= p.workers_wanted.load(); };
  while (number < p.workers_wanted.load()) {
    run_tiles(p);
    for (int i = 0; i < kSpins && !has_news(); ++i) pause();
    // Sequentially consistent on both sides: either the caller sees this sleeper, or the sleeper sees the
    // job.
    p.sleepers.fetch_add(1);
    const int seen = p.wake.load();
    if (!has_news()) p.wake.wait(seen);
    p.sleepers.fetch_sub(1);
  }
}

void wake_workers(Pool& p, int64_t useful) {
  const int sleepers = p.sleepers.load();
  if (sleepers == 0) return;
  p.wake.fetch_add(1);
  if (useful >= sleepers) {
    p.wake.notify_all();
  } else {
    for (int64_t i = 0; i < useful; ++i) p.wake.notify_one();
  }
}

void resize(Pool& p, int threads) {
  const int wanted = threads - 1;
  p.workers_wanted = wanted;
  if (static_cast<int>(p.workers.size()) > wanted) {
    wake_workers(p, kMaxThreads);
    for (size_t i = wanted; i < p.workers.size(); ++i) p.workers[i].join();
    p.workers.resize(wanted);
  }
  // Signals are for the program's own threads: Python expects to be interrupted where it waits.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    p.workers.reserve(wanted);
    for (int i = static_cast<int>(p.workers.size()); i < wanted; ++i) p.workers.emplace_back(worker, std::ref(p), i);
  } catch (const std::exception&) {
    // The system gives no more threads: those that started do the work.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  p.sized_for = threads;
}

// The pool, with its workers; only while `busy` is held. Never destroyed: at exit workers may still be asleep
// in it.
Pool& ready_pool(int threads) {
  Pool* p = pool.load(std::memory_order_acquire);
  if (!p) {
    // A forked child has none of the workers. It forgets the parent's pool and starts its own when it needs
    // one.
    static const int registered = pthread_atfork(nullptr, nullptr, [] {
      pool.store(nullptr);
      busy.store(false);
    });
    (void)registered;
    p = new Pool;
    pool.store(p, std::memory_order_release);
  }
  if (p->sized_for != threads) resize(*p, threads);
  return *p;
}

void run_serially(int64_t tiles, void (*fn)(void*, int64_t), void* context, Patience& patience) {
  for (int64_t t = 0; t < tiles; ++t) {
    fn(context, t);
    if (patience.ended()) throw Error(ErrorKind::python, "");
  }
}

void run_job(Pool& p, int64_t first, int64_t tiles, void (*fn)(void*, int64_t), void* context, Patience& patience) {
  p.fn.store(fn, std::memory_order_relaxed);
  p.context.store(context, std::memory_order_relaxed);
  p.first.store(first, std::memory_order_relaxed);
  p.tiles.store(tiles, std::memory_order_relaxed);
  p.failed.store(false, std::memory_order_relaxed);
  p.finished.store(0, std::memory_order_relaxed);
  const uint64_t generation = (p.claims.load(std::memory_order_relaxed) >> 32) + 1;
  p.claims.store(generation << 32 | static_cast<uint64_t>(tiles));
  wake_workers(p, tiles - 1);
  inside_tile = true;
  run_tiles(p, &patience);
  inside_tile = false;
  for (int spins = 0; p.finished.load(std::memory_order_acquire) != tiles; ++spins) {
    if (spins < kSpins) {
      pause();
    } else {
      sched_yield();  // the worker may be waiting for this very core
    }
  }
  if (p.failed.load(std::memory_order_relaxed)) {
    std::exception_ptr error;
    std::swap(error, p.error);
    std::rethrow_exception(error);
  }
}

}  // namespace

WaitingHooks waiting_hooks;

int num_threads() {
  int n = thread_count.load(std::memory_order_relaxed);
  if (n == 0) {
    const int found = default_threads();
    n = thread_count.compare_exchange_strong(n, found) ? found : n;
  }
  return n;
}

void set_num_threads(int n) {
  if (n < 1 || n > kMaxThreads) {
    throw std::invalid_argument("the number of threads must be between 1 and " + std::to_string(kMaxThreads) +
                                ", got " + std::to_string(n));
  }
  thread_count.store(n);
}

void check_interrupt() {
  if (!uninterruptible && waiting_hooks.interrupted && waiting_hooks.interrupted()) throw Error(ErrorKind::python, "");
}

Interruptible::Interruptible() : before_(std::exchange(interruptible, true)) {}
Interruptible::~Interruptible() { interruptible = before_; }
Uninterruptible::Uninterruptible() { ++uninterruptible; }
Uninterruptible::~Uninterruptible() { --uninterruptible; }

void parallel_tiles(int64_t tiles, void (*fn)(void* context, int64_t tile), void* context) {
  const int threads = num_threads();
  struct Unlocked {
    void* token;
    ~Unlocked() {
      if (token) waiting_hooks.leave(token);
    }
  } unlocked{!inside_tile && waiting_hooks.enter ? waiting_hooks.enter() : nullptr};
  Patience patience(unlocked.token);
  if (tiles <= 1 || threads == 1 || inside_tile || busy.exchange(true, std::memory_order_acquire)) {
    run_serially(tiles, fn, context, patience);
    return;
  }
  struct Release {
    ~Release() { busy.store(false, std::memory_order_release); }
  } release;
  Pool& p = ready_pool(threads);
  for (int64_t first = 0; first < tiles; first += kMaxTiles) {
    run_job(p, first, std::min(kMaxTiles, tiles - first), fn, context, patience);
  }
}

}  // namespace wengert
