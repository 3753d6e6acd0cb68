// A trace together with its Python side: how results are rebuilt, which Python objects a call reads when it begins, and
// what it does to them when it ends.
#pragma once
#include "../trace.h"
#include "call_arguments.h"
#include "program.h"

namespace wengert {

struct TracedCall : Trace {
  nb::object python;           // derives on demand
  nb::list captured_list;      // owns the tensors from outside
  nb::object unflatten;        // None: one tensor
  nb::object begin;            // begin(how far each stream advances): hidden inputs, or None to retrace. For effects
  nb::object commit;           // commit(): after a call with effects that succeeded; or None
  nb::object settings;         // settings(): whether the Python state that the trace read is unchanged; or None
  uint64_t settings_seen = 0;  // the epoch in which it last was unchanged
  bool asks_roles = false;     // whether it depends on which tensors are tracked

  template <class F>
  void for_each_object(F&& f) {
    for (PyObject* o : {python.ptr(), captured_list.ptr(), unflatten.ptr(), begin.ptr(), commit.ptr(), settings.ptr()})
      f(o);
  }
  const Derivative& derivative_for(uint64_t mask, Value* const* in);
  // Whether the program's push is right for duals: not if the function changes something, or if the program does not
  // show how tangents pass (under no_grad).
  bool has_push();

 private:
  friend PyObject* run_on_duals(TracedCall& trace, CallArguments& call);
  std::unique_ptr<DerivedHandle> derived_;  // the push's source; null if not requested yet, or if there is none
  bool has_no_push_ = false;
};

// Thrown if deriving a trace showed that it does not hold for the sizes of this call, because a rule looked at the
// sizes of the call that it was traced for. Nothing has happened by then, and the trace has got a guard.
struct OtherSizes {};

// Runs the push of a trace on duals of the call's types. Null without an exception if they have too many parts.
PyObject* run_on_duals(TracedCall& trace, CallArguments& call);

// Runs a trace that fits this call. Returns a new reference, or null with an exception.
PyObject* run_traced(TracedCall& trace, const TraceArguments& call, uint64_t mask, const nb::list& hidden);
// Collects the hidden inputs of a call and the inputs it is differentiated with respect to. Returns false if the Python
// state that the trace assumed has changed.
bool begin_call(TracedCall& trace, const TraceArguments& call, uint64_t& mask, nb::list& hidden);

void init_traced_call(nb::module_& m);

}  // namespace wengert
