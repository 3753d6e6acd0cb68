// Elementwise work whose result another kernel reads, or that reads another kernel's result, done by that kernel where
// it lets others do so (`Ends`): the casts around the derivative of a norm and the sum that follows it, for example.
// Bits stay the same.
#pragma once
#include "tasks.h"

namespace wengert::cuda {

// `kept`: memory that is read after the program has run. Kernels with such work are added to `made`.
void fuse_ends(std::vector<Task>& tasks, const std::vector<Range>& kept, const Recording& recording,
               std::vector<std::unique_ptr<BodyKernel>>& made);

}  // namespace wengert::cuda
