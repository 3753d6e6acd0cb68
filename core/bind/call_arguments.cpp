#include "call_arguments.h"

#include <nanobind/nanobind.h>

#include "dual.h"

namespace wengert {

namespace nb = nanobind;

namespace {

// NumPy scalar types that may be operands, besides float and int.
PyObject *numpy_float64 = nullptr, *numpy_float32 = nullptr, *numpy_int64 = nullptr;

// Larger integers are static: what is computed of two smaller ones is exact.
constexpr int64_t kLargestInteger = int64_t{1} << 31;

enum class NumberKind : char { none = 0, real = 'f', integer = 'i', float64 = 'd', float32 = 's', int64 = 'l' };

NumberKind number_kind(PyObject* o) {
  if (PyFloat_CheckExact(o)) return NumberKind::real;
  if (PyLong_CheckExact(o)) return NumberKind::integer;
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(o));
  if (type == numpy_float64) return NumberKind::float64;
  if (type == numpy_float32) return NumberKind::float32;
  return type == numpy_int64 ? NumberKind::int64 : NumberKind::none;
}

bool is_integral(NumberKind kind) { return kind == NumberKind::integer || kind == NumberKind::int64; }

// Reads an integer; false if it is too large.
bool read_integer(PyObject* o, int64_t& value) {
  int overflow = 0;
  nb::object index = nb::steal(PyNumber_Index(o));
  if (!index) throw nb::python_error();
  value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  return overflow == 0;
}

double read_real(PyObject* o) {
  const double x = PyFloat_AsDouble(o);
  if (x == -1.0 && PyErr_Occurred()) throw nb::python_error();
  return x;
}

// A number as a 0-d value; null if it is an integer that is too large.
Value* number_value(PyObject* o, NumberKind kind) {
  Value* v;
  if (is_integral(kind)) {
    int64_t i;
    if (!read_integer(o, i) || i > kLargestInteger || i < -kLargestInteger) return nullptr;
    v = scalar_int(DType::Int64, i);
  } else {
    v = scalar(kind == NumberKind::float32 ? DType::Float32 : DType::Float64, read_real(o));
  }
  v->made = Value::kLiteral;
  return v;
}

}  // namespace

bool put_static(CallSignature& signature, PyObject* o) {
  if (o == Py_None) return signature.put('N'), true;
  if (PyBool_Check(o)) return signature.put('B', o == Py_True), true;
  if (NumberKind kind = number_kind(o); kind != NumberKind::none) {
    signature.put('#');
    if (!is_integral(kind)) return signature.put(static_cast<char>(kind), read_real(o)), true;
    int64_t i;
    return read_integer(o, i) ? (signature.put(static_cast<char>(kind), i), true) : false;
  }
  if (PyUnicode_CheckExact(o)) {
    Py_ssize_t n;
    const char* text = PyUnicode_AsUTF8AndSize(o, &n);
    if (!text) return PyErr_Clear(), false;
    return signature.put_text('S', {text, static_cast<size_t>(n)}), true;
  }
  if (PyTuple_CheckExact(o)) {
    signature.put('(', PyTuple_GET_SIZE(o));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
      if (!put_static(signature, PyTuple_GET_ITEM(o, i))) return false;
    return true;
  }
  for (PyObject* d : python_hooks.dtypes)
    if (d == o) return signature.put('D', d), true;
  return false;
}

CallArguments::CallArguments(const std::vector<bool>& operands, PyObject* const* args, Py_ssize_t n, PyObject* names)
    : in(static_cast<size_t>(n + (names ? PyTuple_GET_SIZE(names) : 0))),
      tensors(static_cast<size_t>(n + (names ? PyTuple_GET_SIZE(names) : 0))),
      objects(static_cast<size_t>(n + (names ? PyTuple_GET_SIZE(names) : 0))) {
  for (Py_ssize_t i = 0; i < n; ++i) argument(operands, args[i], static_cast<size_t>(i));
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i) {
    put_static(signature, PyTuple_GET_ITEM(names, i));
    argument(operands, args[n + i], static_cast<size_t>(n + i));
  }
}

DeviceId CallArguments::device() {
  for (size_t i = 0; i < n_in; ++i)
    if (in[i]->device != kCpu) return in[i]->device;
  return kCpu;
}

void CallArguments::argument(const std::vector<bool>& operands, PyObject* o, size_t position) {
  if (is_tensor(o)) {
    const bool plain = as_tensor(o)->plain;
    Value* v = plain ? operand(as_tensor(o)) : bottom_value(o);
    if (!v) {
      kind = Kind::not_plain;
      return;
    }
    if (!plain && kind == Kind::fast) kind = Kind::dual;
    signature.put_tensor(v);
    take(o, v, plain ? &as_tensor(o)->tensor : nullptr);
  } else if (position < operands.size() && operands[position] && number(o)) {
    return;
  } else if (!put_static(signature, o) && kind != Kind::not_plain) {
    kind = Kind::structured;
  }
}

bool CallArguments::number(PyObject* o) {
  const NumberKind kind = number_kind(o);
  Value* v = kind == NumberKind::none ? nullptr : number_value(o, kind);
  if (!v) return false;
  numbers_.emplace_back(v);
  signature.put(static_cast<char>(kind));
  take(o, v, nullptr);
  return true;
}

void set_numpy_types(PyObject* float64, PyObject* float32, PyObject* int64) {
  numpy_float64 = float64;
  numpy_float32 = float32;
  numpy_int64 = int64;
}

}  // namespace wengert
