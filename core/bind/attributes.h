// Sizes and attributes of ops: from Python and back.
#pragma once
#include "tensor.h"

namespace wengert {

std::string digits_of(PyObject* integer);  // for messages

Dim dim_from_python(PyObject* o, const char* op = "size");  // throws; op: for the message
int64_t number_of(Dim d);  // a size used as a number; a guard specialises the program to it
PyObject* dim_to_python(Dim d);
PyObject* dims_to_python(const Dims& d);
Dims dims_from_python(PyObject* o, const char* op = "size");  // throws

void parse_attrs(const Op& op, PyObject* const* values, int n, Attrs& attrs);  // throws
PyObject* attr_to_python(const Attr& a);
PyObject* attrs_to_python(const Attrs& attrs);  // a tuple; throws

}  // namespace wengert
