// x[key] for basic keys: integers, slices, None and ...
#pragma once
#include "call.h"

namespace wengert {

// The view that a basic key selects. Null without an exception for what Python handles: other keys, keys that do not
// fit (it raises the error), traced tensors. Throws.
PyObject* try_subscript(PyObject* x, PyObject* key);

}  // namespace wengert
