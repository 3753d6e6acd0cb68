// The Python type `Tensor`: a plain CPython type, because its instances are made and dropped by every op.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../tensor.h"

namespace wengert {

struct TensorObject {
  PyObject_HEAD;
  Tensor tensor;
  uint64_t id;           // 0: not assigned yet
  int8_t requires_grad;  // -1: never set, 0, 1
  bool plain;
  bool collectable;  // tracked by the garbage collector, because hooks may close over it or it is a subclass
  bool look;         // our own code reads its memory for a moment, so exporting it does not pin it
  bool changed;      // written by the function being traced, so its current contents are stale
  PyObject* held;    // if not plain: the Python object that it represents
  PyObject* weak;
};

extern PyTypeObject* tensor_type;

inline bool is_tensor(PyObject* o) { return Py_TYPE(o) == tensor_type || PyType_IsSubtype(Py_TYPE(o), tensor_type); }
inline TensorObject* as_tensor(PyObject* o) { return reinterpret_cast<TensorObject*>(o); }

void clear_fields(TensorObject* t);  // of a new object
void tensor_dealloc(PyObject* self);

void set_dual_tensor_type(PyTypeObject* type);  // called once; instances are recycled like plain tensors
TensorObject* new_dual_tensor();                // an empty shell; a new reference, or null with MemoryError

PyObject* wrap(Value* owned);  // a new plain tensor; takes the reference; null with MemoryError
PyObject* wrap_view(Value* owned, TensorObject* base, bool detached);
uint64_t id_of(TensorObject* t);
PyObject* grad_of(TensorObject* t);              // its `.grad`: a new reference, or null with an exception
void store_grad(TensorObject* t, Value* owned);  // sets its `.grad`, or clears it; takes the reference
// Calls the operator of this name in Tensor._operators on two objects. A new reference, or null with an exception.
PyObject* call_python(const char* method, PyObject* a, PyObject* b);
// Registers a tensor whose node has hooks with the garbage collector. Other tensors cannot be part of reference cycles.
void make_collectable(TensorObject* t);

// Thrown if an op would run on tensors that belong to a trace; it becomes an instruction instead.
struct Captured : Error {
  Captured();
};

// The value of a plain tensor for use as an operand: up to date, and tracked if a tape is recording. Throws Captured.
Value* watched_operand(TensorObject* t);
inline Value* operand(TensorObject* t) {
  if (thread_state.watched) [[unlikely]]
    return watched_operand(t);
  return current(t->tensor);
}

int init_tensor_type(PyObject* module);

// Translates the exception in flight to a Python exception. Call in a catch block; returns null.
PyObject* raise_python();

// Python callables that the bindings use; set by wengert at import.
struct PythonHooks {
  PyObject* dispatch;         // dispatch(op, inputs, attrs): an op on tensors that are not plain
  PyObject* convert_operand;  // converts a foreign operand to a Tensor or a Python scalar, or returns NotImplemented
  PyObject* derive;           // derives the derivative of an op, and its push
  PyObject* push;
  PyObject* derive_again;  // the same for a derived program, and that program with only some of its outputs
  PyObject* push_again;
  PyObject* narrow;
  PyObject* partial;         // a vjp that takes only some of its cotangents; None if it needs all
  PyObject* join;            // joins the derivative programs of a graph into one
  PyObject* refuse_leaving;  // raises the error for a tensor whose numbers must not leave
  PyObject* dtypes[kNumDTypes];
  PyObject* errors[static_cast<int>(ErrorKind::count)];
};
extern PythonHooks python_hooks;

SourceLine current_line();
std::string describe(SourceLine line);
void hide_lines(const char* folder, const char* but);  // files whose lines do not count as the user's

}  // namespace wengert
