#include "shortcut.h"

#include <structmember.h>

#include <algorithm>

#include "autocast.h"
#include "dual.h"

namespace wengert {

namespace {

struct Reduction {
  const Value* x;
  Attrs attrs;  // axes, keepdims
};

bool is_word(PyObject* keyword, const char* word) { return PyUnicode_CompareWithASCIIString(keyword, word) == 0; }

bool add_axis(Dims& axes, PyObject* axis, int ndim) {
  if (!PyLong_CheckExact(axis)) return false;
  int overflow;
  const int64_t a = PyLong_AsLongLongAndOverflow(axis, &overflow);
  if (overflow || a < -ndim || a >= ndim) return false;
  axes.push(a < 0 ? a + ndim : a);
  return true;
}

// None, an integer or a tuple of integers as a sorted list without repetitions.
bool read_axes(Dims& axes, PyObject* axis, int ndim) {
  if (axis == Py_None) {
    for (int k = 0; k < ndim; ++k) axes.push(k);
    return true;
  }
  if (!PyTuple_CheckExact(axis)) return add_axis(axes, axis, ndim);
  if (PyTuple_GET_SIZE(axis) > ndim) return false;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(axis); ++k)
    if (!add_axis(axes, PyTuple_GET_ITEM(axis, k), ndim)) return false;
  auto before = [](Dim a, Dim b) { return a.raw < b.raw; };
  std::sort(axes.v, axes.v + axes.n, before);
  for (int k = 1; k < axes.n; ++k)
    if (axes[k - 1].raw == axes[k].raw) return false;
  return true;
}

// f(x, axis=None, *, keepdims=False) of a floating or complex tensor.
bool read_reduction(const Op& op, PyObject* const* args, Py_ssize_t n, PyObject* keywords, Reduction& r) {
  if (n < 1 || n > 2 || thread_state.capturing) return false;
  r.x = bottom_value(args[0]);
  if (!r.x || !is_inexact(r.x->dtype)) return false;
  PyObject *axis = n == 2 ? args[1] : Py_None, *keepdims = Py_False;
  for (Py_ssize_t k = 0; keywords && k < PyTuple_GET_SIZE(keywords); ++k) {
    PyObject* word = PyTuple_GET_ITEM(keywords, k);
    if (is_word(word, "keepdims"))
      keepdims = args[n + k];
    else if (is_word(word, "axis") && n == 1)
      axis = args[n + k];
    else
      return false;
  }
  if (!PyBool_Check(keepdims)) return false;
  r.attrs.add(op.attrs[0].kind);
  r.attrs.add(op.attrs[1].kind).i = keepdims == Py_True;
  return read_axes(r.attrs.v[0].dims, axis, r.x->ndim);
}

PyObject* try_reduction(const Op& op, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  Reduction r;
  return read_reduction(op, args, n, keywords, r) ? try_op(op, args, 1, r.attrs) : nullptr;
}

PyObject* try_sum(PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  static const Op& op = *find_op("sum");
  return try_reduction(op, args, n, keywords);
}

PyObject* try_max(PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  static const Op& op = *find_op("max");
  return try_reduction(op, args, n, keywords);
}

PyObject* try_min(PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  static const Op& op = *find_op("min");
  return try_reduction(op, args, n, keywords);
}

// A sum divided by the number of elements. Half precision is summed in another type, which Python handles.
PyObject* try_mean(PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  static const Op &sum = *find_op("sum"), &div = *find_op("div");
  Reduction r;
  if (!read_reduction(sum, args, n, keywords, r) || size_of(r.x->dtype) == 2) return nullptr;
  double count = 1;
  for (Dim axis : r.attrs[0].dims) count *= static_cast<double>(r.x->shape[axis.raw]);
  PyObject* total = try_op(sum, args, 1, r.attrs);
  if (!total) return nullptr;
  PyObject* operands[2] = {total, PyFloat_FromDouble(count)};
  PyObject* mean = operands[1] ? call_elementwise(div, operands, 2, false) : nullptr;
  Py_DECREF(total);
  Py_XDECREF(operands[1]);
  if (!mean) throw Error(ErrorKind::python, "");
  return mean;
}

// reshape(x, sizes) and reshape(x, *sizes), of which one may be -1.
PyObject* try_reshape(PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  static const Op& op = *find_op("reshape");
  if (n < 2 || (keywords && PyTuple_GET_SIZE(keywords)) || thread_state.capturing) return nullptr;
  const Value* x = bottom_value(args[0]);
  const bool packed = n == 2 && PyTuple_CheckExact(args[1]);
  PyObject* const* sizes = packed ? reinterpret_cast<PyTupleObject*>(args[1])->ob_item : args + 1;
  const Py_ssize_t n_sizes = packed ? PyTuple_GET_SIZE(args[1]) : n - 1;
  if (!x || n_sizes > kMaxRank) return nullptr;
  Attrs attrs;
  Dims& shape = attrs.add(Attr::Kind::sizes).dims;
  int unknown = -1;
  int64_t known = 1;
  for (Py_ssize_t k = 0; k < n_sizes; ++k) {
    if (!PyLong_CheckExact(sizes[k])) return nullptr;
    int overflow;
    const int64_t size = PyLong_AsLongLongAndOverflow(sizes[k], &overflow);
    if (overflow || size < -1 || (size == -1 && unknown >= 0)) return nullptr;
    if (size == -1)
      unknown = static_cast<int>(k);
    else if (__builtin_mul_overflow(known, size, &known))
      return nullptr;
    shape.push(size);
  }
  if (unknown >= 0) {
    if (known == 0 || x->size % known) return nullptr;
    shape[unknown] = x->size / known;
  }
  return try_op(op, args, 1, attrs);
}

bool is_plain_number(PyObject* o) { return PyFloat_CheckExact(o) || PyLong_CheckExact(o); }

// The op that computes xⁿ for a number n; null if Python decides.
const Op* op_of_power(double n) {
  static const Op &square = *find_op("square"), &sqrt = *find_op("sqrt"), &rsqrt = *find_op("rsqrt"),
                  &reciprocal = *find_op("reciprocal"), &pow = *find_op("pow");
  if (n == 2) return &square;
  if (n == 0.5) return &sqrt;
  if (n == -0.5) return &rsqrt;
  if (n == -1) return &reciprocal;
  return n == 1 || n == 3 ? nullptr : &pow;
}

}  // namespace

