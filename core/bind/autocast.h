// Casts operands of Python calls to the precision that autocast asks for.
#pragma once
#include <vector>

#include "../autocast.h"
#include "call.h"

namespace wengert {

inline bool casts_operands(const Op& op) {
  const CastPolicy* policy = thread_state.autocast;
  return policy && policy->precision_of(&op, op.precision) != Precision::any;
}

// The operands of a call, cast where autocast asks for a different dtype. Throws.
class CastOperands {
  PyObject* const* objects_;
  std::vector<PyObject*> made_;  // all operands, owned; empty if nothing was cast

  void cast(Precision precision, Py_ssize_t n);

 public:
  CastOperands(const Op& op, PyObject* const* args, Py_ssize_t n) : objects_(args) {
    if (thread_state.autocast) [[unlikely]]
      cast(thread_state.autocast->precision_of(&op, op.precision), n);
  }
  CastOperands(Precision precision, PyObject* const* args, Py_ssize_t n) : objects_(args) { cast(precision, n); }
  CastOperands(const CastOperands&) = delete;
  ~CastOperands() {
    for (PyObject* o : made_) Py_DECREF(o);
  }
  PyObject* const* objects() const { return objects_; }
};

}  // namespace wengert
