// Attributes of a tensor, and of its gradient.
#include <utility>

#include "tensor_parts.h"

namespace wengert {

namespace {

PyObject* get_shape(PyObject* self, void*) {
  Value* v = value_of(self, "shape");
  if (!v) return nullptr;
  PyObject* t = PyTuple_New(v->ndim);
  for (int i = 0; t && i < v->ndim; ++i) PyTuple_SET_ITEM(t, i, PyLong_FromLongLong(v->shape[i]));
  return t;
}

PyObject* get_strides(PyObject* self, void*) {
  Value* v = value_of(self, "strides");
  if (!v) return nullptr;
  PyObject* t = PyTuple_New(v->ndim);
  for (int i = 0; t && i < v->ndim; ++i) PyTuple_SET_ITEM(t, i, PyLong_FromLongLong(v->strides[i]));
  return t;
}

PyObject* get_dtype(PyObject* self, void*) {
  Value* v = value_of(self, "dtype");
  return v ? Py_NewRef(python_hooks.dtypes[static_cast<int>(v->dtype)]) : nullptr;
}

PyObject* get_ndim(PyObject* self, void*) {
  Value* v = value_of(self, "ndim");
  return v ? PyLong_FromLong(v->ndim) : nullptr;
}

// Tensor.size is an int subclass; calling it, like PyTorch's size(), raises an error that says what to write instead.
PyObject* call_count(PyObject*, PyObject*, PyObject*) {
  PyErr_SetString(
      PyExc_TypeError,
      "size is not a method of tensors but the number of elements; write x.shape for the sizes of all axes, "
      "and x.shape[axis] for one of them");
  return nullptr;
}

PyObject* reduce_count(PyObject* self, PyObject*) {
  PyObject* plain = PyNumber_Add(self, Py_False);  // an int
  return plain ? Py_BuildValue("O(N)", &PyLong_Type, plain) : nullptr;
}

PyMethodDef count_methods[] = {
    {"__reduce__", reduce_count, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject* new_count_type() {
  PyType_Slot slots[] = {
      {Py_tp_call, reinterpret_cast<void*>(call_count)},
      {Py_tp_methods, count_methods},
      {0, nullptr},
  };
  PyType_Spec spec = {"wengert.ElementCount", 0, 0, Py_TPFLAGS_DEFAULT, slots};
  PyObject* bases = Py_BuildValue("(O)", &PyLong_Type);
  PyObject* made = bases ? PyType_FromSpecWithBases(&spec, bases) : nullptr;
  Py_XDECREF(bases);
  return reinterpret_cast<PyTypeObject*>(made);
}

PyObject* get_size(PyObject* self, void*) {
  static PyTypeObject* count_type = new_count_type();
  Value* v = value_of(self, "size");
  return v && count_type ? PyObject_CallFunction(reinterpret_cast<PyObject*>(count_type), "L", v->size) : nullptr;
}

PyObject* get_plain(PyObject* self, void*) { return PyBool_FromLong(as_tensor(self)->plain); }
PyObject* get_held(PyObject* self, void*) {
  PyObject* held = as_tensor(self)->held;
  return Py_NewRef(held ? held : Py_None);
}
PyObject* get_id(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(id_of(as_tensor(self))); }

PyObject* get_requires_grad(PyObject* self, void*) {
  TensorObject* t = as_tensor(self);
  if (!t->plain) Py_RETURN_FALSE;
  Value* v = current(t->tensor);
  return PyBool_FromLong(v->node && tracked(v));
}

int set_requires_grad(PyObject* self, PyObject* flag, void*) {
  TensorObject* t = as_tensor(self);
  Value* v = value_of(self, "requires_grad");
  if (!v) return -1;
  int on = flag ? PyObject_IsTrue(flag) : 0;
  if (on < 0) return -1;
  if (on && !is_inexact(v->dtype)) {
    PyErr_Format(python_hooks.errors[static_cast<int>(ErrorKind::dtype)],
                 "requires_grad: only floating tensors have gradients, this one is %s; convert with astype first",
                 to_string(v->type()).c_str());
    return -1;
  }
  if (v->node && !v->node->leaf) {
    if (on) return 0;
    PyErr_SetString(python_hooks.errors[static_cast<int>(ErrorKind::gradient)],
                    "requires_grad: this tensor is the result of a recorded op; use detach() to cut it from the graph");
    return -1;
  }
  t->requires_grad = static_cast<int8_t>(on);
  if (on && tracked(v)) return 0;
  if (v->node) {
    release(v->node);
    v->node = nullptr;
  }
  if (on) {
    if (v->refs > 1) {  // a value saved by the tape stays a constant there
      Value* own = alias(v);
      release(t->tensor.value);
      t->tensor.value = v = own;
    }
    v->node = new_leaf(id_of(t), {}, v->type());
    set_category(v->buffer, Category::parameter);
    if (t->tensor.alias && t->tensor.is_base) {
      retain(v);
      release(t->tensor.alias->base);
      t->tensor.alias->base = v;
    }
  }
  return 0;
}

PyObject* get_is_leaf(PyObject* self, void*) {
  Value* v = value_of(self, "is_leaf");
  return v ? PyBool_FromLong(!v->node || v->node->leaf) : nullptr;
}

PyObject* get_grad(PyObject* self, void*) {
  if (thread_state.capturing) return call_python("grad", self, Py_None);
  return grad_of(as_tensor(self));
}

int set_grad(PyObject* self, PyObject* g, void*) {
  if (thread_state.capturing) {
    PyObject* done = call_python("set_grad", self, g ? g : Py_None);
    Py_XDECREF(done);
    return done ? 0 : -1;
  }
  Value* v = value_of(self, "grad");
  if (!v) return -1;
  if (!g || g == Py_None) return store_grad(as_tensor(self), nullptr), 0;
  if (!v->node) {
    PyErr_SetString(python_hooks.errors[static_cast<int>(ErrorKind::gradient)],
                    "grad: this tensor does not require a gradient; set requires_grad first");
    return -1;
  }
  if (!is_tensor(g) || !as_tensor(g)->plain)
    return PyErr_SetString(PyExc_TypeError, "grad: expected a tensor or None"), -1;
  Value* gv = current(as_tensor(g)->tensor);
  if (!(gv->dims() == v->dims())) {
    PyErr_Format(python_hooks.errors[static_cast<int>(ErrorKind::shape)],
                 "grad: a gradient of shape %s does not fit a tensor of shape %s", to_string(gv->dims()).c_str(),
                 to_string(v->dims()).c_str());
    return -1;
  }
  if (gv->device != v->device) {
    PyErr_Format(python_hooks.errors[static_cast<int>(ErrorKind::device)],
                 "grad: a gradient on %s does not fit a tensor on %s; move it with to()",
                 device_name(gv->device).c_str(), device_name(v->device).c_str());
    return -1;
  }
  retain(gv);
  gv->buffer->shared = true;
  store_grad(as_tensor(self), gv);
  return 0;
}

PyObject* get_data_pointer(PyObject* self, void*) {
  Value* v = value_of(self, "data_ptr");
  return v ? PyLong_FromVoidPtr(v->data) : nullptr;
}

PyObject* get_pinned(PyObject* self, void*) {
  return PyBool_FromLong(as_tensor(self)->plain && current(as_tensor(self)->tensor)->buffer->pinned);
}

PyObject* get_overlaps(PyObject* self, void*) {
  return PyBool_FromLong(as_tensor(self)->plain && has_shared_elements(as_tensor(self)->tensor));
}

PyObject* get_contiguous(PyObject* self, void*) {
  Value* v = value_of(self, "is_contiguous");
  return v ? PyBool_FromLong(v->contiguous) : nullptr;
}

}  // namespace

PyObject* grad_of(TensorObject* t) {
  if (!t->plain) Py_RETURN_NONE;
  Value* v = current(t->tensor);
  if (!v->node || !v->node->grad) Py_RETURN_NONE;
  Alias* shared = v->node->grad;
  // Such as one element seen through strides of zero: people write to gradients in place.
  if (!shared->base->contiguous) {
    Value* packed;
    try {
      packed = contiguous(shared->base);
    } catch (...) {
      return raise_python();
    }
    release(std::exchange(shared->base, packed));
    ++shared->version;
  }
  retain(shared->base);
  PyObject* g = wrap(shared->base);
  if (!g) return nullptr;
  Tensor& t_grad = as_tensor(g)->tensor;
  enter_group(t_grad, shared);
  t_grad.seen = shared->version;
  t_grad.is_base = true;
  return g;
}

void store_grad(TensorObject* t, Value* owned) {
  Node* node = current(t->tensor)->node;
  if (!node) {
    if (owned) release(owned);
    return;
  }
  if (node->grad) release(std::exchange(node->grad, nullptr));
  if (!owned) return;
  if (owned->buffer->refs > 1) owned->buffer->shared = true;
  node->grad = new Alias{1, 0, owned};
  set_category(owned->buffer, Category::gradient);
}

PyGetSetDef tensor_properties[] = {
    {"shape", get_shape, nullptr, "Sizes of the axes, as a tuple.", nullptr},
    {"strides", get_strides, nullptr, "Steps between neighbours along each axis, in elements.", nullptr},
    {"dtype", get_dtype, nullptr, "The element type.", nullptr},
    {"ndim", get_ndim, nullptr, "The number of axes.", nullptr},
    {"size", get_size, nullptr, "The number of elements.", nullptr},
    {"id", get_id, nullptr, "A number that identifies this tensor in the process, such as in a GradientMap.", nullptr},
    {"requires_grad", get_requires_grad, set_requires_grad,
     "Whether operations on this tensor are recorded, so that backward() computes its gradient.", nullptr},
    {"is_leaf", get_is_leaf, nullptr, "Whether no recorded op produced this tensor.", nullptr},
    {"grad", get_grad, set_grad,
     "The gradient that backward() has added up for this leaf, or None; set it to None to clear it.", nullptr},
    {"is_contiguous", get_contiguous, nullptr, "Whether elements lie in row-major order without gaps.", nullptr},
    {"data_ptr", get_data_pointer, nullptr, "Address of the first element.", nullptr},
    {"_pinned", get_pinned, nullptr, "Whether the memory is shared with something outside, such as a NumPy array.",
     nullptr},
    {"_overlaps", get_overlaps, nullptr,
     "Whether elements of this tensor, or of one that it is a view of, share their memory.", nullptr},
    {"_held", get_held, nullptr, "What a tensor that is not plain stands for, or None.", nullptr},
    {"_plain", get_plain, nullptr, "Whether this tensor is data (not a dual, traced or batched value).", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace wengert
