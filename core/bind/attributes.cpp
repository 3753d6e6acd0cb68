#include "attributes.h"

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace wengert {

std::string digits_of(PyObject* integer) {
  PyObject* text = PyObject_Str(integer);
  const char* digits = text ? PyUnicode_AsUTF8(text) : nullptr;
  std::string number = digits ? digits : "given";
  Py_XDECREF(text);
  PyErr_Clear();  // Python refuses to print numbers with very many digits
  return number;
}

namespace {

[[noreturn]] void fail_too_large(PyObject* integer, const char* op) {
  fail(ErrorKind::range, op,
       "the integer " + digits_of(integer) + " is out of range; sizes and offsets lie between -2**62 and 2**63 - 1");
}

int64_t integer_from(PyObject* o, const char* op) {
  int overflow = 0;
  int64_t i = PyLong_AsLongLongAndOverflow(o, &overflow);
  if (i == -1 && PyErr_Occurred()) throw Error(ErrorKind::python, "");
  if (overflow) fail_too_large(o, op);
  return i;
}

// A concrete size; numbers far below zero are reserved for symbols.
Dim concrete(PyObject* integer, const char* op) {
  const Dim d = integer_from(integer, op);
  if (d.symbolic()) fail_too_large(integer, op);
  return d;
}

}  // namespace

Dim dim_from_python(PyObject* o, const char* op) {
  if (PyLong_Check(o)) return concrete(o, op);
  Dim d;
  if (nb::try_cast(nb::handle(o), d)) return d;
  nb::object index = nb::steal(PyNumber_Index(o));
  if (!index) throw Error(ErrorKind::python, "");
  return concrete(index.ptr(), op);
}

int64_t number_of(Dim d) {
  for (SizeLeaf leaf : leaves_of(d))
    if (leaf.kind == SizeLeaf::given && leaf.source != 0)
      fail(
          ErrorKind::trace, "size",
          "a size that a static graph does not know before it runs cannot become a Python number; compute with tensors "
          "(x / x.shape[0] is one), or give the placeholder this size");
  const int64_t n = d.hint();
  [[maybe_unused]] const bool recorded = d == Dim(n);
  return n;
}

PyObject* dim_to_python(Dim d) {
  if (!d.symbolic()) return PyLong_FromLongLong(d.raw);
  return nb::cast(d).release().ptr();
}

PyObject* dims_to_python(const Dims& d) {
  PyObject* t = PyTuple_New(d.n);
  for (int i = 0; t && i < d.n; ++i) PyTuple_SET_ITEM(t, i, dim_to_python(d[i]));
  return t;
}

Dims dims_from_python(PyObject* o, const char* op) {
  PyObject* fast = PySequence_Fast(o, "expected a tuple of integers");
  if (!fast) throw Error(ErrorKind::python, "");
  nb::object owner = nb::steal(fast);
  Dims d;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); ++i)
    d.push(dim_from_python(PySequence_Fast_GET_ITEM(fast, i), op));
  return d;
}

void parse_attrs(const Op& op, PyObject* const* values, int n, Attrs& attrs) {
  if (n != static_cast<int>(op.attrs.size()))
    fail(ErrorKind::value, op.name.c_str(),
         "takes " + std::to_string(op.attrs.size()) + " attributes, got " + std::to_string(n));
  for (int k = 0; k < n; ++k) {
    Attr& a = attrs.add(op.attrs[k].kind);
    switch (a.kind) {
      case Attr::Kind::real:
        a.f = PyFloat_AsDouble(values[k]);
        if (a.f == -1.0 && PyErr_Occurred()) throw Error(ErrorKind::python, "");
        break;
      case Attr::Kind::integer: {
        const char* name = op.name.c_str();
        a.i = PyLong_Check(values[k]) ? integer_from(values[k], name) : number_of(dim_from_python(values[k], name));
        break;
      }
      default: a.dims = dims_from_python(values[k], op.name.c_str());
    }
  }
}

PyObject* attr_to_python(const Attr& a) {
  switch (a.kind) {
    case Attr::Kind::real: return PyFloat_FromDouble(a.f);
    case Attr::Kind::integer: return PyLong_FromLongLong(a.i);
    default: return dims_to_python(a.dims);
  }
}

PyObject* attrs_to_python(const Attrs& attrs) {
  nb::object t = nb::steal(PyTuple_New(attrs.n));
  for (int k = 0; t && k < attrs.n; ++k) {
    PyObject* value = attr_to_python(attrs[k]);
    if (!value) throw Error(ErrorKind::python, "");
    PyTuple_SET_ITEM(t.ptr(), k, value);
  }
  if (!t) throw Error(ErrorKind::python, "");
  return t.release().ptr();
}

}  // namespace wengert
