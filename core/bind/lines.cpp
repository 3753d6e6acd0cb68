// The user's lines as Python objects, and the ends of paths to gradients, with theirs.
#include <nanobind/stl/string.h>

#include "program.h"
#include "standing_line.h"

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

// A scope in which ops count as those of a given line, instead of the one that runs.
struct AtLine {
  nb::object line;  // a Line, or None
  SourceLine before;

  void enter() {
    SourceLine at;
    if (!line.is_none()) at = nb::cast<Line&>(line).line;
    if (at.code) Py_INCREF(static_cast<PyObject*>(at.code));
    before = stand_at(at);
  }
  void exit(nb::handle, nb::handle, nb::handle) {
    SourceLine used = stand_at(std::exchange(before, {}));
    if (used.code) drop_source_line(used);
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
  nb::class_<AtLine>(m, "at_line", "A scope in which ops count as those of a given line, instead of the one that runs.")
      .def(
          "__init__", [](AtLine* a, nb::object line) { new (a) AtLine{std::move(line), {}}; }, nb::arg("line").none())
      .def("__enter__", &AtLine::enter)
      .def("__exit__", &AtLine::exit, nb::arg().none(), nb::arg().none(), nb::arg().none());
  m.def("standing_line", [] {
    const SourceLine line = standing_line();
    return line.code ? describe(line) : std::string();
  });
  m.def("path_end", &path_end);
}

}  // namespace wengert
