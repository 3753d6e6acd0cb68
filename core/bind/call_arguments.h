// The arguments of a call of a compiled function: which of them are operands, and the signature of all.
#pragma once
#include <vector>

#include "../signature.h"
#include "../small_array.h"
#include "../trace.h"
#include "call.h"

namespace wengert {

inline constexpr size_t kFewOperands = 16;

// Appends a static argument to a signature; false if it is not of a kind that can be. Throws.
bool put_static(CallSignature& signature, PyObject* o);

class CallArguments {
 public:
  enum class Kind { fast, dual, structured, not_plain };

  CallSignature signature;
  SmallArray<Value*, kFewOperands> in;          // of duals the values at the bottom, for their types
  SmallArray<Tensor*, kFewOperands> tensors;    // of which these are the values; null for numbers and duals
  SmallArray<PyObject*, kFewOperands> objects;  // the arguments themselves
  size_t n_in = 0;
  Kind kind = Kind::fast;

  // `operands`: of each argument, whether a number there is an operand.
  CallArguments(const std::vector<bool>& operands, PyObject* const* args, Py_ssize_t n, PyObject* names);

  TraceArguments view() { return {in.data(), tensors.data(), n_in}; }
  DeviceId device();  // the first that is not the CPU

 private:
  std::vector<Ref> numbers_;  // owns those that are operands

  void argument(const std::vector<bool>& operands, PyObject* o, size_t position);
  bool number(PyObject* o);
  void take(PyObject* o, Value* v, Tensor* t) {
    objects[n_in] = o;
    tensors[n_in] = t;
    in[n_in++] = v;
  }
};

// The types of NumPy whose instances are numbers that may be operands.
void set_numpy_types(PyObject* float64, PyObject* float32, PyObject* int64);

}  // namespace wengert