PyObject* try_matmul(PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  static const Op& op = *find_op("matmul");
  if (n != 2 || keywords || thread_state.capturing) return nullptr;
  const Value *a = bottom_value(args[0]), *b = bottom_value(args[1]);
  if (!a || !b || a->ndim != 2 || b->ndim != 2) return nullptr;
  const CastOperands cast(op, args, 2);
  if (a->dtype != b->dtype && bottom_value(cast.objects()[0])->dtype != bottom_value(cast.objects()[1])->dtype)
    return nullptr;
  Attrs attrs;
  for (const AttrSpec& transposed : op.attrs) attrs.add(transposed.kind).i = 0;
  return try_op(op, cast.objects(), 2, attrs);
}

PyObject* try_power(PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  static const Op& pow = *find_op("pow");
  if (n != 2 || keywords || thread_state.capturing) return nullptr;
  const Value* x = bottom_value(args[0]);
  if (!x || !is_inexact(x->dtype)) return nullptr;
  const Op* op = &pow;
  if (is_plain_number(args[1])) {
    const double exponent = PyFloat_AsDouble(args[1]);
    if (exponent == -1 && PyErr_Occurred()) return PyErr_Clear(), nullptr;
    op = op_of_power(exponent);
  } else if (!bottom_value(args[1])) {
    return nullptr;
  }
  if (!op) return nullptr;
  PyObject* y = call_elementwise(*op, args, op == &pow ? 2 : 1, false);
  if (!y) throw Error(ErrorKind::python, "");
  return y;
}

// ------------------------------------------------------------------------------------------- functions with shortcuts

namespace {

struct Function {
  PyObject_HEAD;
  vectorcallfunc call;
  Shortcut shortcut;
  PyObject* function;
  PyObject* dict;
};

PyTypeObject* function_type = nullptr;

PyObject* call(PyObject* self, PyObject* const* args, size_t n, PyObject* keywords) {
  const auto* f = reinterpret_cast<Function*>(self);
  try {
    if (PyObject* y = f->shortcut(args, PyVectorcall_NARGS(n), keywords)) return y;
  } catch (...) {
    return raise_python();
  }
  return PyObject_Vectorcall(f->function, args, n, keywords);
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(reinterpret_cast<Function*>(self)->function);
  Py_XDECREF(reinterpret_cast<Function*>(self)->dict);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* represent(PyObject* self) { return PyObject_Repr(reinterpret_cast<Function*>(self)->function); }

PyObject* reduce_by_name(PyObject* self, PyObject*) { return PyObject_GetAttrString(self, "__qualname__"); }

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Function, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Function, dict), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMethodDef methods[] = {
    {"__reduce__", reduce_by_name, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind_method)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_repr, reinterpret_cast<void*>(represent)},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {0, nullptr},
};
PyType_Spec spec = {"wengert._core.Function", sizeof(Function), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, slots};

constexpr struct {
  const char* name;
  Shortcut shortcut;
} kShortcuts[] = {
    {"sum", try_sum},         {"mean", try_mean},     {"max", try_max},   {"min", try_min},
    {"reshape", try_reshape}, {"matmul", try_matmul}, {"pow", try_power},
};

// with_shortcut(function): wraps the function so that its most common calls are parsed natively. Looked up by name.
PyObject* with_shortcut(PyObject*, PyObject* function) {
  PyObject* name = PyObject_GetAttrString(function, "__name__");
  if (!name) return nullptr;
  for (const auto& known : kShortcuts) {
    if (!PyUnicode_Check(name) || !is_word(name, known.name)) continue;
    Py_DECREF(name);
    Function* f = PyObject_New(Function, function_type);
    if (!f) return nullptr;
    f->call = call;
    f->shortcut = known.shortcut;
    f->function = Py_NewRef(function);
    f->dict = nullptr;
    return reinterpret_cast<PyObject*>(f);
  }
  PyErr_Format(PyExc_ValueError, "with_shortcut: there is none for %R", name);
  Py_DECREF(name);
  return nullptr;
}

PyMethodDef functions[] = {
    {"with_shortcut", with_shortcut, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int init_shortcuts(PyObject* module) {
  function_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return function_type ? PyModule_AddFunctions(module, functions) : -1;
}

}  // namespace wengert
