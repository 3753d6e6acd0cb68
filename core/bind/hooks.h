// Python functions that are called with gradients: when one has been computed, or when that of a leaf is final.
#pragma once
#include <nanobind/nanobind.h>

namespace wengert {

void init_hooks(nanobind::module_& m);

}  // namespace wengert
