// The Python type `Tensor`: a plain CPython type, because its instances are made and dropped by every op.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../tensor.h"

namespace wengert {

struct TensorObject {
  PyObject_HEAD;
  Tensor tensor;
  uint64_t id;           // 0: none asked for yet
  int8_t requires_grad;  // -1: never set, 0, 1
  bool plain;
  bool collectable;  // the garbage collector knows it: hooks may close over it, or it is of a subclass
  bool look;         // its memory is read for a moment by our own code: exporting it pins nothing
  bool changed;      // by the function that is being traced: what it holds is not what it will hold
  PyObject* held;    // of a tensor that is not plain: what it stands for, a Python object
  PyObject* weak;
};

extern PyTypeObject* tensor_type;

inline bool is_tensor(PyObject* o) { return Py_TYPE(o) == tensor_type || PyType_IsSubtype(Py_TYPE(o), tensor_type); }
inline TensorObject* as_tensor(PyObject* o) { return reinterpret_cast<TensorObject*>(o); }

void clear_fields(TensorObject* t);  // of a new object
void tensor_dealloc(PyObject* self);

void set_dual_tensor_type(PyTypeObject* type);  // once; its instances are recycled as plain tensors are
TensorObject* new_dual_tensor();                // an empty shell; a new reference, or null with MemoryError

PyObject* wrap(Value* owned);  // a new plain tensor; takes the reference; null with MemoryError
PyObject* wrap_view(Value* owned, TensorObject* base, bool detached);
uint64_t id_of(TensorObject* t);
PyObject* grad_of(TensorObject* t);              // its `.grad`: a new reference, or null with an exception
void store_grad(TensorObject* t, Value* owned);  // makes this its `.grad`, or forgets it; takes the reference
// What Tensor._operators has under this name, of two objects; a new reference, or null with an exception.
PyObject* call_python(const char* method, PyObject* a, PyObject* b);
// Lets the garbage collector look at a tensor whose node has hooks. Others have no part in cycles of Python objects.
void make_collectable(TensorObject* t);

// Thrown where an op would run now on tensors that belong to a trace: it becomes an instruction.
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

// Python callables that the bindings use, set by wengert at import.
struct PythonHooks {
  PyObject* dispatch;         // dispatch(op, inputs, attrs): an op on tensors that are not plain
  PyObject* convert_operand;  // makes a Tensor or a Python scalar of a foreign operand, or NotImplemented
  PyObject* derive;           // of an op, its derivative; and its push
  PyObject* push;
  PyObject* derive_again;  // the same of a derived program; and that program with some of its outputs only
  PyObject* push_again;
  PyObject* narrow;
  PyObject* partial;         // a vjp with some of its cotangents only; None if it needs all
  PyObject* join;            // of the derivative programs of a graph one program
  PyObject* refuse_leaving;  // raises for a tensor whose numbers must not leave
  PyObject* dtypes[kNumDTypes];
  PyObject* errors[static_cast<int>(ErrorKind::count)];
};
extern PythonHooks python_hooks;

SourceLine current_line();
std::string describe(SourceLine line);
void hide_lines(const char* folder, const char* but);  // files whose lines are not a user's

}  // namespace wengert
