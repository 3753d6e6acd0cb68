// Calls: what ran while a tape recorded, with all that it takes to run it again. A value knows which call made it, so
// that calls make up a program; what no call made comes from outside, and is kept.
#pragma once
#include <memory>
#include <vector>

#include "derived.h"

namespace wengert {

// An op or a program that ran, with all that it takes to run it again on operands like those.
struct Work {
  const Op* op = nullptr;              // this op; or
  std::shared_ptr<const Program> ran;  // this program; neither: a custom op
  std::vector<Attr> attrs;
  std::vector<int64_t> given;  // sizes, to a derived program
  bool sizes_given = false;    // it has a number for each leaf of the program
};

struct Call : Work {
  struct Operand {
    uint32_t made;     // as Value::made
    uint32_t version;  // of its buffer, when it was read
    Value* value;      // of one that was not made since the innermost tape started; else null
    Type type;
    const Node* node = nullptr;  // who gets its cotangent, if a derivative by it is wanted; only to be compared
    uint32_t output = 0;         // of that node
  };

  std::string name;
  void* python = nullptr;  // what the program was lowered from, or what calls the custom op (a PyObject)
  std::vector<Operand> operands;
  uint32_t first = 0;         // the first of its results, as Value::made; the others follow
  std::vector<Type> results;  // with what was computed for backward alone
  int n_outputs = 0;          // results that are not for backward alone
  Node* node = nullptr;       // null: it has no derivative, or none was wanted
  SourceLine line;

  Call() = default;
  Call(const Call&) = delete;
  ~Call();
};

// The number of the last result of a call: later ones are higher.
uint32_t last_made();

// Gives a value that is the result of a call a number, unless it has one.
void number_result(Value* v);

// A call with operands and results; these get their numbers. `start` is last_made() when the innermost tape started.
std::shared_ptr<Call> new_call(std::string name, uint32_t start, Value* const* in, int n_in, Value* const* out,
                               int n_results, int n_outputs);

// Runs it again, on other operands. Results are new references. Not for custom ops.
void run_again(const Work& work, Value* const* in, int n_in, Value** out);

}  // namespace wengert
