// Dual tensors: values with a tangent, at a level. Ops on them apply pushes, natively, one level after the other.
#pragma once
#include <vector>

#include "call.h"

namespace wengert {

// The contents of a dual tensor. Its value and tangent are tensors: plain, or duals of lower levels.
struct PairObject {
  PyObject_HEAD;
  PyObject* value;
  PyObject* tangent;  // None: zero
  PyObject* level;    // the transformation that it belongs to
  int64_t order;      // of that level; inner levels have higher numbers
  PyObject* view;     // what it is a view of, or None
  int64_t version;    // counts writes
  int64_t checked;    // the global write count when this pair was last known to be up to date
  char known_layout;
};

// A forward-mode transformation in progress.
struct LevelObject {
  PyObject_HEAD;
  int64_t order;     // inner levels have higher numbers
  PyObject* turned;  // null, or a list of the tensors that a write turned into duals of this level
};

// The relation of a dual to the dual that it is a view of: the view op and its attributes.
struct ViewObject {
  PyObject_HEAD;
  PyObject* base;
  const Op* op;
  PyObject* attrs;         // a tuple; null until requested
  std::vector<Attr> read;  // the attributes that the tuple is made from
  int64_t seen;            // the version of the base's pair that the view reflects
  char detached;
};

// Whether ops on this tensor are handled here, that is, it is a dual outside of traces.
bool is_dual(PyObject* o);

// The value at the bottom of a plain or dual tensor, for its type; null for other tensors.
Value* bottom_value(PyObject* o);

// The number of plain tensors that a plain or dual tensor consists of: a value and a tangent at each level.
int count_parts(PyObject* o);

// Applies an op to duals and plain tensors (unified if it is elementwise) with at most kLastBit parts in total, one bit
// of a mask for each. Returns a new reference (a tuple for several outputs), or null with an exception. Throws.
PyObject* call_on_duals(const Op& op, PyObject* const* operands, int n, const Attrs& attrs);

// Applies a derived program to duals and plain tensors with at most kLastBit parts. Outputs are new references, null
// for symbolic zeros. Throws.
void call_on_duals(Derived& p, PyObject* const* operands, int n, PyObject** out);

// The current contents of a dual. Borrowed; throws.
PairObject* pair_of(PyObject* dual);

// A dual with these parts at a level; a tangent of None is zero. A new reference; throws.
PyObject* new_dual(PyObject* level, PyObject* value, PyObject* tangent);

int64_t new_level();     // higher than all existing ones, because transformations that start later are inner ones
PyObject* make_level();  // the level of a transformation that starts now; a new reference, throws

int init_dual_types(PyObject* module);

}  // namespace wengert
