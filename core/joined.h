// Joined backward passes. When a loop records the same graph for the third time, the derivative programs of its nodes
// are joined into one program, in the order in which the walk would run them. It is fused across nodes, needs no walk
// between them, and gives the same bits.
#pragma once
#include <memory>
#include <vector>

#include "tape.h"

namespace wengert {

// One node of a graph whose programs are joined.
struct JoinedStep {
  static constexpr int kNowhere = INT32_MIN;  // the edge leads nowhere
  struct Target {
    int to;  // a step; ~k: leaf k
    uint32_t output;
  };
  const Derived* vjp;
  const int64_t* sizes;    // given to `vjp`
  int first_size;          // index of the first one among the sizes of all nodes
  int n_outputs;           // outputs of the node
  std::vector<int> saved;  // inputs of the joined program
  std::vector<Target> edges;
};

// Joins the steps, given in order. `inputs` are the types of the seed and of each saved value. The program takes the
// seed and the saved values and returns the gradients of the leaves; its size leaves are those given sizes for whose
// every value it is valid. Null if the steps cannot be joined. Set by the bindings.
extern std::shared_ptr<Program> (*join_steps)(const std::vector<Type>& inputs, const std::vector<JoinedStep>& steps,
                                              size_t n_leaves);

// Runs the joined program of a graph that was recorded often enough, instead of the walk. Returns false, having done
// nothing, if there is none or if the walk has to do more than compute gradients.
bool walk_joined(const std::vector<Root>& roots, const WalkOptions& options, WalkResult& result);

// For tests: how many graphs were joined, how often joined programs ran, and after how many equal passes a graph is
// joined (0: at once; -1: never).
struct JoinedCounters {
  int64_t joined = 0, runs = 0;
};
extern JoinedCounters joined_counters;
extern int join_after;

}  // namespace wengert
