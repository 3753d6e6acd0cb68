// Sizes of programs for Python: symbols, the leaves that they are made of, guards.
#pragma once
#include <nanobind/nanobind.h>

#include <vector>

#include "../dim.h"

namespace wengert {

void init_sizes(nanobind::module_& m);

// Leaves as tuples (kind, source, index).
std::vector<SizeLeaf> leaves_from(const nanobind::list& list);
nanobind::list leaves_to(const std::vector<SizeLeaf>& leaves);

}  // namespace wengert
