// Dual tensors: values with a tangent, at a level. Ops on them are pushes, applied natively one level after another.
#pragma once
#include <vector>

#include "call.h"

namespace wengert {

// What a dual tensor holds. Its value and its tangent are tensors, plain or duals of lower levels.
struct PairObject {
  PyObject_HEAD;
  PyObject* value;
  PyObject* tangent;  // None: zero
  PyObject* level;    // the transformation that it belongs to
  int64_t order;      // of that: inner ones have higher numbers
  PyObject* view;     // what it is a view of, or None
  int64_t version;    // counts writes
  int64_t checked;    // how many writes there had been to any dual when this was last found to be up to date
  char known_layout;
};

// A forward-mode transformation that runs.
struct LevelObject {
  PyObject_HEAD;
  int64_t order;     // inner ones have higher numbers
  PyObject* turned;  // null, or a list of what became a dual of this level by a write
};

// How a dual lies in another: what a view op makes of it.
struct ViewObject {
  PyObject_HEAD;
  PyObject* base;
  const Op* op;
  PyObject* attrs;         // a tuple; null until somebody asks
  std::vector<Attr> read;  // what it is made of then
  int64_t seen;            // the version of the base's pair that the view reflects
  char detached;
};

// Whether ops on this tensor are applied here: a dual that is not traced.
bool is_dual(PyObject* o);

// The value at the bottom of a plain or dual tensor, for its type; null if something else is there.
Value* bottom_value(PyObject* o);

// How many plain tensors a plain or dual tensor is made of: a value and a tangent, at each level.
int count_parts(PyObject* o);

// An op on operands of which some are duals and the others plain tensors, unified if it is elementwise, which have
// at most kLastBit parts together: masks have a bit for each. A new reference (a tuple for several outputs), or null
// with an exception. Throws.
PyObject* call_on_duals(const Op& op, PyObject* const* operands, int n, const Attrs& attrs);

// A derived program on operands of which some are duals and the others plain tensors, with at most kLastBit parts.
// Outputs are new references, null for symbolic zeros. Throws.
void call_on_duals(Derived& p, PyObject* const* operands, int n, PyObject** out);

// The parts of a dual; what it stands for now. Borrowed; throws.
PairObject* pair_of(PyObject* dual);

// A dual with these parts at a level, of which a tangent of None is zero. A new reference; throws.
PyObject* new_dual(PyObject* level, PyObject* value, PyObject* tangent);

int64_t new_level();     // above all that exist: transformations that start later are inner ones
PyObject* make_level();  // a transformation that starts now; a new reference, throws

int init_dual_types(PyObject* module);

}  // namespace wengert
