#include "tensor.h"

#include <structmember.h>

#include <utility>

#include "../ops/elementwise.h"
#include "leaving.h"
#include "shortcut.h"
#include "subscript.h"
#include "tensor_parts.h"

namespace wengert {

PyTypeObject* tensor_type = nullptr;
PythonHooks python_hooks = {};

PyObject* call_python(const char* method, PyObject* a, PyObject* b) {
  static PyObject* operators = nullptr;  // Python implementations of operators that are not a single elementwise op
  if (!operators) operators = PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), "_operators");
  if (!operators) return nullptr;
  PyObject* f = PyDict_GetItemString(operators, method);
  if (!f) return Py_NewRef(Py_NotImplemented);
  PyObject* args[2] = {a, b};
  return PyObject_Vectorcall(f, args, 2, nullptr);
}

namespace {

// Recently dropped tensors of one type, kept for the next op. They keep their reference to the type.
struct Dropped {
  static constexpr int kMost = 256;
  TensorObject* at[kMost];
  int n = 0;

  TensorObject* take(PyTypeObject* type) {
    if (!n) return PyObject_GC_New(TensorObject, type);  // untracked, because most tensors are not part of cycles
    TensorObject* t = at[--n];
    _Py_NewReference(reinterpret_cast<PyObject*>(t));
    return t;
  }
  bool give(TensorObject* t) { return n < kMost ? (at[n++] = t, true) : false; }
};
Dropped dropped_tensors, dropped_duals;
PyTypeObject* dual_tensor_type = nullptr;

}  // namespace

void clear_fields(TensorObject* t) {
  t->tensor = Tensor();
  t->id = 0;
  t->requires_grad = -1;
  t->plain = false;
  t->collectable = false;
  t->look = false;
  t->changed = false;
  t->held = nullptr;
  t->weak = nullptr;
}

namespace {

TensorObject* new_tensor() {
  TensorObject* t = dropped_tensors.take(tensor_type);
  if (t) clear_fields(t);
  return t;
}

// The tensor's node if the tensor is its only owner, so that the node and its hooks go with the tensor.
Node* own_node(TensorObject* t) {
  const Value* v = t->tensor.value;
  if (!v || !v->node || v->node->refs != 1) return nullptr;
  const Alias* a = t->tensor.alias;
  if (a && a->refs != 1) return nullptr;
  const uint32_t own = a && a->base == v ? 2 : 1;
  return v->refs == own ? v->node : nullptr;
}

int tensor_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const Node* n = own_node(as_tensor(self));
  if (n) Py_VISIT(static_cast<PyObject*>(n->hooks));
  if (n && n->leaf) Py_VISIT(static_cast<PyObject*>(n->final_hooks));
  Py_VISIT(as_tensor(self)->held);
  return 0;
}

int tensor_clear(PyObject* self) {
  Node* n = own_node(as_tensor(self));
  if (n && n->hooks) Py_DECREF(static_cast<PyObject*>(std::exchange(n->hooks, nullptr)));
  if (n && n->leaf && n->final_hooks) {
    --n_final_hooks;
    Py_DECREF(static_cast<PyObject*>(std::exchange(n->final_hooks, nullptr)));
  }
  Py_CLEAR(as_tensor(self)->held);
  return 0;
}

}  // namespace

void tensor_dealloc(PyObject* self) {
  TensorObject* t = as_tensor(self);
  PyTypeObject* type = Py_TYPE(self);
  if (t->collectable || type != tensor_type) PyObject_GC_UnTrack(self);
  if (t->weak) PyObject_ClearWeakRefs(self);
  destroy(t->tensor);
  Py_XDECREF(t->held);
  if (type == tensor_type && dropped_tensors.give(t)) return;
  if (type == dual_tensor_type && dropped_duals.give(t)) return;
  type->tp_free(self);
  Py_DECREF(type);
}

