// The log of what ran while a tape recorded, with everything needed to run it again. A value knows the call that made
// it, so the calls form a program. Values that no call made come from outside and are kept.
#pragma once
#include <memory>
#include <vector>

#include "derived.h"

namespace wengert {

// An op or program that ran, with everything needed to run it again on similar operands.
struct Work {
  const Op* op = nullptr;              // this op; or
  std::shared_ptr<const Program> ran;  // this program; neither: a custom op
  std::vector<Attr> attrs;
  std::vector<int64_t> given;  // sizes given to a derived program
  bool sizes_given = false;    // `given` has a number for every leaf of the program
};

struct Call : Work {
  struct Operand {
    uint32_t made;     // as Value::made
    uint32_t version;  // the buffer's version when it was read
    Value* value;      // the operand, if it is older than the innermost tape; else null
    Type type;
    const Node* node = nullptr;  // receives its cotangent if it is differentiated; only compared, never dereferenced
    uint32_t output = 0;         // of that node
  };

  std::string name;
  void* python = nullptr;  // the Python program that was lowered, or the caller of the custom op (a PyObject)
  std::vector<Operand> operands;
  uint32_t first = 0;         // the first of its results, as Value::made; the others follow
  std::vector<Type> results;  // including those computed only for backward
  int n_outputs = 0;          // the results that are not only for backward
  Node* node = nullptr;       // null: it has no derivative, or none was wanted
  SourceLine line;

  Call() = default;
  Call(const Call&) = delete;
  ~Call();
};

// The number of the most recent result; later results get higher numbers.
uint32_t last_made();

// Numbers a result of a call, unless it already has a number.
void number_result(Value* v);

// Makes a call and numbers its results. `start` is last_made() at the time the innermost tape started.
std::shared_ptr<Call> new_call(std::string name, uint32_t start, Value* const* in, int n_in, Value* const* out,
                               int n_results, int n_outputs);

// Runs it again, on other operands. Results are new references. Not for custom ops.
void run_again(const Work& work, Value* const* in, int n_in, Value** out);

}  // namespace wengert
