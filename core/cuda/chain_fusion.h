// Chains of a program that follow each other, made into one: elementwise work that reads what another chain made,
// element by element, or that makes what a chain of rows reads. What ops are made of is known here alone, so fusion of
// programs (fuse.h) does not see it: a norm and the cast of its result, for example. Bits stay the same.
#pragma once
#include "tasks.h"

namespace wengert::cuda {

// `kept`: memory that is read after the program has run. Kernels of joined chains are added to `made`.
void fuse_chains(std::vector<Task>& tasks, const std::vector<Range>& kept, const Recording& recording,
                 std::vector<std::unique_ptr<BodyKernel>>& made);

}  // namespace wengert::cuda