namespace {

// Tensor(): an empty shell for subclasses, whose instances either adopt a tensor's value or are not plain.
PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject*) {
  if (type == tensor_type && PyTuple_GET_SIZE(args)) {
    PyErr_SetString(PyExc_TypeError, "Tensor: wengert.tensor(data) makes a tensor");
    return nullptr;
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  clear_fields(as_tensor(self));
  as_tensor(self)->collectable = true;  // the allocator has registered it with the collector
  return self;
}

// ---------------------------------------------------------------------------------------------- number slots

template <Elementwise kernel>
PyObject* binary(PyObject* a, PyObject* b) {
  static const Op& op = elementwise_op(kernel);
  PyObject* args[2] = {a, b};
  return call_elementwise(op, args, 2, true);
}

template <Elementwise kernel>
PyObject* unary(PyObject* a) {
  static const Op& op = elementwise_op(kernel);
  return call_elementwise(op, &a, 1, true);
}

// Calls the shortcut if it accepts the operands, otherwise the Python function.
PyObject* call_operator(Shortcut shortcut, const char* method, PyObject* a, PyObject* b) {
  PyObject* args[2] = {a, b};
  try {
    if (PyObject* y = shortcut(args, 2, nullptr)) return y;
  } catch (...) {
    return raise_python();
  }
  return call_python(method, a, b);
}

PyObject* power(PyObject* a, PyObject* b, PyObject*) { return call_operator(try_power, "pow", a, b); }
PyObject* matrix_multiply(PyObject* a, PyObject* b) { return call_operator(try_matmul, "matmul", a, b); }

PyObject* subscript(PyObject* x, PyObject* key) {
  try {
    if (PyObject* y = try_subscript(x, key)) return y;
  } catch (...) {
    return raise_python();
  }
  return call_python("getitem", x, key);
}

int assign_subscript(PyObject* self, PyObject* key, PyObject* value) {
  if (!value) {
    PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted");
    return -1;
  }
  PyObject* args[3] = {self, key, value};
  static PyObject* f = nullptr;
  if (!f) {
    PyObject* operators = PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), "_operators");
    if (operators) f = PyDict_GetItemString(operators, "setitem");
    Py_XDECREF(operators);
  }
  if (!f) return PyErr_SetString(PyExc_TypeError, "item assignment is not available"), -1;
  PyObject* r = PyObject_Vectorcall(f, args, 3, nullptr);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

PyObject* compare(PyObject* a, PyObject* b, int how) {
  static const Elementwise kernels_by_op[] = {Elementwise::less,    Elementwise::less_equal,
                                              Elementwise::equal,   Elementwise::not_equal,
                                              Elementwise::greater, Elementwise::greater_equal};
  PyObject* args[2] = {a, b};
  return call_elementwise(elementwise_op(kernels_by_op[how]), args, 2, true);
}

double one_element(PyObject* self, const char* what, bool* ok) {
  Value* v = data_of(self, what);
  *ok = false;
  if (!v) return 0;
  if (v->size != 1) {
    PyErr_Format(PyExc_ValueError, "%s: only a tensor with one element converts, this one has shape %s", what,
                 to_string(v->dims()).c_str());
    return 0;
  }
  try {
    const Ref host(on_device(v, kCpu));
    *ok = true;
    return get_scalar(v->dtype, host->data);
  } catch (...) {
    raise_python();
    return 0;
  }
}

PyObject* tensor_float(PyObject* self) {
  bool ok;
  double x = one_element(self, "float", &ok);
  if (!ok) return nullptr;
  const DType t = as_tensor(self)->tensor.value->dtype;
  if (is_complex(t)) {
    return PyErr_Format(PyExc_TypeError, "float: a %s tensor has two parts; take real(x) or abs(x) first", name_of(t));
  }
  if (!may_leave(self, as_tensor(self)->tensor.value, Leaving::number, "float")) return nullptr;
  return PyFloat_FromDouble(x);
}

PyObject* python_number(PyObject* self) {
  bool ok;
  double x = one_element(self, "item", &ok);
  if (!ok) return nullptr;
  Value* v = as_tensor(self)->tensor.value;
  if (v->dtype == DType::Bool) return PyBool_FromLong(x != 0);
  if (!is_complex(v->dtype) && !is_integer(v->dtype)) return PyFloat_FromDouble(x);
  Ref host;
  try {
    host = Ref(on_device(v, kCpu));
  } catch (...) {
    return raise_python();
  }
  if (is_complex(v->dtype)) {
    double parts[2];
    kernels().cast[static_cast<int>(v->dtype)][static_cast<int>(DType::Complex128)](parts, host->data, 1);
    return PyComplex_FromDoubles(parts[0], parts[1]);
  }
  if (v->dtype == DType::UInt64) {
    uint64_t u;
    std::memcpy(&u, host->data, 8);
    return PyLong_FromUnsignedLongLong(u);
  }
  int64_t i;
  kernels().cast[static_cast<int>(v->dtype)][static_cast<int>(DType::Int64)](&i, host->data, 1);
  return PyLong_FromLongLong(i);
}

