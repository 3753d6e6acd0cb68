// x[key] for basic keys: integers, slices, None and ...
#pragma once
#include "call.h"

namespace wengert {

// The view that a basic key names. Null without an exception for what is left to Python: other keys, keys that do not
// fit (it says why), tensors that are traced. Throws.
PyObject* try_subscript(PyObject* x, PyObject* key);

}  // namespace wengert
