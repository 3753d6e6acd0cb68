// Where paths to gradients end: a result that is not tracked though something that it was computed from is, because it
// was detached, computed under no_grad, or made by an op without derivative. Such a result carries a number (in
// Value::made), and so does what is computed from it; the last of the ends are kept, with the user's lines, so that a
// gradient that is missing can be explained without anything being switched on before.
#pragma once
#include <string>

#include "value.h"

namespace wengert {

struct PathEnd {
  enum Reason : uint8_t { detach, no_grad, no_derivative } reason = detach;
  const char* op = nullptr;  // that made the result, of those that do not go away
  uint64_t leaf = 0;         // the id of the leaf that the path came from, if it was one
  SourceLine line;           // of the op
};

// A leaf may be made of a value that was cut from another path.
inline bool at_end(const Value* v) { return v->made >= Value::kFirstSpecial && v->made != Value::kLiteral && !v->node; }

// Remembers an end, for the value that it is the number of. Takes the line's reference.
void mark_end(Value* v, const PathEnd& end);

// Null if it was long ago, or if the number is none of an end.
const PathEnd* find_end(uint32_t number);

}  // namespace wengert