PyObject* item(PyObject* self, PyObject*) {
  Value* v = data_of(self, "item");
  return v && may_leave(self, v, Leaving::number, "item") ? python_number(self) : nullptr;
}

// Rounding has no derivative that could be lost.
PyObject* tensor_int(PyObject* self) {
  PyObject* x = python_number(self);
  if (!x) return nullptr;
  PyObject* i = PyNumber_Long(x);
  Py_DECREF(x);
  return i;
}

PyObject* tensor_index(PyObject* self) {
  Value* v = data_of(self, "index");
  if (!v) return nullptr;
  if (!is_integer(v->dtype) || v->size != 1) {
    PyErr_Format(PyExc_TypeError, "only an integer tensor with one element can be used as an index, got %s",
                 to_string(v->type()).c_str());
    return nullptr;
  }
  return item(self, nullptr);
}

int tensor_bool(PyObject* self) {
  bool ok;
  one_element(self, "bool", &ok);
  if (!ok) return -1;
  const Value* v = as_tensor(self)->tensor.value;
  try {
    const Ref host(on_device(v, kCpu));
    uint8_t truth;
    kernels().cast[static_cast<int>(v->dtype)][static_cast<int>(DType::Bool)](&truth, host->data, 1);
    return truth;
  } catch (...) {
    raise_python();
    return -1;
  }
}

PyObject* tensor_complex(PyObject* self, PyObject*) {
  PyObject* x = item(self, nullptr);
  if (!x || PyComplex_Check(x)) return x;
  const double re = PyFloat_AsDouble(x);
  Py_DECREF(x);
  return re == -1.0 && PyErr_Occurred() ? nullptr : PyComplex_FromDoubles(re, 0.0);
}

Py_ssize_t tensor_length(PyObject* self) {
  Value* v = value_of(self, "len");
  if (!v) return -1;
  if (v->ndim == 0) return PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor"), -1;
  return v->shape[0];
}

// --------------------------------------------------------------------------------------------------- methods

PyObject* detach(PyObject* self, PyObject*) {
  Value* v = value_of(self, "detach");
  if (!v) return nullptr;
  if (thread_state.capturing) {
    static const Op& stop_gradient = *find_op("stop_gradient");
    return call_op(stop_gradient, &self, 1, nullptr, 0);
  }
  Value* cut = alias(v);
  if (v->node && !thread_state.n_tapes) {
    const uint64_t leaf = v->node->leaf ? v->node->id : 0;
    mark_end(cut, {.reason = PathEnd::detach, .op = "detach", .leaf = leaf, .line = current_line()});
  }
  return wrap_view(cut, as_tensor(self), true);
}

// _adopt(other): this shell (of a subclass) becomes a plain tensor with the other's value.
PyObject* adopt(PyObject* self, PyObject* other) {
  if (!is_tensor(other) || !as_tensor(other)->plain)
    return PyErr_SetString(PyExc_TypeError, "expected a tensor"), nullptr;
  TensorObject* t = as_tensor(self);
  Value* v = alias(current(as_tensor(other)->tensor));
  destroy(t->tensor);  // its views live on
  t->tensor = Tensor();
  t->tensor.value = v;
  t->plain = true;
  Py_RETURN_NONE;
}

// A write in a traced function happens in every call of it. A write to or from a dual rebinds the tensor.
PyObject* assign_in_python(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (n != 2) return PyErr_SetString(PyExc_TypeError, "expected a tensor and the name of an op"), nullptr;
  PyObject* operators = PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), "_operators");
  PyObject* f = operators ? PyDict_GetItemString(operators, "assign") : nullptr;
  PyObject* all[3] = {self, args[0], args[1]};
  PyObject* r = f ? PyObject_Vectorcall(f, all, 3, nullptr) : nullptr;
  Py_XDECREF(operators);
  return r;
}

