#include "call.h"

#include <nanobind/nanobind.h>
#include <limits>

#include "../small_array.h"
#include "autocast.h"
#include "dual.h"

namespace nb = nanobind;

namespace wengert {

void set_number(PyObject* s, DType t, char* out) {
  if (PyFloat_Check(s)) return set_scalar(t, out, PyFloat_AS_DOUBLE(s));
  if (PyComplex_Check(s)) {
    Py_complex c = PyComplex_AsCComplex(s);
    double parts[2] = {c.real, c.imag};
    kernels().cast[static_cast<int>(DType::Complex128)][static_cast<int>(t)](out, parts, 1);
    return;
  }
  int overflow = 0;
  long long i = PyLong_AsLongLongAndOverflow(s, &overflow);
  if (i == -1 && PyErr_Occurred()) throw Error(ErrorKind::python, "");
  if (!overflow) return set_scalar_int(t, out, i);
  if (t == DType::UInt64 && overflow > 0) {
    unsigned long long u = PyLong_AsUnsignedLongLong(s);
    if (u == static_cast<unsigned long long>(-1) && PyErr_Occurred()) throw Error(ErrorKind::python, "");
    return set_scalar_int(t, out, static_cast<int64_t>(u));
  }
  double x = PyLong_AsDouble(s);
  if (x == -1.0 && PyErr_Occurred()) throw Error(ErrorKind::python, "");
  set_scalar(t, out, x);
}

namespace {

PyTypeObject* traced_number = nullptr;

}  // namespace

void set_traced_number(PyTypeObject* type) { traced_number = type; }

bool is_traced_number(PyObject* o) { return traced_number && PyType_IsSubtype(Py_TYPE(o), traced_number); }

Promoted read_number(PyObject* s) {
  if (PyFloat_Check(s)) return {Promoted::real};
  if (PyBool_Check(s)) return {Promoted::boolean};
  if (!PyLong_Check(s)) return {Promoted::complex};
  Promoted integer{Promoted::integer};
  int overflow = 0;
  integer.value = PyLong_AsLongLongAndOverflow(s, &overflow);
  integer.beyond = static_cast<int8_t>(overflow);
  if (overflow > 0) {
    integer.fits_uint64 = PyLong_AsUnsignedLongLong(s) != static_cast<unsigned long long>(-1) || !PyErr_Occurred();
    PyErr_Clear();
  }
  return integer;
}

namespace {

[[noreturn]] void fail_outside(const Op& op, PyObject* s, DType t) {
  fail(ErrorKind::range, op.name.c_str(),
       "the integer " + digits_of(s) + " does not fit " + name_of(t) + "; convert the tensor first, with astype");
}

}  // namespace

OperandPlan checked_plan(const Op& op, const Promoted* operands, PyObject* const* objects, int n) {
  const OperandPlan made = plan_operands(op, operands, n);
  if (made.outside >= 0) fail_outside(op, objects[made.outside], made.compute);
  return made;
}

namespace {

struct NotATensor {};  // thrown for operands that are neither tensors nor scalars

// Tests for exact floats first, because the other tests search base classes.
bool is_scalar(PyObject* o) {
  return PyFloat_CheckExact(o) || PyLong_Check(o) || PyFloat_Check(o) || PyComplex_Check(o);
}

// A Python scalar as an operand with the shape of `like` (of no axes without it): one element seen through strides of
// zero. Numbers are not tracked, so no broadcast is recorded. `infinite`: the sign of the infinity that stands for it.
Value* scalar_value(PyObject* s, DType t, const Value* like, int infinite = 0) {
  Ref v(like ? uniform_like(like, t) : empty(t, {}));
  if (infinite)
    set_scalar(t, v->data, infinite * std::numeric_limits<double>::infinity());
  else
    set_number(s, t, v->data);
  v->made = Value::kLiteral;
  return v.take();
}

// slot: return NotImplemented for an unknown operand, so that Python tries the other operand.
PyObject* dispatch(const Op& op, PyObject* const* inputs, int n_in, PyObject* attrs, bool slot = false) {
  PyObject* tuple = PyTuple_New(n_in);
  if (!tuple) return nullptr;
  for (int i = 0; i < n_in; ++i) PyTuple_SET_ITEM(tuple, i, Py_NewRef(inputs[i]));
  PyObject* name = PyUnicode_FromString(op.name.c_str());  // not interned: names of callbacks would never be freed
  PyObject* args[3] = {name, tuple, attrs ? attrs : Py_None};
  AutocastOff off;  // operands are cast already; rules and the like run without autocast
  PyObject* r = PyObject_Vectorcall(python_hooks.dispatch, args, 3, nullptr);
  Py_DECREF(name);
  Py_DECREF(tuple);
  if (r == Py_NotImplemented && !slot) {
    Py_DECREF(r);
    PyErr_Format(PyExc_TypeError, "%s: operands are tensors, arrays or numbers", op.name.c_str());
    return nullptr;
  }
  return r;
}

Value* broadcast_value(Value* v, const Dims& shape) {
  static const Op* broadcast_to = find_op("broadcast_to");
  Attrs attrs;
  attrs.add(Attr::Kind::sizes).dims = shape;
  Value* out;
  apply(*broadcast_to, &v, 1, attrs, &out);
  return out;
}

struct Operands {
  Value* v[3];
  Ref owned[3];
  void set(int i, Value* fresh) {
    owned[i] = Ref(fresh);
    v[i] = fresh;
  }
};

// The operand plan of an elementwise op; a null value means that the operand is the number in `args`.
OperandPlan plan(const Op& op, PyObject* const* args, int n, Value* const* v) {
  Promoted operands[3];
  for (int i = 0; i < n; ++i) operands[i] = v[i] ? Promoted{Promoted::tensor, v[i]->dtype} : read_number(args[i]);
  return checked_plan(op, operands, args, n);
}

// Brings operands to one dtype and one shape, by recorded casts and broadcasts.
void unify(const Op& op, PyObject* const* args, int n, Operands& o) {
  const OperandPlan plan = wengert::plan(op, args, n, o.v);
  const int first = op.n_conditions;
  const Value* shaped = nullptr;
  bool same = true;
  for (int i = 0; i < n; ++i) {
    if (!o.v[i]) continue;
    const DType wanted = i < first ? DType::Bool : plan.compute;
    if (o.v[i]->dtype != wanted) o.set(i, cast_value(o.v[i], wanted));
    same &= !shaped || same_shape(shaped, o.v[i]);
    shaped = o.v[i];
  }
  for (int i = 0; i < n; ++i)
    if (!o.v[i]) {
      const DType t = i < first ? DType::Bool : plan.compute;
      o.set(i, scalar_value(args[i], t, same ? shaped : nullptr, plan.infinite[i]));
    }
  if (same) return;
  Dims shape = o.v[0]->dims();
  for (int i = 1; i < n; ++i) shape = broadcast(op.name.c_str(), shape, o.v[i]->dims());
  for (int i = 0; i < n; ++i)
    if (!(o.v[i]->dims() == shape)) o.set(i, broadcast_value(o.v[i], shape));
}

// Converts a foreign operand (a NumPy array or scalar, a list) by the Python hook; a new reference, or null.
PyObject* convert(PyObject* o) {
  PyObject* c = PyObject_CallOneArg(python_hooks.convert_operand, o);
  if (!c) throw Error(ErrorKind::python, "");
  if (c == Py_NotImplemented) {
    Py_DECREF(c);
    throw NotATensor{};
  }
  return c;
}

PyObject* elementwise_with_foreign(const Op& op, PyObject* const* args, int n, bool slot) {
  PyObject* converted[3] = {};
  PyObject* result = nullptr;
  try {
    for (int i = 0; i < n; ++i)
      converted[i] = is_tensor(args[i]) || is_scalar(args[i]) ? Py_NewRef(args[i]) : convert(args[i]);
    result = call_elementwise(op, converted, n, slot);
  } catch (NotATensor&) {
    if (slot) {
      result = Py_NewRef(Py_NotImplemented);
    } else {
      for (int i = 0; i < n; ++i)
        if (!converted[i]) {
          PyErr_Format(PyExc_TypeError, "%s: operand %d is a %s; expected a tensor, an array or a number",
                       op.name.c_str(), i, Py_TYPE(args[i])->tp_name);
          break;
        }
    }
  } catch (...) {
    raise_python();
  }
  for (int i = 0; i < n; ++i) Py_XDECREF(converted[i]);
  return result;
}

}  // namespace

namespace {

// The common case: plain tensors of equal shape, already in the dtype that the op computes in.
bool find_values(const Op& op, PyObject* const* args, int n, Value** v) {
  const bool watched = thread_state.watched;
  if (watched && casts_operands(op)) [[unlikely]]
    return false;
  for (int i = 0; i < n; ++i) {
    if (Py_TYPE(args[i]) != tensor_type || !as_tensor(args[i])->plain) return false;
    v[i] = watched ? watched_operand(as_tensor(args[i])) : current(as_tensor(args[i])->tensor);
    if (i > 0 && (v[i]->dtype != v[0]->dtype || !same_shape(v[i], v[0]))) return false;
  }
  return op.map[static_cast<int>(v[0]->dtype)] != nullptr;
}

// An op with attributes on a plain or dual tensor whose result is not exposed as a view. A new reference; throws.
nb::object call_with(const Op& op, const nb::object& x, const Attrs& attrs) {
  PyObject* operand_object = x.ptr();
  PyObject* y;
  if (is_dual(operand_object)) {
    y = call_on_duals(op, &operand_object, 1, attrs);
  } else {
    Value *v = operand(as_tensor(operand_object)), *out;
    apply(op, &v, 1, attrs, &out);
    y = wrap(out);
  }
  if (!y) throw Error(ErrorKind::python, "");
  return nb::steal(y);
}

// Brings the operands of an elementwise op, some of them duals, to one dtype and shape; v are their bottom values.
void unify_duals(const Op& op, PyObject* const* args, int n, Value** v, nb::object* unified) {
  static const Op& cast = *find_op("cast");
  static const Op& broadcast_to = *find_op("broadcast_to");
  const int first = op.n_conditions;
  const DType t = plan(op, args, n, v).compute;
  Attrs shape;
  shape.add(Attr::Kind::sizes);
  for (int i = 0; i < n; ++i)
    if (v[i]) shape.v[0].dims = broadcast(op.name.c_str(), shape[0].dims, v[i]->dims());
  const Value* like = nullptr;
  for (int i = 0; i < n; ++i) {
    if (!v[i]) continue;
    Attrs dtype;
    dtype.add(Attr::Kind::integer).i = static_cast<int64_t>(i < first ? DType::Bool : t);
    unified[i] = nb::borrow(args[i]);
    if (static_cast<int64_t>(v[i]->dtype) != dtype[0].i) unified[i] = call_with(cast, unified[i], dtype);
    if (!(v[i]->dims() == shape[0].dims)) unified[i] = call_with(broadcast_to, unified[i], shape);
    like = bottom_value(unified[i].ptr());
  }
  for (int i = 0; i < n; ++i) {
    if (v[i]) continue;
    unified[i] = nb::steal(wrap(scalar_value(args[i], i < first ? DType::Bool : t, like)));
    if (!unified[i]) throw Error(ErrorKind::python, "");
    as_tensor(unified[i].ptr())->requires_grad = 0;  // tapes do not track numbers
  }
}

// An elementwise op on duals, plain tensors and numbers; one without a derivative runs on the values alone. Null
// without an exception if there are other operands.
PyObject* try_on_duals(const Op& op, PyObject* const* args, int n) {
  Value* v[3];
  bool unified = true;
  int parts = 0;
  if (thread_state.capturing || op.compares) return nullptr;
  for (int i = 0; i < n; ++i) {
    v[i] = bottom_value(args[i]);
    if (!v[i] && !is_scalar(args[i])) return nullptr;
    parts += count_parts(args[i]);
    unified &= v[i] && v[0] && v[i]->dtype == v[0]->dtype && same_shape(v[i], v[0]);
  }
  if (parts > kLastBit) return nullptr;
  static const Attrs none;
  if (unified && op.map[static_cast<int>(v[0]->dtype)]) return call_on_duals(op, args, n, none);
  nb::object owned[3];
  unify_duals(op, args, n, v, owned);
  PyObject* operands[3] = {owned[0].ptr(), owned[1].ptr(), owned[2].ptr()};
  return call_on_duals(op, operands, n, none);
}

bool any_dual(PyObject* const* args, int n) {
  for (int i = 0; i < n; ++i)
    if (is_dual(args[i])) return true;
  return false;
}

PyObject* unify_and_call(const Op& op, PyObject* const* args, int n, bool slot) {
  if (op.differentiable && any_dual(args, n))
    if (PyObject* y = try_on_duals(op, args, n)) return y;
  if (PyErr_Occurred()) throw Error(ErrorKind::python, "");
  Operands o;
  for (int i = 0; i < n; ++i) {
    PyObject* a = args[i];
    if (Py_TYPE(a) != tensor_type && is_scalar(a)) {
      o.v[i] = nullptr;
    } else if (nb::isinstance<Dim>(a) || is_traced_number(a)) {
      return dispatch(op, args, n, nullptr, slot);  // a size or number of the open trace
    } else if (!is_tensor(a)) {
      return elementwise_with_foreign(op, args, n, slot);
    } else if (!as_tensor(a)->plain) {
      return dispatch(op, args, n, nullptr, slot);
    } else {
      o.v[i] = operand(as_tensor(a));
    }
  }
  unify(op, args, n, o);
  return wrap(apply_elementwise(op, o.v, n));
}

}  // namespace

PyObject* call_elementwise(const Op& op, PyObject* const* args, int n, bool slot) {
  try {
    Value* v[3];
    if (find_values(op, args, n, v)) return wrap(apply_elementwise(op, v, n));
    const CastOperands cast(op, args, n);
    try {
      return unify_and_call(op, cast.objects(), n, slot);
    } catch (const Captured&) {
      return dispatch(op, cast.objects(), n, nullptr, slot);
    }
  } catch (const Captured&) {
    return dispatch(op, args, n, nullptr, slot);
  } catch (...) {
    return raise_python();
  }
}

namespace {

PyObject* wrap_outputs(const Op& op, PyObject* const* inputs, int n_in, Value** out) {
  if (op.n_outputs == 1) {
    // A result that shares its input's buffer is a view of that tensor.
    if (op.view && n_in == 1 && out[0]->buffer == as_tensor(inputs[0])->tensor.value->buffer)
      return wrap_view(out[0], as_tensor(inputs[0]), false);
    return wrap(out[0]);
  }
  PyObject* t = PyTuple_New(op.n_outputs);
  for (int i = 0; i < op.n_outputs; ++i) {
    PyObject* y = wrap(out[i]);
    if (t)
      PyTuple_SET_ITEM(t, i, y);
    else
      Py_XDECREF(y);
  }
  return t;
}

}  // namespace

namespace {

PyObject* dispatch_op(const Op& op, PyObject* const* inputs, int n_in, PyObject* const* attr_values, int n_attrs) {
  PyObject* attrs = PyTuple_New(n_attrs);
  for (int k = 0; attrs && k < n_attrs; ++k) PyTuple_SET_ITEM(attrs, k, Py_NewRef(attr_values[k]));
  PyObject* r = attrs ? dispatch(op, inputs, n_in, attrs) : nullptr;
  Py_XDECREF(attrs);
  return r;
}

bool any_symbolic(const Attrs& attrs) {
  for (int k = 0; k < attrs.n; ++k)
    if (attrs[k].kind == Attr::Kind::sizes)
      for (Dim d : attrs[k].dims)
        if (d.symbolic()) return true;
  return false;
}

bool all_plain(PyObject* const* inputs, int n) {
  for (int i = 0; i < n; ++i)
    if (!is_tensor(inputs[i]) || !as_tensor(inputs[i])->plain) return false;
  return true;
}

PyObject* call_on_plain(const Op& op, PyObject* const* inputs, int n_in, const Attrs& attrs) {
  SmallArray<Value*, 8> v(n_in);
  if (op.view) separate_elements(as_tensor(inputs[0])->tensor);
  for (int i = 0; i < n_in; ++i) v[i] = operand(as_tensor(inputs[i]));
  Value* out[kMaxOutputs];
  apply(op, v.data(), n_in, attrs, out);
  return wrap_outputs(op, inputs, n_in, out);
}

// An op on duals and plain tensors. Null without an exception if there are other operands.
PyObject* try_op_on_duals(const Op& op, PyObject* const* inputs, int n_in, const Attrs& attrs) {
  if (thread_state.capturing || !op.differentiable) return nullptr;
  int parts = 0;
  for (int i = 0; i < n_in; ++i) {
    if (!bottom_value(inputs[i])) return nullptr;
    parts += count_parts(inputs[i]);
  }
  if (parts > kLastBit) return nullptr;
  PyObject* y = call_on_duals(op, inputs, n_in, attrs);
  if (!y) throw Error(ErrorKind::python, "");
  return y;
}

}  // namespace

PyObject* try_op(const Op& op, PyObject* const* given, int n_in, const Attrs& attrs) {
  if (thread_state.capturing) return nullptr;
  const CastOperands cast(op, given, n_in);
  PyObject* const* inputs = cast.objects();
  return all_plain(inputs, n_in) ? call_on_plain(op, inputs, n_in, attrs) : try_op_on_duals(op, inputs, n_in, attrs);
}

namespace {

PyObject* call_cast_op(const Op& op, PyObject* const* inputs, int n_in, PyObject* const* attr_values, int n_attrs) {
  try {
    const bool plain = all_plain(inputs, n_in);
    if (!plain && !any_dual(inputs, n_in)) return dispatch_op(op, inputs, n_in, attr_values, n_attrs);
    Attrs attrs;
    parse_attrs(op, attr_values, n_attrs, attrs);
    // Attributes that contain sizes of the open trace make the op an instruction of that trace.
    if (any_symbolic(attrs)) return dispatch_op(op, inputs, n_in, attr_values, n_attrs);
    if (plain) return call_on_plain(op, inputs, n_in, attrs);
    PyObject* y = try_op_on_duals(op, inputs, n_in, attrs);
    return y ? y : dispatch_op(op, inputs, n_in, attr_values, n_attrs);
  } catch (const Captured&) {
    return dispatch_op(op, inputs, n_in, attr_values, n_attrs);
  } catch (...) {
    return raise_python();
  }
}

}  // namespace

PyObject* call_op(const Op& op, PyObject* const* inputs, int n_in, PyObject* const* attr_values, int n_attrs) {
  for (int i = 0; i < n_in; ++i)
    if (!is_tensor(inputs[i]))
      return PyErr_Format(PyExc_TypeError, "%s: operand %d is a %s; expected a tensor", op.name.c_str(), i,
                          Py_TYPE(inputs[i])->tp_name);
  if (!thread_state.autocast) [[likely]]
    return call_cast_op(op, inputs, n_in, attr_values, n_attrs);
  try {
    const CastOperands cast(op, inputs, n_in);
    return call_cast_op(op, cast.objects(), n_in, attr_values, n_attrs);
  } catch (...) {
    return raise_python();
  }
}

}  // namespace wengert
