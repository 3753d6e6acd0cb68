// The order in which the tasks of a program run as a graph: few nodes. Elementwise work on the result of a small
// product is done by the product's kernel; chains that follow each other are one; tasks that do not depend on each
// other share a launch; and tiny tasks that follow each other are run by one block. Bits stay the same: no sum is taken
// in another order.
#pragma once
#include "tasks.h"

namespace wengert::cuda {

struct ScheduledNode {
  std::optional<Product> library;  // or a launch:
  BodyKernel* kernel = nullptr;    // of one task; null: of several
  size_t joined = 0;               // then which of the joined kernels
  int64_t grid = 0;
  int block = 0, dynamic_shared = 0;
  std::vector<int64_t> words;
  std::vector<Task::Number> numbers;
};

struct Schedule {
  std::vector<ScheduledNode> nodes;  // each may depend on all before it
  std::vector<JoinedKernel> joined;
  std::vector<std::unique_ptr<BodyKernel>> made;  // of products with elementwise work
};

// `kept`: memory that is read after the program has run.
Schedule make_schedule(std::vector<Task> tasks, const std::vector<Range>& kept, const Recording& recording);

}  // namespace wengert::cuda
