// Checks whether handing numbers to Python or NumPy, where nothing is recorded, would silently cut a derivative.
#pragma once
#include <nanobind/nanobind.h>

#include <vector>

#include "tensor.h"

namespace wengert {

// A single number may leave a graph recorded for `backward`, because people print their losses. An array may not,
// because whatever is computed from it would come back without its history. Inside `grad`, `vjp` and the like, neither
// may leave if it depends on what is being differentiated with respect to.
enum class Leaving { number, array };

// False with GradientError set if the value must not leave. `what` is what was called, such as "item".
bool may_leave(PyObject* tensor, const Value* v, Leaving how, const char* what);

// Between these two calls, numbers that depend on the nodes may not leave: derivatives with respect to them are being
// computed.
void enter_transformation(std::vector<Node*> sources);
void leave_transformation();

void init_leaving(nanobind::module_& m);

}  // namespace wengert
