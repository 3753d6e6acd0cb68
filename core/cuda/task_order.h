// What fusions of tasks ask of the order in which they stand: who made a block of memory, who reads it later, and
// whether work may be done earlier or later than where it stands.
#pragma once
#include "tasks.h"

namespace wengert::cuda {

bool contains(const std::vector<const char*>& blocks, const char* block);
bool overlap(const std::vector<const char*>& a, const std::vector<const char*>& b);

// Whether the second has to stay behind the first, for the memory that they use.
bool are_in_order(const Task& first, const Task& second);

class TaskOrder {
 public:
  // `kept`: memory that is read after the program has run.
  TaskOrder(std::vector<Task>& tasks, const std::vector<Range>& kept, const Recording& recording)
      : tasks_(tasks), kept_(kept), recording_(recording), gone_(tasks.size()) {}

 protected:
  std::vector<Task>& tasks_;
  const std::vector<Range>& kept_;
  const Recording& recording_;
  std::vector<bool> gone_;  // joined to another task

  static bool is_chain(const Task& t) { return t.kernel && t.elements && !t.product; }

  // The chain before b that was the last to write this block; b: none near.
  size_t maker_of(const char* block, size_t b) const;
  // Whether the work of a can be done at b: nobody between reads what it writes, or writes what it touches.
  bool can_wait(size_t a, size_t b) const;
  // Whether the work of b can be done at a, but for what a itself does.
  bool can_come(size_t b, size_t a) const;
  // Whether memory that a task wrote is read after task b has run.
  bool is_read_later(const void* data, int64_t bytes, size_t b) const;
  // Appends what a chain reads and writes, and where its numbers are among its words, the first of which is `word`.
  void describe(const ElementCall& call, const std::vector<const void*>& numbers, int32_t word, Task& t) const;
  // Where the numbers of a chain's task come from, in the order of its inputs.
  static std::vector<const void*> numbers_of(const Task& t);
};

}  // namespace wengert::cuda
