// Backward passes that come again. When a loop brings the same graph for the third time, the derivative programs of its
// nodes are joined into one program, in the order in which the walk would run them: fused across nodes, without the
// walk's work between them, to the same bits.
#pragma once
#include <memory>
#include <vector>

#include "tape.h"

namespace wengert {

// What the programs of a graph are joined from.
struct JoinedStep {
  static constexpr int kNowhere = INT32_MIN;  // an edge that leads to no node
  struct Target {
    int to;  // a step; ~k: leaf k
    uint32_t output;
  };
  const Derived* vjp;
  const int64_t* sizes;    // given to it
  int first_size;          // of these, among the sizes of all nodes
  int n_outputs;           // of the node
  std::vector<int> saved;  // inputs of the joined program
  std::vector<Target> edges;
};

// The seed's and each saved value's type; the steps, in order; how many leaves. Null if they cannot be joined. The
// program's inputs are the seed and the values, its outputs the gradients of the leaves, its size leaves some of the
// sizes given: it holds for all values of these. Set by the bindings.
extern std::shared_ptr<Program> (*join_steps)(const std::vector<Type>& inputs, const std::vector<JoinedStep>& steps,
                                              size_t n_leaves);

// Runs the joined program of a graph that has come often enough, instead of the walk. False if there is none, or the
// walk has to do more than to compute gradients: then nothing has happened.
bool walk_joined(const std::vector<Root>& roots, const WalkOptions& options, WalkResult& result);

// For tests: how many graphs were joined, and how often such a program ran; after how many equal passes graphs are
// joined (0: at once; -1: never).
struct JoinedCounters {
  int64_t joined = 0, runs = 0;
};
extern JoinedCounters joined_counters;
extern int join_after;

uint64_t new_walk_id();  // marks of walks with lower ones are void

}  // namespace wengert
