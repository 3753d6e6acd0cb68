#include "pool.h"

#include <algorithm>
#include <bit>
#include <new>
#include <unordered_map>

namespace wengert::cuda {

namespace {

constexpr size_t kUnit = 512;              // bytes; every address is a multiple of it
constexpr size_t kSlab = size_t{4} << 20;  // small blocks are cut from these
constexpr size_t kMostSmall = size_t{1} << 20;
constexpr size_t kArenaSlab = size_t{1} << 19;  // there are many arenas, and most are small
constexpr size_t kUsedOnce = size_t{256} << 10;
constexpr int kClasses = 4 * 40;

// Sizes in steps of a quarter of a power of two.
int class_of(size_t bytes) {
  const size_t x = bytes == 0 ? 0 : (bytes - 1) / kUnit;
  if (x < 4) return static_cast<int>(x);
  const int e = std::bit_width(x) - 1;
  return 4 * (e - 2) + static_cast<int>(x >> (e - 2));
}
size_t bytes_of(int c) {
  return c < 4 ? static_cast<size_t>(c + 1) * kUnit : (static_cast<size_t>(c % 4 + 5) << (c / 4 - 1)) * kUnit;
}

char* request(size_t bytes) {
  Address address = 0;
  if (driver().cuMemAlloc_v2(&address, bytes)) return nullptr;
  return reinterpret_cast<char*>(address);
}
void give_back(char* p) { driver().cuMemFree_v2(reinterpret_cast<Address>(p)); }

// Free blocks by size, and what was taken from the driver for them.
struct Lists {
  std::vector<char*> free[kClasses];
  std::vector<std::pair<char*, size_t>> slabs;  // address, bytes
  char *fresh = nullptr, *end = nullptr;        // the part of the latest slab that was never used
  size_t slab_bytes = kSlab;

  bool needs_slab(size_t bytes) const {
    const int c = class_of(bytes);
    const size_t rounded = bytes_of(c);
    return free[c].empty() && (rounded > slab_bytes / 4 || static_cast<size_t>(end - fresh) < rounded);
  }

  // Null if the driver has no more.
  char* take(size_t bytes, PoolStats& stats) {
    const int c = class_of(bytes);
    const size_t rounded = bytes_of(c);
    if (!free[c].empty()) {
      char* p = free[c].back();
      free[c].pop_back();
      return p;
    }
    if (rounded > slab_bytes / 4) return add_slab(rounded, stats);
    if (static_cast<size_t>(end - fresh) < rounded) {
      char* slab = add_slab(slab_bytes, stats);
      if (!slab) return nullptr;
      fresh = slab;
      end = slab + slab_bytes;
    }
    char* p = fresh;
    fresh += rounded;
    return p;
  }

  char* add_slab(size_t bytes, PoolStats& stats) {
    char* p = request(bytes);
    if (!p) return nullptr;
    slabs.emplace_back(p, bytes);
    stats.reserved_bytes += bytes;
    stats.peak_reserved_bytes = std::max(stats.peak_reserved_bytes, stats.reserved_bytes);
    ++stats.system_requests;
    return p;
  }

  bool owns(const char* p) const {
    return std::any_of(slabs.begin(), slabs.end(),
                       [&](const auto& s) { return p >= s.first && p < s.first + s.second; });
  }

  // Blocks that have a slab of their own, and are free.
  void trim(PoolStats& stats) {
    for (int c = 0; c < kClasses; ++c) {
      if (bytes_of(c) <= kMostSmall) continue;
      for (char* p : free[c]) {
        give_back(p);
        stats.reserved_bytes -= bytes_of(c);
        std::erase_if(slabs, [&](const auto& s) { return s.first == p; });
      }
      free[c].clear();
    }
  }
};

}  // namespace

class Arena {
 public:
  Lists lists;
  Pool::Impl* home = nullptr;
  Arena() = default;
  Arena(const Arena&) = delete;
  ~Arena();
};

struct Pool::Impl {
  // Who uses a block, where that is more than the device's own stream.
  struct Use {
    Stream home = nullptr;
    std::vector<Stream> others;
    bool outside = false;
  };
  // A block that was given back before the work on it was known to be done.
  struct Waiting {
    char* data;
    size_t bytes;
    Stream home;
    uint64_t ticket;            // rises
    std::vector<Event> events;  // none: until everything has been done
  };

  Events& events;
  std::vector<std::pair<Stream, std::unique_ptr<Lists>>> by_stream;
  std::unordered_map<const char*, Use> uses;
  std::vector<Waiting> waiting;
  uint64_t tickets = 0;
  std::vector<Arena*> arenas;
  std::shared_ptr<Arena> current;
  PoolStats* stats = nullptr;

  explicit Impl(Events& e) : events(e) { by_stream.emplace_back(nullptr, std::make_unique<Lists>()); }

