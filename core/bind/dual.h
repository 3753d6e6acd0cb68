// Dual tensors: values with a tangent, at a level. Ops on them are pushes, applied natively one level after another.
#pragma once
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
  char known_layout;
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

int init_dual_types(PyObject* module);

}  // namespace wengert
