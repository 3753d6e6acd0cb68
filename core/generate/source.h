// C++ from a program, for operands of given types and layouts: one function that does what the executor does, without
// its dispatch. Elementwise instructions use the functors that the vector kernels are compiled from; everything else
// calls the core's kernels. So the results are the same to the bit.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "../program.h"

namespace wengert::generate {

// Thrown for a program that is left to the executor, with the reason.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An op that the function leaves to the core. Operands and results are values without memory; the function supplies
// their addresses.
struct Call {
  const Op* op;
  std::shared_ptr<const Op> owned;
  Attrs attrs;
  bool gemm;
  std::vector<Ref> in, out;
};

// An array that is not on the function's stack.
struct Base {
  enum class Kind : uint8_t { input, constant, output, workspace } kind;
  int32_t index;  // of an input or a constant
  DType dtype;
  Dims shape;  // of an output or workspace
};

// An output of the program: a view of an array.
struct Result {
  enum class Kind : uint8_t { zero, input, view, same } kind;
  int32_t base = -1;   // index in `bases`, of another output (`same`), or of an input (`input`)
  Ref layout = Ref();  // of a view
  int64_t offset = 0;
};

struct Generated {
  std::string text;
  std::vector<Base> bases;
  std::vector<Value*> constants;  // of the program and its regions, which own them
  std::vector<int64_t> words;
  std::vector<const void*> functions;
  std::vector<Call> calls;
  std::vector<Result> results;
  int64_t n_growing = 0;  // arrays whose sizes the function computes
};

// The argument of a generated function.
struct Core {
  void (*call)(void* context, int64_t which, char* const* at);  // operands, then results
  char* (*grow)(void* context, int64_t which, int64_t bytes);   // an array of the function, at least of this size
  void (*check_interrupt)();
  void* context;
  const void* const* functions;
};
using Function = void (*)(char* const* bases, const int64_t* words, const Core* core);

// With `small`, refuses programs so large that the executor is as fast. Throws Refused.
Generated write_source(const Program& p, Value* const* in, const int64_t* leaf_sizes, bool small);

}  // namespace wengert::generate
