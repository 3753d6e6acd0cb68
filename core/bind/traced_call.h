// A trace with what it has of Python: what results are made of, what a call reads of Python objects when it begins, and
// what it does to them when it ends.
#pragma once
#include "../trace.h"
#include "call_arguments.h"
#include "program.h"

namespace wengert {

struct TracedCall : Trace {
  nb::object python;       // derives on demand
  nb::list captured_list;  // owns the tensors from outside
  nb::object unflatten;    // None: one tensor
  nb::object begin;        // begin(how far each stream moves on): hidden inputs; None where to trace anew. Of effects
  nb::object commit;       // commit(): after a call with effects that succeeded; or None
  nb::object settings;     // settings(): whether what the trace read of Python objects is still so; or None
  uint64_t settings_seen = 0;  // the epoch in which it last was
  bool asks_roles = false;     // whether it depends on which tensors are tracked

  template <class F>
  void for_each_object(F&& f) {
    for (PyObject* o : {python.ptr(), captured_list.ptr(), unflatten.ptr(), begin.ptr(), commit.ptr(), settings.ptr()})
      f(o);
  }
  const Derivative& derivative_for(uint64_t mask, Value* const* in);
  // Whether the push of the program is what the function does to duals: not where it changes something, or where its
  // program does not say how tangents pass (under no_grad).
  bool has_push();

 private:
  friend PyObject* run_on_duals(TracedCall& trace, CallArguments& call);
  std::unique_ptr<DerivedHandle> derived_;  // what its push is derived from; null: not asked for yet, or there is none
  bool has_no_push_ = false;
};

// Thrown where deriving a trace found that it is for other sizes than those of the call: it was traced for the sizes
// of an earlier one, and a rule has looked at them. Nothing has happened by then, and the trace's guards know.
struct OtherSizes {};

// Runs the push of a trace on duals that have the types of this call. Null without an exception if they have too many
// parts.
PyObject* run_on_duals(TracedCall& trace, CallArguments& call);

// Runs a trace that is for this call. What it returns is new, or null with an exception.
PyObject* run_traced(TracedCall& trace, const TraceArguments& call, uint64_t mask, const nb::list& hidden);
// The hidden inputs of a call, and by which inputs it is differentiated; false if what the trace has assumed of Python
// objects is not so any more.
bool begin_call(TracedCall& trace, const TraceArguments& call, uint64_t& mask, nb::list& hidden);

// Thrown where what a call would write is not finite, before it is written.
struct NotFiniteEffects {};

void init_traced_call(nb::module_& m);

}  // namespace wengert
