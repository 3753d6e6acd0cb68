// The parts that make up the type `Tensor`.
#pragma once
#include "tensor.h"

namespace wengert {

PyObject* not_plain(const char* what);              // null with TypeError
Value* value_of(PyObject* self, const char* what);  // null with TypeError unless the tensor is plain
// The same for reading its numbers: null with TraceError if the function being traced has changed it.
Value* data_of(PyObject* self, const char* what);

extern PyGetSetDef tensor_properties[];  // tensor_properties.cpp

// tensor_buffer.cpp: PEP 3118
int get_tensor_buffer(PyObject* self, Py_buffer* view, int flags);
void release_tensor_buffer(PyObject* self, Py_buffer* view);

}  // namespace wengert
