// Programs, derivatives and shape rules for the Python side.
#pragma once
#include <nanobind/nanobind.h>

#include "../small_array.h"
#include "call.h"

namespace wengert {

namespace nb = nanobind;

void init_program(nb::module_& m);
void init_passes(nb::module_& m);
void init_sparsity(nb::module_& m);
void init_tape(nb::module_& m);
void init_memory(nb::module_& m);
void init_compiled(nb::module_& m);
void init_optimizer(nb::module_& m);
void init_profile(nb::module_& m);
void init_callback(nb::module_& m);
void init_generate(nb::module_& m);
void init_cuda(nb::module_& m);
void init_device(nb::module_& m);
void init_streams(nb::module_& m);
void init_dlpack(nb::module_& m);
void init_names(nb::module_& m);
void init_hook_cycles(nb::module_& m);
void init_transforms(nb::module_& m);
void init_autocast(nb::module_& m);
void init_anomaly(nb::module_& m);
void init_lines(nb::module_& m);

nb::object node_to_python(Node* n);  // a new handle

// A new tensor with the same value; writing to one of the two in place leaves the other unchanged.
nb::object another_name(nb::handle tensor);
// A plain tensor as the end of a walk, with its own edge even if the function it was tracked for has ended. (As an
// operand, a recording tape would treat it as untracked.) Borrowed; throws.
Value* end_of_walk(nb::handle tensor, const char* what);
// A fresh leaf with the tensor's value: it collects the gradient, and nothing flows further. It is tracked until
// `extent` ends, or forever if that is 0.
nb::object fresh_leaf(nb::handle tensor, uint64_t id, uint32_t extent);

// Runs f, translating our exceptions as the C-API functions do; nanobind sees the Python exception.
template <class F>
auto guarded(F&& f) {
  try {
    return f();
  } catch (nb::python_error&) {
    throw;
  } catch (...) {
    raise_python();
    throw nb::python_error();
  }
}

nb::object to_python(Value* owned);                 // a Tensor, or None for null
Value* value_from(nb::handle h, const char* what);  // borrowed, as an operand
DType dtype_from(int code);                         // throws, as the next
void check_count(const Program& p, size_t n);       // whether it takes n inputs

// As Python holds them.
using DerivativeHandle = Handle<Derivative>;
using DerivedHandle = Handle<Derived>;

}  // namespace wengert