// _assign(source, op name): this tensor gets the source's contents, in place.
PyObject* assign_method(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (thread_state.capturing) return assign_in_python(self, args, n);
  if (n != 2 || !is_tensor(args[0])) return PyErr_SetString(PyExc_TypeError, "_assign(tensor, op name)"), nullptr;
  if (!as_tensor(args[0])->plain || !as_tensor(self)->plain) return assign_in_python(self, args, n);
  const char* op = PyUnicode_AsUTF8(args[1]);
  if (!op) return nullptr;
  try {
    if (thread_state.grad_enabled) refuse_leaf(as_tensor(self)->tensor, op);
    Tensor& source = as_tensor(args[0])->tensor;
    Value* r = current(source);
    retain(r);
    assign(as_tensor(self)->tensor, r, op, thread_state.grad_enabled);
  } catch (...) {
    return raise_python();
  }
  return Py_NewRef(self);
}

// _take(result, op name): the same, but the result is a temporary that nobody will use again; its buffer is taken over.
PyObject* take_method(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (thread_state.capturing) return assign_in_python(self, args, n);
  if (n != 2 || !is_tensor(args[0]) || !as_tensor(args[0])->plain || !as_tensor(self)->plain || args[0] == self)
    return PyErr_SetString(PyExc_TypeError, "_take(temporary tensor, op name)"), nullptr;
  const char* op = PyUnicode_AsUTF8(args[1]);
  if (!op) return nullptr;
  try {
    if (thread_state.grad_enabled) refuse_leaf(as_tensor(self)->tensor, op);
    Tensor& source = as_tensor(args[0])->tensor;
    Value* r = current(source);
    if (source.alias || r->buffer == current(as_tensor(self)->tensor)->buffer) {
      retain(r);
    } else {
      source.value = empty(r->dtype, {0});
    }
    assign(as_tensor(self)->tensor, r, op, thread_state.grad_enabled);
  } catch (...) {
    return raise_python();
  }
  return Py_NewRef(self);
}

PyMethodDef methods[] = {
    {"item", item, METH_NOARGS,
     "item($self, /)\n--\n\nThe value of a tensor with one element as a Python number, which holds no gradient."},
    {"__complex__", tensor_complex, METH_NOARGS, nullptr},
    {"detach", detach, METH_NOARGS,
     "detach($self, /)\n--\n\nA tensor on the same memory without history: no gradient flows through it."},
    {"_adopt", adopt, METH_O, nullptr},
    {"_assign", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(assign_method)), METH_FASTCALL, nullptr},
    {"_take", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(take_method)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weak), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}

const char kDoc[] =
    "An n-dimensional array of one element type that knows how it was computed.\n\n"
    "Made by `tensor`, `asarray`, `zeros`, `randn`, ... and by every operation. Operators, indexing and methods follow "
    "NumPy\n"
    "and the array API; `requires_grad`, `grad`, `backward()` and `detach()` follow PyTorch.\n\n"
    ">>> import wengert as wg\n"
    ">>> x = wg.tensor([1.0, 2.0], requires_grad=True)\n"
    ">>> y = (x * x).sum()\n"
    ">>> y, y.backward()[x]\n"
    "(tensor(5., requires_grad=True), tensor([2., 4.]))";

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>(kDoc)},
    {Py_tp_new, fn(tensor_new)},
    {Py_tp_dealloc, fn(tensor_dealloc)},
    {Py_tp_traverse, fn(tensor_traverse)},
    {Py_tp_clear, fn(tensor_clear)},
    {Py_tp_richcompare, fn(compare)},
    {Py_tp_hash, fn(_Py_HashPointer)},
    {Py_tp_getset, tensor_properties},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_nb_add, fn(binary<Elementwise::add>)},
    {Py_nb_subtract, fn(binary<Elementwise::sub>)},
    {Py_nb_multiply, fn(binary<Elementwise::mul>)},
    {Py_nb_true_divide, fn(binary<Elementwise::div>)},
    {Py_nb_floor_divide, fn(binary<Elementwise::floor_divide>)},
    {Py_nb_remainder, fn(binary<Elementwise::remainder>)},
    {Py_nb_and, fn(binary<Elementwise::bitwise_and>)},
    {Py_nb_or, fn(binary<Elementwise::bitwise_or>)},
    {Py_nb_xor, fn(binary<Elementwise::bitwise_xor>)},
    {Py_nb_lshift, fn(binary<Elementwise::bitwise_left_shift>)},
    {Py_nb_rshift, fn(binary<Elementwise::bitwise_right_shift>)},
    {Py_nb_negative, fn(unary<Elementwise::neg>)},
    {Py_nb_absolute, fn(unary<Elementwise::abs>)},
    {Py_nb_invert, fn(unary<Elementwise::bitwise_invert>)},
    {Py_nb_power, fn(power)},
    {Py_nb_matrix_multiply, fn(matrix_multiply)},
    {Py_nb_float, fn(tensor_float)},
    {Py_nb_int, fn(tensor_int)},
    {Py_nb_index, fn(tensor_index)},
    {Py_nb_bool, fn(tensor_bool)},
    {Py_mp_subscript, fn(subscript)},
    {Py_mp_ass_subscript, fn(assign_subscript)},
    {Py_mp_length, fn(tensor_length)},
    {Py_bf_getbuffer, fn(get_tensor_buffer)},
    {Py_bf_releasebuffer, fn(release_tensor_buffer)},
    {0, nullptr},
};

