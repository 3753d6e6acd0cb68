// Compiled functions: a cache hit is one native call. The signature holds what a trace may depend on: the structure and
// the static values of the arguments and, for tensors, the dtype, the rank and which sizes are 1. A number whose value
// has changed becomes a 0-d operand instead, unless the function needs its value.
#include "autocast.h"
#include "call_arguments.h"
#include "dual.h"
#include "traced_call.h"

#include <structmember.h>

#include "../trace_cache.h"

namespace wengert {

namespace {

// Counts changes to Python state that traces may have read, such as a module's training mode.
uint64_t settings_epoch = 1;

using Cache = TraceCache<TracedCall>;

struct Compiled {
  PyObject_HEAD;
  vectorcallfunc call;
  PyObject* function;  // the function that is traced
  // trace(compiled, args, kwargs): a TracedCall; or None if the function closes over a tensor that is not plain, so
  // that there is no program of its own: `lifted` runs it. It may change which numbers are operands.
  PyObject* trace;
  PyObject* slow;    // slow(compiled, args, kwargs): for nested arguments
  PyObject* lifted;  // lifted(compiled, args, kwargs): for tensors that are not plain
  // For a library function: how autocast casts its operands; nothing is cast inside. -1 for a user's function: its ops
  // are cast individually, so every policy has separate traces.
  int precision;
  Cache* cache;
  std::vector<bool>* operands;  // per argument: whether a number there is an operand
  PyObject* dict;
  PyObject* weak;
};

PyTypeObject* compiled_type = nullptr;

PyObject* call_slowly(PyObject* hook, Compiled* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  nb::list positional;
  nb::dict named;
  for (Py_ssize_t i = 0; i < n; ++i) positional.append(nb::handle(args[i]));
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i)
    named[nb::handle(PyTuple_GET_ITEM(names, i))] = nb::handle(args[n + i]);
  return nb::handle(hook)(nb::handle(reinterpret_cast<PyObject*>(self)), nb::tuple(positional), named).release().ptr();
}

// Calls the function on tensors that an open trace takes in as operands. Runs inside an exception handler, so it must
// not throw.
PyObject* call_captured(Compiled* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  try {
    return call_slowly(self->lifted, self, args, n, names);
  } catch (...) {
    return raise_python();
  }
}

bool settings_hold(TracedCall& e) {
  if (e.settings_seen == settings_epoch || e.settings.is_none()) [[likely]]
    return true;
  const uint64_t now = settings_epoch;
  if (!nb::cast<bool>(e.settings())) return false;
  e.settings_seen = now;
  return true;
}

// Runs an entry, keeping it alive meanwhile. Null without an exception if it does not fit this call.
PyObject* run_found(Compiled* self, Cache::Entries& entries, Cache::Entries::iterator at, const TraceArguments& call) {
  const InUse running(*at);
  at->require_one_device(call);
  uint64_t mask = 0;
  nb::list hidden;
  if (!begin_call(*at, call, mask, hidden)) return nullptr;
  self->cache->use(entries, at);
  return run_traced(*at, call, mask, hidden);
}

// Runs the first cached trace that fits this call. Null without an exception if there is none.
PyObject* run_known(Compiled* self, CallArguments& call) {
  Cache::Entries* entries = self->cache->find(call.signature.bytes());
  if (!entries) return nullptr;
  const TraceArguments arguments = call.view();
  for (auto e = entries->begin(); e != entries->end(); ++e)
    if (e->holds(arguments) && settings_hold(*e))
      if (PyObject* result = run_found(self, *entries, e, arguments); result || PyErr_Occurred()) return result;
  return nullptr;
}

void put_policy(CallSignature& signature) {
  if (thread_state.autocast) [[unlikely]]
    signature.put('A', thread_state.autocast->id);
}

// Traces the function for a call; the first entry returned is for this call. Null if the function has no program.
Cache::Entries* trace_call(Compiled* self, PyObject* const* args, Py_ssize_t n, PyObject* names, DeviceId device) {
  nb::object made;
  {
    const Placement here(device);
    made = nb::steal(call_slowly(self->trace, self, args, n, names));
  }
  if (made.is_none()) return nullptr;
  auto& traced = nb::cast<TracedCall&>(made);
  traced.settings_seen = settings_epoch;
  CallArguments call(*self->operands, args, n, names);  // tracing may have changed which numbers are operands
  put_policy(call.signature);
  traced.finish(call.view(), traced.asks_roles);
  return &self->cache->add(call.signature.bytes(), std::move(traced));
}

// Traces the function for this call and runs the trace.
PyObject* trace_and_run(Compiled* self, PyObject* const* args, Py_ssize_t n, PyObject* names, DeviceId device) {
  Cache::Entries* entries = trace_call(self, args, n, names, device);
  if (!entries) return call_slowly(self->lifted, self, args, n, names);
  CallArguments call(*self->operands, args, n, names);
  PyObject* result = run_found(self, *entries, entries->begin(), call.view());
  if (!result && !PyErr_Occurred())
    fail(ErrorKind::trace, "compile", "what the function reads of Python objects changes while it is traced");
  return result;
}

// The trace for a call on duals, which is the one for their values; traced if necessary. Null if there is no program.
TracedCall* trace_for_duals(Compiled* self, CallArguments& call, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  if (Cache::Entries* entries = self->cache->find(call.signature.bytes()))
    for (auto e = entries->begin(); e != entries->end(); ++e)
      if (e->holds(call.view()) && settings_hold(*e)) {
        self->cache->use(*entries, e);
        return &*e;
      }
  const Py_ssize_t count = n + (names ? PyTuple_GET_SIZE(names) : 0);
  std::vector<nb::object> values;
  SmallArray<PyObject*, kFewOperands> plain(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    plain[i] = args[i];
    if (!is_tensor(args[i]) || as_tensor(args[i])->plain) continue;
    values.push_back(to_python(alias(bottom_value(args[i]))));
    plain[i] = values.back().ptr();
  }
  Cache::Entries* entries = trace_call(self, plain.data(), n, names, kCpu);
  if (!entries) return nullptr;
  self->cache->use(*entries, entries->begin());
  return &entries->front();
}

// Null without an exception if Python has to run the function on the duals themselves.
PyObject* call_dual(Compiled* self, CallArguments& call, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  if (thread_state.capturing || thread_state.checks != Checks::none || call.device() != kCpu) return nullptr;
  TracedCall* trace = trace_for_duals(self, call, args, n, names);
  if (!trace || !trace->has_push()) return nullptr;
  const InUse running(*trace);
  CallArguments now(*self->operands, args, n, names);  // tracing may have changed which numbers are operands
  return run_on_duals(*trace, now);
}

// Whether all arguments are tensors or static values, so that nothing has to be converted or flattened.
bool are_flat(PyObject* const* args, Py_ssize_t n) {
  CallSignature scratch;
  for (Py_ssize_t i = 0; i < n; ++i)
    if (!is_tensor(args[i]) && !put_static(scratch, args[i])) return false;
  return true;
}

PyObject* compiled_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names);

