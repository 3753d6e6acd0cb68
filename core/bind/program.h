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
void init_names(nb::module_& m);
void init_hook_cycles(nb::module_& m);
void init_transforms(nb::module_& m);
void init_autocast(nb::module_& m);
void init_anomaly(nb::module_& m);
void init_lines(nb::module_& m);

nb::object node_to_python(Node* n);  // a handle of its own

// Another name for the tensor's value: writing to one of the two in place leaves the other as it is.
nb::object another_name(nb::handle tensor);
// A plain tensor as the end of a walk: with the edge that it has, also where the function has ended that it was tracked
// for. A tape that records would take it for a tensor that nothing tracks. Borrowed; throws.
Value* end_of_walk(nb::handle tensor, const char* what);
// The tensor as a fresh leaf with an edge of its own: its gradient is that of the tensor, and nothing flows further.
// `extent`: it is tracked until that ends, or for ever.
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
