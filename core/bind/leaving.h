// Numbers that leave for Python or NumPy, where nothing is recorded: whether that would cut the path of a derivative.
#pragma once
#include <nanobind/nanobind.h>

#include <vector>

#include "tensor.h"

namespace wengert {

// One number may leave a graph that is recorded for `backward` (people print their losses); an array may not, since
// what is computed from it and comes back would have lost its history. Inside `grad`, `vjp` and their kin neither may
// if it depends on what is differentiated by.
enum class Leaving { number, array };

// False with GradientError set if the value must not leave. `what` is what was called, such as "item".
bool may_leave(PyObject* tensor, const Value* v, Leaving how, const char* what);

// Between the two, numbers that depend on these nodes may not leave: derivatives by them are being computed.
void enter_transformation(std::vector<Node*> sources);
void leave_transformation();

void init_leaving(nanobind::module_& m);

}  // namespace wengert
