// Shortcuts: native parsing of the most common calls of functions written in Python.
#pragma once
#include "call.h"

namespace wengert {

// A shortcut parses the arguments of a call and runs it if they are of the usual kind. Null without an exception means
// that the Python function must handle the call. Throws.
using Shortcut = PyObject* (*)(PyObject* const* args, Py_ssize_t n, PyObject* keywords);

PyObject* try_matmul(PyObject* const* args, Py_ssize_t n, PyObject* keywords);
PyObject* try_power(PyObject* const* args, Py_ssize_t n, PyObject* keywords);

int init_shortcuts(PyObject* module);

}  // namespace wengert
