#include "arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace wengert {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLeastRegion = size_t{32} << 20;

size_t rounded_up(size_t size, size_t step) { return (size + step - 1) / step * step; }

// The pages that lie in the range as a whole; those of the system may be larger than ours.
void return_pages(char* data, size_t size) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGE_SIZE));
  const auto at = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = rounded_up(at, page), end = (at + size) / page * page;
  if (begin < end) madvise(data + (begin - at), end - begin, MADV_DONTNEED);
}

}  // namespace

char* map_aligned(size_t size, size_t alignment) {
  const size_t mapped = size + alignment;
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  char* start = static_cast<char*>(p);
  // As high as possible: systems map from the top down, and what is mapped next is then adjacent.
  char* data = start + alignment - (reinterpret_cast<uintptr_t>(start) & (alignment - 1));
  if (data > start) munmap(start, data - start);
  munmap(data + size, start + mapped - (data + size));
  return data;
}

// Larger ones as more is mapped, so that their number stays small; only as large as is needed if the system has little.
bool Arena::map_region(size_t size) {
  size_t mapped = 0;
  for (const auto& [data, bytes] : regions_) mapped += bytes;
  const size_t least = rounded_up(size, kHugePage);
  size_t bytes = std::max(least, rounded_up(std::max(kLeastRegion, mapped / 8), kHugePage));
  char* data = map_aligned(bytes, kHugePage);
  if (!data) data = map_aligned(bytes = least, kHugePage);
  if (!data) return false;
#ifdef MADV_HUGEPAGE
  madvise(data, bytes, MADV_HUGEPAGE);
#endif
  regions_.emplace(data, bytes);
  insert(data, bytes, kFresh);
  return true;
}

Arena::Ranges::iterator Arena::erase(Ranges::iterator r) {
  FreeRanges& f = free_[r->second.kind];
  f.bytes -= r->second.size;
  f.by_size.erase({r->second.size, r->first});
  return ranges_.erase(r);
}

// Without memory for the new entries the range is lost, but nothing else.
void Arena::insert(char* data, size_t size, Kind kind) {
  auto next = ranges_.lower_bound(data);
  if (next != ranges_.end() && next->first == data + size && next->second.kind == kind) {
    size += next->second.size;
    next = erase(next);
  }
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    const auto [from, range] = *before;
    if (from + range.size == data && range.kind == kind) {
      data = from;
      size += range.size;
      erase(before);
    }
  }
  auto& by_size = free_[kind].by_size;
  const auto entry = by_size.emplace(size, data).first;
  try {
    ranges_.emplace(data, Range{size, kind});
  } catch (...) {
    by_size.erase(entry);
    throw;
  }
  free_[kind].bytes += size;
}

Arena::Ranges::const_iterator Arena::range_of(char* data) const {
  auto r = ranges_.upper_bound(data);
  if (r == ranges_.begin()) return ranges_.end();
  --r;
  return data < r->first + r->second.size ? r : ranges_.end();
}

char* Arena::shortest(Kind kind, size_t size) const {
  const auto& by_size = free_[kind].by_size;
  const auto found = by_size.lower_bound({size, nullptr});
  return found == by_size.end() ? nullptr : found->second;
}

// How much is resident of this memory; 0 if it is not free as a whole.
size_t Arena::resident_in(char* data, size_t size) const {
  char* const end = data + size;
  size_t resident = 0;
  for (auto r = range_of(data); data < end; ++r) {
    if (r == ranges_.end() || r->first > data) return 0;
    char* const to = std::min(end, r->first + r->second.size);
    if (r->second.kind == kResident) resident += to - data;
    data = to;
  }
  return resident;
}

// Memory that begins or ends with one of the longest resident ranges, and is fresh elsewhere.
char* Arena::partly_resident(size_t size) const {
  constexpr int kTried = 32;
  const auto& by_size = free_[kResident].by_size;
  char* best = nullptr;
  size_t most = size / 4;  // less is not worth cutting up a fresh range
  auto r = by_size.rbegin();
  for (int i = 0; i < kTried && r != by_size.rend(); ++i, ++r) {
    const auto [length, data] = *r;
    for (char* from : {data, data + length - size}) {
      const size_t resident = resident_in(from, size);
      if (resident > most) best = from, most = resident;
    }
  }
  return best;
}

char* Arena::cut(char* data, size_t size) {
  char* const end = data + size;
  for (char* at = data; at < end;) {
    const auto r = ranges_.find(range_of(at)->first);
    const auto [from, range] = *r;
    char* const to = from + range.size;
    erase(r);
    if (from < data) insert(from, data - from, range.kind);
    if (end < to) insert(end, to - end, range.kind);
    at = to;
  }
  return data;
}

// Fresh ranges are cut at their ends, so that what is left of a region lies beside the next one.
char* Arena::take(size_t size) {
  if (char* data = shortest(kResident, size)) return cut(data, size);
  if (char* data = partly_resident(size)) return cut(data, size);
  char* data = shortest(kFresh, size);
  if (!data && map_region(size)) data = shortest(kFresh, size);
  return data ? cut(data + ranges_.at(data).size - size, size) : nullptr;
}

void Arena::give(char* data, size_t size) {
  try {
    insert(data, size, kResident);
  } catch (const std::bad_alloc&) {
    return_pages(data, size);  // the address space is lost
  }
}

void Arena::keep_resident(size_t most) {
  while (resident_bytes() > most) {
    const size_t excess = rounded_up(resident_bytes() - most, 4096);
    const auto& by_size = free_[kResident].by_size;
    auto chosen = by_size.lower_bound({excess, nullptr});
    if (chosen == by_size.end()) --chosen;
    const auto [length, data] = *chosen;
    const size_t returned = std::min(excess, length);
    char* const from = cut(data + length - returned, returned);
    return_pages(from, returned);
    insert(from, returned, kFresh);
  }
}

void Arena::unmap_unused() {
  keep_resident(0);
  for (auto region = regions_.begin(); region != regions_.end();) {
    const auto [data, size] = *region;
    const auto r = range_of(data);
    if (r == ranges_.end() || r->first + r->second.size < data + size) {
      ++region;
      continue;
    }
    cut(data, size);
    munmap(data, size);
    region = regions_.erase(region);
  }
}

}  // namespace wengert