// Calls a library function under autocast: its operands are cast, and nothing inside.
PyObject* call_cast(Compiled* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  try {
    const Precision precision = thread_state.autocast->precision_of(self, static_cast<Precision>(self->precision));
    const CastOperands cast(precision, args, n + (names ? PyTuple_GET_SIZE(names) : 0));
    AutocastOff off;
    return compiled_call(reinterpret_cast<PyObject*>(self), cast.objects(), static_cast<size_t>(n), names);
  } catch (...) {
    return raise_python();
  }
}

// Runs the function op by op with every result checked, before anything has been changed; raises at the first bad
// result.
PyObject* call_checked(Compiled* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  const Checks before = thread_state.checks;
  thread_state.checks = Checks::results;
  thread_state.update();
  PyObject* result = PyObject_Vectorcall(self->function, args, nargsf, names);
  thread_state.checks = before;
  thread_state.update();
  return result;
}

PyObject* compiled_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
  auto* self = reinterpret_cast<Compiled*>(object);
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (thread_state.autocast && self->precision >= 0) [[unlikely]]
    if (are_flat(args, n + (names ? PyTuple_GET_SIZE(names) : 0))) return call_cast(self, args, n, names);
  if (!self->function) {
    PyErr_SetString(PyExc_RuntimeError, "a compiled function was called after it was garbage collected");
    return nullptr;
  }
  try {
    CallArguments call(*self->operands, args, n, names);
    put_policy(call.signature);
    if (call.n_in == 0 && thread_state.capturing) throw Captured();
    if (call.kind == CallArguments::Kind::not_plain) return call_slowly(self->lifted, self, args, n, names);
    if (call.kind == CallArguments::Kind::structured) return call_slowly(self->slow, self, args, n, names);
    if (call.kind == CallArguments::Kind::dual) {
      if (PyObject* result = call_dual(self, call, args, n, names); result || PyErr_Occurred()) return result;
      return call_slowly(self->lifted, self, args, n, names);
    }
    if (thread_state.checks == Checks::results && !thread_state.capturing)  // op by op, so that its own lines are known
      return PyObject_Vectorcall(self->function, args, nargsf, names);
    if (PyObject* result = run_known(self, call); result || PyErr_Occurred()) return result;
    return trace_and_run(self, args, n, names, call.device());
  } catch (const NotFinite&) {
    return call_checked(self, args, nargsf, names);
  } catch (const OtherSizes&) {
    return compiled_call(object, args, nargsf, names);
  } catch (const Captured&) {
    return call_captured(self, args, n, names);
  } catch (...) {
    return raise_python();
  }
}

