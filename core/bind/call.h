// Calling ops from Python: operands, attributes, and the callable object of each op.
#pragma once
#include "../promotion.h"
#include "attributes.h"

namespace wengert {

// Stores a Python number as one element. Integers that do not fit wrap around, so the caller must check them first.
void set_number(PyObject* s, DType t, char* out);

// A Python number as the operand planner sees it. Throws.
Promoted read_number(PyObject* s);
// The operand plan of an elementwise op. Refuses integers that the planned dtype cannot hold; `objects` are for the
// message.
OperandPlan checked_plan(const Op& op, const Promoted* operands, PyObject* const* objects, int n);

// An elementwise op on Python operands: promotes, broadcasts, runs, records. Returns a new reference, NotImplemented
// (new reference) for foreign operands of a number slot, or null with an exception set.
PyObject* call_elementwise(const Op& op, PyObject* const* args, int n, bool slot);

// An op on tensors that already have the right dtypes and shapes, with attributes in order.
PyObject* call_op(const Op& op, PyObject* const* inputs, int n_in, PyObject* const* attrs, int n_attrs);

// The same with parsed attributes, for plain or dual tensors. Returns null without an exception for other operands, and
// while a function is being traced. Throws.
PyObject* try_op(const Op& op, PyObject* const* inputs, int n_in, const Attrs& attrs);

// The tp_descr_get slot of callables that act as methods of their class, as functions do. A new reference.
PyObject* bind_method(PyObject* self, PyObject* instance, PyObject* type);
PyObject* new_op_function(const Op* op);  // the callable of an op; a new reference
bool is_traced_number(PyObject* o);
void set_traced_number(PyTypeObject* type);  // the type that represents a number while tracing, as Dim does for sizes
int init_op_functions(PyObject* module);

}  // namespace wengert
