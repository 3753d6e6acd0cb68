// The arguments of a call of a compiled function: which of them are operands, and the signature of the call.
#pragma once
#include <vector>

#include "../signature.h"
#include "../small_array.h"
#include "../trace.h"
#include "call.h"

namespace wengert {

inline constexpr size_t kFewOperands = 16;

// Appends a static argument to a signature; returns false if its type is not supported. Throws.
bool put_static(CallSignature& signature, PyObject* o);

class CallArguments {
 public:
  enum class Kind { fast, dual, structured, not_plain };

  CallSignature signature;
  SmallArray<Value*, kFewOperands> in;          // for duals the bottom values, for their types
  SmallArray<Tensor*, kFewOperands> tensors;    // the tensors of these values; null for numbers and duals
  SmallArray<PyObject*, kFewOperands> objects;  // the arguments themselves
  size_t n_in = 0;
  Kind kind = Kind::fast;

  // `operands` says for each argument whether a number there becomes an operand.
  CallArguments(const std::vector<bool>& operands, PyObject* const* args, Py_ssize_t n, PyObject* names);

  TraceArguments view() { return {in.data(), tensors.data(), n_in}; }
  DeviceId device();  // the first device that is not the CPU

 private:
  std::vector<Ref> numbers_;  // owns the numbers that are operands

  void argument(const std::vector<bool>& operands, PyObject* o, size_t position);
  bool number(PyObject* o);
  void take(PyObject* o, Value* v, Tensor* t) {
    objects[n_in] = o;
    tensors[n_in] = t;
    in[n_in++] = v;
  }
};

// The NumPy scalar types whose instances may be operands.
void set_numpy_types(PyObject* float64, PyObject* float32, PyObject* int64);

}  // namespace wengert
