// The address space that large blocks are cut from. Blocks of every size share it, so memory that one has left serves
// the next without going back to the system in between. GIL only.
#pragma once
#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace wengert {

// Maps memory at a multiple of `alignment`; null if the system has none.
char* map_aligned(size_t size, size_t alignment);

// Free memory is resident if a block has used it, or fresh: its first use costs page faults. Neighbours of one kind
// form one range.
class Arena {
 public:
  // Sizes are multiples of 4096 bytes.
  char* take(size_t size);  // where as much as possible is resident; null: the system has no more address space
  void give(char* data, size_t size);
  size_t resident_bytes() const { return free_[kResident].bytes; }
  // Returns pages to the system until at most this much free memory is resident.
  void keep_resident(size_t most);
  void unmap_unused();  // all address space without a block

 private:
  enum Kind { kResident, kFresh };
  struct Range {
    size_t size;
    Kind kind;
  };
  using Ranges = std::map<char*, Range>;
  struct FreeRanges {
    size_t bytes = 0;
    std::set<std::pair<size_t, char*>> by_size;
  };

  Ranges ranges_;  // all free ones, by address
  FreeRanges free_[2];
  std::map<char*, size_t> regions_;  // what was mapped at once, and its size

  char* shortest(Kind kind, size_t size) const;  // the start of the shortest range that is long enough, or null
  char* partly_resident(size_t size) const;
  size_t resident_in(char* data, size_t size) const;
  char* cut(char* data, size_t size);
  void insert(char* data, size_t size, Kind kind);
  Ranges::iterator erase(Ranges::iterator r);
  Ranges::const_iterator range_of(char* data) const;  // the free range that holds this address, or the end
  bool map_region(size_t size);
};

}  // namespace wengert