  Lists& lists(Stream stream) {
    for (auto& [key, made] : by_stream)
      if (key == stream) return *made;
    return *by_stream.emplace_back(stream, std::make_unique<Lists>()).second;
  }

  void reuse(const Waiting& block) { lists(block.home).free[class_of(block.bytes)].push_back(block.data); }

  // The oldest first: who was given back later is seldom done before.
  void reuse_what_is_done() {
    size_t done = 0;
    for (; done < waiting.size(); ++done) {
      Waiting& block = waiting[done];
      if (block.events.empty()) break;
      while (!block.events.empty() && events.done(block.events.back())) {
        events.give_back(block.events.back());
        block.events.pop_back();
      }
      if (!block.events.empty()) break;
      reuse(block);
    }
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<ptrdiff_t>(done));
  }

  void wait_for_everything() {
    if (!waiting.empty()) driver().cuCtxSynchronize();
  }
};

Arena::~Arena() {
  if (!home) return;
  std::erase(home->arenas, this);
  for (auto& [p, bytes] : lists.slabs) {
    give_back(p);
    home->stats->reserved_bytes -= bytes;
  }
}

Pool::Pool(Events& events) : impl_(std::make_unique<Impl>(events)) { impl_->stats = &stats; }
Pool::~Pool() = default;

char* Pool::allocate(size_t bytes, Stream stream) {
  if (!impl_->waiting.empty()) impl_->reuse_what_is_done();
  Lists& lists = impl_->current ? impl_->current->lists : impl_->lists(stream);
  if (!impl_->waiting.empty() && lists.needs_slab(bytes)) {
    impl_->wait_for_everything();
    settle(ticket());
  }
  char* p = lists.take(bytes, stats);
  if (!p) {
    empty();
    p = lists.take(bytes, stats);
  }
  if (!p) throw std::bad_alloc();
  if (stream && !impl_->current) impl_->uses[p].home = stream;
  ++stats.allocations;
  stats.live_bytes += bytes;
  stats.peak_bytes = std::max(stats.peak_bytes, stats.live_bytes);
  return p;
}

void Pool::free(char* data, size_t bytes) noexcept {
  stats.live_bytes -= bytes;
  Lists* lists = nullptr;
  for (Arena* a : impl_->arenas)
    if (a->lists.owns(data)) lists = &a->lists;
  // While a program is noted, small blocks are not used twice: who waits for whom is then decided by values, not by
  // where they happen to lie.
  if (impl_->current && lists == &impl_->current->lists && bytes <= kUsedOnce) return;
  const auto use = impl_->uses.find(data);
  if (lists && use != impl_->uses.end()) impl_->uses.erase(use);
  if (!lists && use != impl_->uses.end()) {
    Impl::Waiting block{data, bytes, use->second.home, impl_->tickets++, {}};
    const bool outside = use->second.outside;
    try {
      for (Stream other : use->second.others)
        if (!outside) block.events.push_back(impl_->events.record(other));
    } catch (...) {
      block.events.clear();  // then it waits for everything
    }
    const bool waits = outside || !use->second.others.empty();
    impl_->uses.erase(use);
    if (waits)
      impl_->waiting.push_back(std::move(block));
    else
      impl_->reuse(block);
    return;
  }
  if (!lists) lists = impl_->by_stream.front().second.get();
  lists->free[class_of(bytes)].push_back(data);
}

void Pool::empty() noexcept {
  impl_->wait_for_everything();
  settle(ticket());
  for (auto& [stream, lists] : impl_->by_stream) lists->trim(stats);
}

void Pool::note_use(const char* block, Stream stream) {
  const auto found = impl_->uses.find(block);
  if ((found == impl_->uses.end() ? nullptr : found->second.home) == stream) return;
  std::vector<Stream>& others = impl_->uses[block].others;
  if (std::find(others.begin(), others.end(), stream) == others.end()) others.push_back(stream);
}

void Pool::note_outside(const char* block) { impl_->uses[block].outside = true; }

uint64_t Pool::ticket() const noexcept { return impl_->tickets; }

void Pool::settle(uint64_t ticket) noexcept {
  std::erase_if(impl_->waiting, [&](const Impl::Waiting& block) {
    if (block.ticket >= ticket) return false;
    for (Event event : block.events) impl_->events.give_back(event);
    impl_->reuse(block);
    return true;
  });
}

std::shared_ptr<Arena> Pool::begin_arena() {
  impl_->current = std::make_shared<Arena>();
  impl_->current->home = impl_.get();
  impl_->current->lists.slab_bytes = kArenaSlab;
  impl_->arenas.push_back(impl_->current.get());
  return impl_->current;
}

void Pool::end_arena() { impl_->current.reset(); }

}  // namespace wengert::cuda
