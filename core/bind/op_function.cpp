// The callable object of each op.
#include <Python.h>
#include <structmember.h>

#include "call.h"

namespace wengert {

namespace {

struct OpFunction {
  PyObject_HEAD;
  vectorcallfunc call;
  const Op* op;
  std::shared_ptr<const Op> owned;  // the op, if it was made at run time
  PyObject* dict;
};

PyTypeObject* op_function_type = nullptr;

// f(x, y, ..., attributes in order); an op with any number of inputs takes them as one sequence.
PyObject* op_call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  const Op& op = *reinterpret_cast<OpFunction*>(self)->op;
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  PyObject* out = nullptr;
  if (keywords && PyTuple_GET_SIZE(keywords)) {
    if (PyTuple_GET_SIZE(keywords) != 1 || !op.elementwise ||
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(keywords, 0), "out") != 0) {
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R", op.name.c_str(),
                   PyTuple_GET_ITEM(keywords, 0));
      return nullptr;
    }
    out = args[n] == Py_None ? nullptr : args[n];
    if (out && !is_tensor(out)) {
      PyErr_Format(PyExc_TypeError, "%s: out must be a tensor to write into, got %s", op.name.c_str(),
                   Py_TYPE(out)->tp_name);
      return nullptr;
    }
  }
  if (op.elementwise) {
    if (n != op.n_inputs) {
      PyErr_Format(PyExc_TypeError, "%s() takes %d operand(s), got %zd", op.name.c_str(), op.n_inputs, n);
      return nullptr;
    }
    PyObject* y = call_elementwise(op, args, static_cast<int>(n), false);
    if (!y || !out) return y;
    PyObject* r = PyObject_CallMethod(out, "_assign", "Os", y, op.name.c_str());
    Py_DECREF(y);
    return r;
  }
  if (op.n_inputs >= 0) {
    if (n < op.n_inputs) {
      PyErr_Format(PyExc_TypeError, "%s() takes %d tensor(s)", op.name.c_str(), op.n_inputs);
      return nullptr;
    }
    return call_op(op, args, op.n_inputs, args + op.n_inputs, static_cast<int>(n) - op.n_inputs);
  }
  if (n < 1) return PyErr_Format(PyExc_TypeError, "%s() takes a sequence of tensors", op.name.c_str());
  PyObject* sequence = PySequence_Fast(args[0], "expected a sequence of tensors");
  if (!sequence) return nullptr;
  PyObject* r = call_op(op, PySequence_Fast_ITEMS(sequence), static_cast<int>(PySequence_Fast_GET_SIZE(sequence)),
                        args + 1, static_cast<int>(n) - 1);
  Py_DECREF(sequence);
  return r;
}

void op_function_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(reinterpret_cast<OpFunction*>(self)->dict);
  std::destroy_at(&reinterpret_cast<OpFunction*>(self)->owned);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* op_function_repr(PyObject* self) {
  return PyUnicode_FromFormat("<wengert op %s>", reinterpret_cast<OpFunction*>(self)->op->name.c_str());
}

PyObject* reduce_by_name(PyObject* self, PyObject*) {
  // Pickled and copied by name, like any function.
  return PyUnicode_FromString(reinterpret_cast<OpFunction*>(self)->op->name.c_str());
}

PyMemberDef op_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OpFunction, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(OpFunction, dict), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef op_properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMethodDef op_methods[] = {
    {"__reduce__", reduce_by_name, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot op_slots[] = {
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind_method)},
    {Py_tp_dealloc, reinterpret_cast<void*>(op_function_dealloc)},
    {Py_tp_repr, reinterpret_cast<void*>(op_function_repr)},
    {Py_tp_members, op_members},
    {Py_tp_getset, op_properties},
    {Py_tp_methods, op_methods},
    {0, nullptr},
};
PyType_Spec op_spec = {"wengert.Op", sizeof(OpFunction), 0,
                       Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, op_slots};

}  // namespace

PyObject* bind_method(PyObject* self, PyObject* instance, PyObject*) {
  if (!instance || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

PyObject* new_op_function(const Op* op) {
  OpFunction* f = PyObject_New(OpFunction, op_function_type);
  if (!f) return nullptr;
  f->call = op_call;
  f->op = op;
  std::construct_at(&f->owned, op->owned.lock());
  f->dict = nullptr;
  return reinterpret_cast<PyObject*>(f);
}

int init_op_functions(PyObject* module) {
  op_function_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&op_spec));
  if (!op_function_type) return -1;
  PyObject* table = PyDict_New();
  if (!table) return -1;
  for (const Op* op : all_ops()) {
    PyObject* f = new_op_function(op);
    if (!f) return -1;
    PyDict_SetItemString(table, op->name.c_str(), f);
    Py_DECREF(f);
  }
  int r = PyModule_AddObjectRef(module, "ops", table);
  Py_DECREF(table);
  return r;
}

}  // namespace wengert
