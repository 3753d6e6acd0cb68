// What the core says of ops, for Python.
#pragma once
#include <string>

#include "program.h"

namespace wengert {

void init_ops(nb::module_& m);

const Op& op_named(const std::string& name);  // throws, as the next two
Attrs attrs_from(const Op& op, const nb::tuple& values);
void check_operands(const Op& op, size_t n);  // whether it takes n operands
nb::tuple type_to(const Type& t);             // (dtype, shape)

}  // namespace wengert
