// A function that was traced for one signature: its program, what that assumes of a call, and what a call does besides
// computing results. Inputs of the program are the arguments of the call that are tensors or numbers, then hidden ones
// (random streams, numbers that Python objects hold, gradients), then the tensors that the function took from outside.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "derived.h"
#include "tensor.h"

namespace wengert {

// Sizes in executable form.
struct SizeList {
  SizeProgram program;
  std::vector<Dim> entries;  // references into the program

  std::vector<int64_t> evaluate(Value* const* in) const;
};

// A tensor that the function changes in place: which input it is, and which output is its new value.
struct TensorWrite {
  uint32_t input, output;
  bool recorded;  // not under no_grad
  std::string op;
  bool in_place = false;  // whether the program may write the new value over the old
};

// The `.grad` of a leaf that the function reads or changes.
struct LeafGrad {
  enum class Before : uint8_t { not_read, absent, present };
  enum class After : uint8_t { untouched, forgotten, replaced, added };
  uint32_t leaf;  // which input it is
  Before before;
  DType dtype;     // of what is present
  uint32_t input;  // which input that is
  After after;
  uint32_t output;  // that is the new one, or is added

  bool has_output() const { return after >= After::replaced; }
};

struct Effects {
  SizeList draws;                   // how far each stream of random numbers moves on
  std::vector<TensorWrite> writes;  // in place, after the run
  std::vector<uint64_t> sources;    // of each output: the inputs that it can be differentiated by
  size_t n_results = 0;             // outputs that the caller sees; those of `writes` and `grads` follow
  std::vector<LeafGrad> grads;
};

// What the trace has asked about a number that is an operand.
struct NumberGuard {
  enum class Comparison : uint8_t { less, less_equal, equal, greater_equal, greater };
  uint32_t input;
  Comparison comparison;
  double constant;
  bool outcome;

  bool holds(Value* const* in) const;
};

// What a tensor is to reverse mode: `backward` inside the function differentiates with respect to the leaves.
enum class Role : char { constant, leaf, hooked_leaf, computed };
Role role_of(const Value* v);

// The arguments of a call that are inputs of the program: their values, and the tensors that hold these; null for
// numbers.
struct TraceArguments {
  Value* const* values;
  Tensor* const* tensors;
  size_t n;
};

struct Trace {
  GuardSet guards;
  std::vector<NumberGuard> numbers;
  std::shared_ptr<Program> program;
  std::vector<Tensor*> captured;     // from outside; kept alive by whoever owns the trace
  std::vector<Type> captured_types;  // a tensor from outside may be given another dtype
  std::vector<Role> roles;           // of arguments and captured tensors, if the trace depends on them
  std::optional<Effects> effects;
  uint64_t used = 0;  // when it last was, counted in calls
  int running = 0;    // calls that are in it now

  // Looks at what Python has made of a trace: the executor trusts it afterwards. Throws.
  void finish(const TraceArguments& call, bool asks_roles);
  // Whether it is for this call, as far as tensors and numbers tell.
  bool holds(const TraceArguments& call) const;
  size_t n_hidden(const TraceArguments& call) const { return program->n_inputs - call.n - captured.size(); }
  // The tensor that an input of the program is; null for hidden ones and numbers.
  Tensor* tensor_of(const TraceArguments& call, size_t input) const;
  // By which inputs a call with effects will be differentiated; hidden ones are never tracked.
  uint64_t active_mask(const TraceArguments& call) const;
  void require_one_device(const TraceArguments& call) const;

  // The derivative with respect to the inputs in the mask, if it is known.
  const Derivative* derivative(uint64_t mask) const;
  // Takes a new one, with all guards so far: deriving may have looked at sizes, too. Throws if it is that of another
  // program.
  void add_derivative(uint64_t mask, Handle<Derivative> made, GuardSet now);

 private:
  std::vector<std::pair<uint64_t, Handle<Derivative>>> derivatives_;  // by which inputs need gradients
  bool roles_hold(const TraceArguments& call) const;
  bool captured_types_hold() const;
  bool grads_hold(const TraceArguments& call) const;
};

// Where the new values of a call go: of each write the tensor, and of each output what it is written into.
//
// `in` and `tensors` have all inputs of the program. Refuses, before anything runs, what cannot be written.
void find_targets(const Effects& effects, Value* const* in, Tensor* const* tensors, size_t n, Tensor** targets);
// Of each output the value whose memory its new contents may take, or null.
void find_places(const Effects& effects, Value* const* in, Tensor* const* targets, Value** into);
// Takes the new values of `writes`; those that went `into` the memory of the old ones are there already.
void store_writes(const Effects& effects, Tensor* const* targets, Value** out, Value* const* into);
// An output that no tracked input leads to is no part of the graph.
void drop_unrelated_edges(const Effects& effects, uint64_t mask, Value** out);
// Whether losses, gradients and parameters are finite; other state is where they are.
bool finite_effects(const Effects& effects, Tensor* const* targets, Value* const* out);

}  // namespace wengert
