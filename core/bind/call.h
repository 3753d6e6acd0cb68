// Calling ops from Python: operands, attributes, and the callable object of each op.
#pragma once
#include "tensor.h"

namespace wengert {

// A Python number as one element. Integers wrap around where they do not fit: who calls has checked them.
void set_number(PyObject* s, DType t, char* out);

// An elementwise op on Python operands: promotes, broadcasts, runs, records. Returns a new reference, NotImplemented
// (new reference) for foreign operands of a number slot, or null with an exception set.
PyObject* call_elementwise(const Op& op, PyObject* const* args, int n, bool slot);

// An op on tensors that are already as it wants them, with attributes in order.
PyObject* call_op(const Op& op, PyObject* const* inputs, int n_in, PyObject* const* attrs, int n_attrs);

void parse_attrs(const Op& op, PyObject* const* values, int n, Attrs& attrs);  // throws
PyObject* attr_to_python(const Attr& a);
Dim dim_from_python(PyObject* o, const char* op = "size");  // throws; op: for the message
int64_t number_of(Dim d);  // a size used as a number: the program is specialised to it, by a guard
PyObject* dim_to_python(Dim d);
PyObject* dims_to_python(const Dims& d);
Dims dims_from_python(PyObject* o, const char* op = "size");  // throws

PyObject* new_op_function(const Op* op);  // the callable of an op; a new reference
bool is_traced_number(PyObject* o);
void set_traced_number(PyTypeObject* type);  // of what stands for a number while tracing, as Dim does for sizes
int init_call(PyObject* module);

}  // namespace wengert