PyObject* compiled_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *function, *trace, *slow, *lifted;
  if (!PyArg_ParseTuple(args, "OOOO", &function, &trace, &slow, &lifted)) return nullptr;
  // Made first, because the collector may visit the object as soon as it exists.
  auto cache = std::make_unique<Cache>();
  auto operands = std::make_unique<std::vector<bool>>();
  auto* self = reinterpret_cast<Compiled*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->cache = cache.release();
  self->operands = operands.release();
  self->precision = -1;
  self->call = compiled_call;
  self->function = Py_NewRef(function);
  self->trace = Py_NewRef(trace);
  self->slow = Py_NewRef(slow);
  self->lifted = Py_NewRef(lifted);
  return reinterpret_cast<PyObject*>(self);
}

int compiled_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<Compiled*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->function);
  Py_VISIT(self->trace);
  Py_VISIT(self->slow);
  Py_VISIT(self->lifted);
  Py_VISIT(self->dict);
  int stop = 0;
  self->cache->for_each([&](TracedCall& e) {
    e.for_each_object([&](PyObject* o) {
      if (o && !stop) stop = visit(o, arg);
    });
  });
  return stop;
}

int compiled_clear(PyObject* object) {
  auto* self = reinterpret_cast<Compiled*>(object);
  const Cache gone = self->cache->take_all();
  Py_CLEAR(self->function);
  Py_CLEAR(self->trace);
  Py_CLEAR(self->slow);
  Py_CLEAR(self->lifted);
  Py_CLEAR(self->dict);
  return 0;
}

void compiled_dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (reinterpret_cast<Compiled*>(object)->weak) PyObject_ClearWeakRefs(object);
  compiled_clear(object);
  delete reinterpret_cast<Compiled*>(object)->cache;
  delete reinterpret_cast<Compiled*>(object)->operands;
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* entries(PyObject* object, void*) {
  nb::list out;
  reinterpret_cast<Compiled*>(object)->cache->for_each([&](TracedCall& e) { out.append(e.python); });
  return out.release().ptr();
}

PyObject* operands_of(PyObject* object, void*) {
  const std::vector<bool>& operands = *reinterpret_cast<Compiled*>(object)->operands;
  nb::list out;
  for (size_t k = 0; k < operands.size(); ++k)
    if (operands[k]) out.append(k);
  return out.release().ptr();
}

int set_operands(PyObject* object, PyObject* positions, void*) {
  constexpr size_t kMostArguments = 1 << 20;
  try {
    if (!positions) throw nb::type_error("operands cannot be deleted");
    std::vector<bool> operands;
    for (nb::handle h : nb::cast<nb::list>(nb::handle(positions))) {
      const size_t k = nb::cast<size_t>(h);
      if (k >= kMostArguments) throw nb::value_error("no function has that many arguments");
      if (k >= operands.size()) operands.resize(k + 1);
      operands[k] = true;
    }
    *reinterpret_cast<Compiled*>(object)->operands = std::move(operands);
    return 0;
  } catch (nb::builtin_exception& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
  } catch (...) {
    raise_python();
  }
  return -1;
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Compiled, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Compiled, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Compiled, weak), READONLY, nullptr},
    {"function", T_OBJECT_EX, offsetof(Compiled, function), READONLY, nullptr},
    {"precision", T_INT, offsetof(Compiled, precision), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {"traces", entries, nullptr, "What was traced so far, one per signature.", nullptr},
    {"operands", operands_of, set_operands, "The positions at which a number is an operand.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(compiled_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(compiled_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(compiled_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(compiled_clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind_method)},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, nullptr},
};
PyType_Spec spec = {"wengert._core.Compiled", sizeof(Compiled), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                        Py_TPFLAGS_METHOD_DESCRIPTOR,
                    slots};

}  // namespace

void init_compiled(nb::module_& m) {
  init_traced_call(m);
  compiled_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!compiled_type || PyModule_AddObjectRef(m.ptr(), "Compiled", reinterpret_cast<PyObject*>(compiled_type)))
    throw nb::python_error();
  m.def("settings_changed", [] { ++settings_epoch; });
  m.def("set_numpy_types", [](nb::type_object float64, nb::type_object float32, nb::type_object int64) {
    set_numpy_types(float64.release().ptr(), float32.release().ptr(), int64.release().ptr());
  });
}

}  // namespace wengert
