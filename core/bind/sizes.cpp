#include "sizes.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "../trace.h"
#include "program.h"

namespace wengert {

namespace {

SizeLeaf leaf_from(int kind, int source, int index) {
  if (kind < SizeLeaf::input || kind > SizeLeaf::given || source < 0 || index < 0)
    fail(ErrorKind::value, "size",
         "no leaf (" + std::to_string(kind) + ", " + std::to_string(source) + ", " + std::to_string(index) + ")");
  return {static_cast<SizeLeaf::Kind>(kind), source, index};
}

}  // namespace

std::vector<SizeLeaf> leaves_from(const nb::list& list) {
  std::vector<SizeLeaf> leaves;
  for (nb::handle h : list) {
    auto [kind, source, index] = nb::cast<std::tuple<int, int, int>>(h);
    leaves.push_back(leaf_from(kind, source, index));
  }
  return leaves;
}

nb::list leaves_to(const std::vector<SizeLeaf>& leaves) {
  nb::list out;
  for (const SizeLeaf& l : leaves) out.append(nb::make_tuple(static_cast<int>(l.kind), l.source, l.index));
  return out;
}

namespace {

// The leaves of sizes, each once.
nb::list leaves_of_sizes(nb::handle sizes) {
  return guarded([&] {
    std::vector<SizeLeaf> found;
    for (nb::handle h : nb::cast<nb::sequence>(sizes))
      for (SizeLeaf l : leaves_of(dim_from_python(h.ptr())))
        if (std::find(found.begin(), found.end(), l) == found.end()) found.push_back(l);
    return leaves_to(found);
  });
}

std::vector<nb::tuple> describe_guards(const std::vector<Guard>& guards) {
  std::vector<nb::tuple> out;
  for (const Guard& g : guards)
    out.push_back(nb::make_tuple(nb::steal(dim_to_python(g.a)), g.comparison == Comparison::equal ? "==" : "<",
                                 nb::steal(dim_to_python(g.b)), g.outcome));
  return out;
}

using Operator = PyObject* (*)(PyObject*, PyObject*);

template <int comparison>
PyObject* compare(PyObject* a, PyObject* b) {
  return PyObject_RichCompare(a, b, comparison);
}

// Applies Python's operator to the size's number and the other operand.
template <class F>
nb::object on_number(Dim a, nb::handle b, F op, bool swapped) {
  if (is_tensor(b.ptr()) || is_traced_number(b.ptr()))  // the other operand's type handles this; Python asks it next
    return nb::borrow(Py_NotImplemented);
  nb::object number = nb::int_(guarded([&] { return number_of(a); }));
  PyObject* made = swapped ? op(b.ptr(), number.ptr()) : op(number.ptr(), b.ptr());
  if (!made) throw nb::python_error();
  return nb::steal(made);
}

nb::object power(Dim a, nb::handle b, nb::handle mod, bool swapped) {
  return on_number(a, b, [=](PyObject* x, PyObject* y) { return PyNumber_Power(x, y, mod.ptr()); }, swapped);
}

// If b is symbolic, records a guard that it is not 0.
Dim quotient(Dim a, Dim b) {
  if (b == Dim(0)) {
    PyErr_SetString(PyExc_ZeroDivisionError, "integer division or modulo by zero");
    throw nb::python_error();
  }
  return dim_floordiv(a, b);
}

void bind_dim(nb::module_& m) {
  auto py = [](Dim d) { return nb::steal(dim_to_python(d)); };
  // Sizes and integers give a size; with any other operand, such as a float, a size acts as a number.
  auto with = [](Dim a, nb::handle b, auto f, Operator op, bool swapped = false) -> nb::object {
    if (PyIndex_Check(b.ptr()) && !is_tensor(b.ptr())) {
      return nb::cast(f(guarded([&] { return dim_from_python(b.ptr()); })));
    }
    return on_number(a, b, op, swapped);
  };
  nb::class_<Dim>(m, "Dim", "A size while tracing: an expression over the sizes of inputs.")
      .def("__add__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return py(a + b); }, PyNumber_Add); })
      .def("__radd__",
           [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return py(a + b); }, PyNumber_Add, true); })
      .def("__sub__",
           [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return py(a - b); }, PyNumber_Subtract); })
      .def("__rsub__",
           [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return py(b - a); }, PyNumber_Subtract, true); })
      .def("__mul__",
           [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return py(a * b); }, PyNumber_Multiply); })
      .def("__rmul__",
           [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return py(a * b); }, PyNumber_Multiply, true); })
      .def("__neg__", [=](Dim a) { return py(a * Dim(-1)); })
      .def("__floordiv__",
           [=](Dim a, nb::handle h) {
             return with(a, h, [=](Dim b) { return py(quotient(a, b)); }, PyNumber_FloorDivide);
           })
      .def("__rfloordiv__",
           [=](Dim a, nb::handle h) {
             return with(a, h, [=](Dim b) { return py(quotient(b, a)); }, PyNumber_FloorDivide, true);
           })
      .def("__mod__",
           [=](Dim a, nb::handle h) {
             return with(a, h, [=](Dim b) { return py(a - quotient(a, b) * b); }, PyNumber_Remainder);
           })
      .def("__rmod__",
           [=](Dim a, nb::handle h) {
             return with(a, h, [=](Dim b) { return py(b - quotient(b, a) * a); }, PyNumber_Remainder, true);
           })
      .def("__truediv__", [](Dim a, nb::handle h) { return on_number(a, h, PyNumber_TrueDivide, false); })
      .def("__rtruediv__", [](Dim a, nb::handle h) { return on_number(a, h, PyNumber_TrueDivide, true); })
      .def(
          "__pow__", [](Dim a, nb::handle h, nb::handle mod) { return power(a, h, mod, false); }, nb::arg(),
          nb::arg("mod") = nb::none())
      .def(
          "__rpow__", [](Dim a, nb::handle h, nb::handle mod) { return power(a, h, mod, true); }, nb::arg(),
          nb::arg("mod") = nb::none())
      .def("__divmod__", [](Dim a, nb::handle h) { return on_number(a, h, PyNumber_Divmod, false); })
      .def("__rdivmod__", [](Dim a, nb::handle h) { return on_number(a, h, PyNumber_Divmod, true); })
      .def(
          "__eq__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return a == b; }, compare<Py_EQ>); },
          nb::arg("other").none())
      .def(
          "__ne__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return !(a == b); }, compare<Py_NE>); },
          nb::arg("other").none())
      .def("__lt__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return a < b; }, compare<Py_LT>); })
      .def("__le__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return a <= b; }, compare<Py_LE>); })
      .def("__gt__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return b < a; }, compare<Py_GT>); })
      .def("__ge__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return b <= a; }, compare<Py_GE>); })
      .def("__bool__", [=](Dim a) { return !(a == Dim(0)); })
      .def("__hash__", [](Dim a) { return static_cast<Py_ssize_t>(a.raw); })
      .def("__index__", [](Dim a) { return guarded([&] { return number_of(a); }); })
      .def("__repr__", [](Dim a) { return to_string(a); })
      .def_prop_ro("hint", &Dim::hint)
      .def_prop_ro("is_leaf", [](Dim a) { return is_leaf(a); })
      .def_prop_ro("raw", [](Dim a) { return a.raw; });
  m.def("open_symbols", &open_symbols);
  m.def("close_symbols", [] { guarded(close_symbols); });
  m.def("new_symbol", [=](int kind, int source, int index, int64_t hint) {
    return guarded([&] { return py(new_symbol(leaf_from(kind, source, index), hint)); });
  });
}

void bind_guards(nb::module_& m) {
  nb::class_<Guard>(m, "Guard");
  m.def("open_guards", &open_guards);
  m.def("close_guards", [] { return guarded([] { return close_guards(); }); });
  m.def("describe_guards", &describe_guards);
  nb::class_<GuardSet>(m, "GuardSet");
  m.def("make_guards", [](const std::vector<Guard>& recorded) { return GuardSet(recorded); });
  nb::class_<SizeList>(m, "SizeList");
  m.def("make_sizes", [](nb::handle sizes) {
    return guarded([&] {
      SizeList made;
      for (Dim d : dims_from_python(sizes.ptr())) made.entries.push_back(made.program.compile(d));
      return made;
    });
  });
}

nb::object broadcast_shapes(const std::string& op, nb::handle a, nb::handle b) {
  return guarded([&] {
    return nb::steal(dims_to_python(broadcast(op.c_str(), dims_from_python(a.ptr()), dims_from_python(b.ptr()))));
  });
}

// Leaves are (kind, source, index); values are numbers or other sizes.
SizeSubstitution substitution_from(const nb::list& leaves, const nb::list& values) {
  return guarded([&] {
    std::vector<Dim> to;
    for (nb::handle h : values) to.push_back(dim_from_python(h.ptr()));
    const std::vector<SizeLeaf> from = leaves_from(leaves);
    if (to.size() != from.size()) fail(ErrorKind::value, "substitute_sizes", "takes one value for each leaf");
    return SizeSubstitution(from, to);
  });
}

nb::object substitute(SizeSubstitution& replace, nb::handle sizes) {
  return guarded([&] {
    Dims out;
    for (Dim d : dims_from_python(sizes.ptr())) out.push(replace(d));
    return nb::steal(dims_to_python(out));
  });
}

}  // namespace

void init_sizes(nb::module_& m) {
  bind_dim(m);
  bind_guards(m);
  m.def("broadcast_shapes", &broadcast_shapes);
  nb::class_<SizeSubstitution>(m, "SizeSubstitution", "Replaces leaves in sizes by numbers or other sizes.")
      .def("__init__", [](SizeSubstitution* made, const nb::list& leaves,
                          const nb::list& values) { new (made) SizeSubstitution(substitution_from(leaves, values)); })
      .def("__call__", &substitute);
  m.def("substitute_sizes", [](nb::handle sizes, const nb::list& leaves, const nb::list& values) {
    SizeSubstitution replace = substitution_from(leaves, values);
    return substitute(replace, sizes);
  });
  m.def("leaves_of_sizes", &leaves_of_sizes);
}

}  // namespace wengert
