// Derivatives and their variants for Python, which makes them when the core asks for one for the first time.
#pragma once
#include <nanobind/nanobind.h>

namespace wengert {

void init_derived(nanobind::module_& m);

}  // namespace wengert
