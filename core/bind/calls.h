// What ran while a tape recorded, for Python.
#pragma once
#include <nanobind/nanobind.h>

namespace wengert {

void init_calls(nanobind::module_& m);

}  // namespace wengert
