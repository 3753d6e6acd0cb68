// A function traced for one signature: its program, its assumptions about a call, and the side effects of a call. The
// program's inputs are the call's arguments that are tensors or numbers, then hidden inputs (random streams, numbers
// held by Python objects, gradients), then the captured tensors.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "derived.h"
#include "inspection.h"
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
  bool recorded;  // false if made under no_grad
  std::string op;
  bool in_place = false;          // whether the program may write the new value over the old
  bool after_inspection = false;  // whether it happens after what is inspected is known
};

// The `.grad` of a leaf that the function reads or changes.
struct LeafGrad {
  enum class Before : uint8_t { not_read, absent, present };
  enum class After : uint8_t { untouched, forgotten, replaced, added };
  uint32_t leaf;  // which input it is
  Before before;
  DType dtype;     // dtype of an existing gradient
  uint32_t input;  // its input
  After after;
  uint32_t output;  // the output that replaces it or is added

  bool has_output() const { return after >= After::replaced; }
};

struct Effects {
  SizeList draws;                   // how far each random stream advances
  std::vector<TensorWrite> writes;  // in place, after the run
  std::vector<uint64_t> sources;    // per output: the inputs that it is differentiable in
  size_t n_results = 0;             // outputs that the caller sees, followed by those of `writes` and `grads`
  std::vector<LeafGrad> grads;
  Inspection inspection;  // of losses and gradients, and of parameters whose gradient is not kept
};

// What the trace assumed about a number that is an operand.
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

// The arguments of a call that are inputs of the program: their values and their tensors, null for numbers.
struct TraceArguments {
  Value* const* values;
  Tensor* const* tensors;
  size_t n;
};

struct Trace {
  GuardSet guards;
  std::vector<NumberGuard> numbers;
  std::shared_ptr<Program> program;
  std::vector<Tensor*> captured;     // captured tensors, kept alive by the owner of the trace
  std::vector<Type> captured_types;  // to detect a captured tensor whose type has changed
  std::vector<Role> roles;           // of arguments and captured tensors, if the trace depends on them
  std::optional<Effects> effects;
  uint64_t used = 0;  // the call number of its last use
  int running = 0;    // calls in progress

  // Validates a trace made by Python, which the executor trusts afterwards. Throws.
  void finish(const TraceArguments& call, bool asks_roles);
  // Whether it fits this call, judging by tensors and numbers.
  bool holds(const TraceArguments& call) const;
  size_t n_hidden(const TraceArguments& call) const { return program->n_inputs - call.n - captured.size(); }
  // The tensor of a program input; null for hidden inputs and numbers.
  Tensor* tensor_of(const TraceArguments& call, size_t input) const;
  // The inputs with respect to which a call with effects is differentiated; hidden ones are never tracked.
  uint64_t active_mask(const TraceArguments& call) const;
  void require_one_device(const TraceArguments& call) const;

  // The derivative with respect to the inputs in the mask, if it is known.
  const Derivative* derivative(uint64_t mask) const;
  // Adds a derivative with all guards so far, because deriving may have read sizes too. Throws if it belongs to another
  // program.
  void add_derivative(uint64_t mask, Handle<Derivative> made, GuardSet now);

 private:
  std::vector<std::pair<uint64_t, Handle<Derivative>>> derivatives_;  // by mask of inputs that need gradients
  bool roles_hold(const TraceArguments& call) const;
  bool captured_types_hold() const;
  bool grads_hold(const TraceArguments& call) const;
  void plan_inspection(const TraceArguments& call);
};

// Finds the targets of a call's new values: the tensor of each write, and the destination of each output.
//
// `in` and `tensors` have all inputs of the program. Refuses, before anything runs, what cannot be written.
void find_targets(const Effects& effects, Value* const* in, Tensor* const* tensors, size_t n, Tensor** targets);
// For each output, the value whose memory its new contents may reuse, or null; with `inspected`, only where the
// inspection comes first.
void find_places(const Effects& effects, Value* const* in, Tensor* const* targets, bool inspected, Value** into);
// Stores the new values of `writes`, except those already written `into` the old memory.
void store_writes(const Effects& effects, Tensor* const* targets, Value** out, Value* const* into);
// Removes the edges of outputs that depend on no tracked input.
void drop_unrelated_edges(const Effects& effects, uint64_t mask, Value** out);

}  // namespace wengert
