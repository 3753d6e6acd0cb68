// The user's lines as Python objects, and the ends of paths to gradients, with theirs.
#include <nanobind/stl/string.h>

#include "program.h"

namespace wengert {

namespace {

// A line of the user's program, decoded on demand.
struct Line {
  SourceLine line = current_line();
  Line() = default;
  Line(const Line&) = delete;
  ~Line() {
    if (line.code) drop_source_line(line);
  }
};

// (reason, op, id of the leaf, line) of a path end; None if it was forgotten.
nb::object path_end(uint32_t number) {
  const PathEnd* end = find_end(number);
  if (!end) return nb::none();
  static const char* reasons[] = {"detach", "no_grad", "no_derivative"};
  return nb::make_tuple(reasons[end->reason], end->op, end->leaf, describe(end->line));
}

}  // namespace

void init_lines(nb::module_& m) {
  nb::class_<Line>(m, "Line", "The line of the user's that runs when it is made; str() tells it.")
      .def(nb::init<>())
      .def("__str__", [](const Line& l) { return describe(l.line); });
  m.def("path_end", &path_end);
}

}  // namespace wengert
