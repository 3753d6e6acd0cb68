// Calling ops from Python: operands, attributes, and the callable object of each op.
#pragma once
#include "../promotion.h"
#include "attributes.h"

namespace wengert {

// A Python number as one element. Integers wrap around where they do not fit: who calls has checked them.
void set_number(PyObject* s, DType t, char* out);

// What a Python number is to the planner of operands. Throws.
Promoted read_number(PyObject* s);
// The plan of an elementwise op; an integer that no dtype of the plan holds is refused. `objects` are for the message.
OperandPlan checked_plan(const Op& op, const Promoted* operands, PyObject* const* objects, int n);

// An elementwise op on Python operands: promotes, broadcasts, runs, records. Returns a new reference, NotImplemented
// (new reference) for foreign operands of a number slot, or null with an exception set.
PyObject* call_elementwise(const Op& op, PyObject* const* args, int n, bool slot);

// An op on tensors that are already as it wants them, with attributes in order.
PyObject* call_op(const Op& op, PyObject* const* inputs, int n_in, PyObject* const* attrs, int n_attrs);

// The same with attributes that have been read, for operands that are plain or dual tensors. Null without an exception
// for others, and while a function is traced. Throws.
PyObject* try_op(const Op& op, PyObject* const* inputs, int n_in, const Attrs& attrs);

// The slot of callables that are methods of the class they stand in, as functions are. A new reference.
PyObject* bind_method(PyObject* self, PyObject* instance, PyObject* type);
PyObject* new_op_function(const Op* op);  // the callable of an op; a new reference
bool is_traced_number(PyObject* o);
void set_traced_number(PyTypeObject* type);  // of what stands for a number while tracing, as Dim does for sizes
int init_op_functions(PyObject* module);

}  // namespace wengert
