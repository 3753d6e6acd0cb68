// A line that ops are said to be of, in place of the one that runs.
#pragma once
#include "tensor.h"

namespace wengert {

// For this thread, until the next call; takes the reference to the line (none: the line that runs), and returns what it
// replaces.
SourceLine stand_at(SourceLine line);
SourceLine standing_line();  // borrowed

}  // namespace wengert
