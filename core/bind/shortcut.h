// Shortcuts: the commonest calls of functions that are written in Python, read natively.
#pragma once
#include "call.h"

namespace wengert {

// A shortcut reads the arguments of a call, and runs it if they are of the usual kind. Null without an exception: the
// function has to read them. Throws.
using Shortcut = PyObject* (*)(PyObject* const* args, Py_ssize_t n, PyObject* keywords);

PyObject* try_matmul(PyObject* const* args, Py_ssize_t n, PyObject* keywords);
PyObject* try_power(PyObject* const* args, Py_ssize_t n, PyObject* keywords);

int init_shortcuts(PyObject* module);

}  // namespace wengert
