// Programs, derivatives and shape rules for the Python side.
#pragma once
#include <nanobind/nanobind.h>

#include "call.h"

namespace wengert {

namespace nb = nanobind;

void init_program(nb::module_& m);
void init_tape(nb::module_& m);

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

nb::object to_python(Value* owned);                // a Tensor, or None for null
Value* value_from(nb::handle h, const char* what);  // borrowed, as an operand
Derivative* find_derivative(const Op& op, Value* const* in, int n_in, const Attrs& attrs, uint64_t mask);
std::shared_ptr<Program> narrow_derivative(Derivative& d, uint64_t mask);

}  // namespace wengert