PyType_Spec spec = {"wengert.Tensor", sizeof(TensorObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

PyObject* not_plain(const char* what) {
  PyErr_Format(PyExc_TypeError, "%s: this tensor holds no data of its own (a dual, traced or batched value)", what);
  return nullptr;
}

Value* value_of(PyObject* self, const char* what) {
  TensorObject* t = as_tensor(self);
  if (!t->plain) {
    not_plain(what);
    return nullptr;
  }
  return current(t->tensor);
}

Value* data_of(PyObject* self, const char* what) {
  if (as_tensor(self)->changed && thread_state.capturing) {
    PyErr_Format(python_hooks.errors[static_cast<int>(ErrorKind::trace)],
                 "%s: the traced function reads a tensor %s that it has changed; while tracing there is no data. Use "
                 "where() instead of if, or do this outside the compiled function",
                 what, to_string(current(as_tensor(self)->tensor)->type()).c_str());
    return nullptr;
  }
  return value_of(self, what);
}

PyObject* wrap(Value* owned) {
  if (owned->buffer->refs > 1) owned->buffer->shared = true;
  TensorObject* t = new_tensor();
  if (!t) {
    release(owned);
    return nullptr;
  }
  t->tensor.value = owned;
  t->plain = true;
  return reinterpret_cast<PyObject*>(t);
}

void set_dual_tensor_type(PyTypeObject* type) { dual_tensor_type = type; }

TensorObject* new_dual_tensor() {
  TensorObject* t = dropped_duals.take(dual_tensor_type);
  if (t) clear_fields(t);
  return t;
}

PyObject* wrap_view(Value* owned, TensorObject* base, bool detached) {
  PyObject* p = wrap(owned);
  if (p) {
    join(base->tensor, as_tensor(p)->tensor, detached);
    if (detached) as_tensor(p)->requires_grad = -1;
  }
  return p;
}

void make_collectable(TensorObject* t) {
  if (t->collectable) return;
  t->collectable = true;
  PyObject* self = reinterpret_cast<PyObject*>(t);
  if (!PyObject_GC_IsTracked(self)) PyObject_GC_Track(self);
}

uint64_t id_of(TensorObject* t) {
  if (!t->id) {
    Value* v = t->plain ? current(t->tensor) : nullptr;
    t->id = v && v->node && v->node->leaf && v->node->id ? v->node->id : new_id();
    if (v && v->node && v->node->leaf && !v->node->id) v->node->id = t->id;
  }
  return t->id;
}

Captured::Captured()
    : Error(ErrorKind::trace,
            "the data of a tensor is needed while a function is traced, where there is none; do this outside the "
            "compiled function") {}

Value* watched_operand(TensorObject* t) {
  const ThreadState& s = thread_state;
  if (s.capturing) throw Captured();
  Value* v = current(t->tensor);
  // Inside a tape every floating tensor is tracked unless its requires_grad was set to False.
  if (s.n_tapes && s.grad_enabled && t->requires_grad != 0 && is_inexact(v->dtype) && !tracked(v))
    return tape_handle(id_of(t), v);
  return v;
}

int init_tensor_type(PyObject* module) {
  tensor_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!tensor_type) return -1;
  return PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(tensor_type));
}

}  // namespace wengert
