#include "pool.h"

#include <algorithm>
#include <bit>
#include <new>

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
  Lists lists;
  std::vector<Arena*> arenas;
  std::shared_ptr<Arena> current;
  PoolStats* stats = nullptr;
};

Arena::~Arena() {
  if (!home) return;
  std::erase(home->arenas, this);
  for (auto& [p, bytes] : lists.slabs) {
    give_back(p);
    home->stats->reserved_bytes -= bytes;
  }
}

Pool::Pool() : impl_(std::make_unique<Impl>()) { impl_->stats = &stats; }
Pool::~Pool() = default;

char* Pool::allocate(size_t bytes) {
  Lists& lists = impl_->current ? impl_->current->lists : impl_->lists;
  char* p = lists.take(bytes, stats);
  if (!p) {
    empty();
    p = lists.take(bytes, stats);
  }
  if (!p) throw std::bad_alloc();
  ++stats.allocations;
  stats.live_bytes += bytes;
  stats.peak_bytes = std::max(stats.peak_bytes, stats.live_bytes);
  return p;
}

void Pool::free(char* data, size_t bytes) noexcept {
  stats.live_bytes -= bytes;
  Lists* lists = &impl_->lists;
  for (Arena* a : impl_->arenas)
    if (a->lists.owns(data)) lists = &a->lists;
  // While a program is noted, small blocks are not used twice: who waits for whom is then decided by values, not by
  // where they happen to lie.
  if (impl_->current && lists == &impl_->current->lists && bytes <= kUsedOnce) return;
  lists->free[class_of(bytes)].push_back(data);
}

void Pool::empty() noexcept { impl_->lists.trim(stats); }

std::shared_ptr<Arena> Pool::begin_arena() {
  impl_->current = std::make_shared<Arena>();
  impl_->current->home = impl_.get();
  impl_->current->lists.slab_bytes = kArenaSlab;
  impl_->arenas.push_back(impl_->current.get());
  return impl_->current;
}

void Pool::end_arena() { impl_->current.reset(); }

}  // namespace wengert::cuda
