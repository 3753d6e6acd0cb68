// Where paths to gradients end. A path ends at a result that is not tracked although something it was computed from is:
// it was detached, computed under no_grad, or made by an op without a derivative. The result carries a number (in
// Value::made), as does everything computed from it. The most recent ends are kept with the user's lines, so that
// explain() works without anything having been switched on.
#pragma once
#include <string>

#include "value.h"

namespace wengert {

struct PathEnd {
  enum Reason : uint8_t { detach, no_grad, no_derivative } reason = detach;
  const char* op = nullptr;  // the op that made the result; static storage
  uint64_t leaf = 0;         // id of the leaf where the path began, if it did
  SourceLine line;           // the line of the op
};

// A leaf may be made from a value that was cut off from another path.
inline bool at_end(const Value* v) { return v->made >= Value::kFirstSpecial && v->made != Value::kLiteral && !v->node; }

// Remembers an end and gives its number to the value. Takes the line's reference.
void mark_end(Value* v, const PathEnd& end);

// Null if the end has been forgotten, or if the number does not denote an end.
const PathEnd* find_end(uint32_t number);

}  // namespace wengert
