// Compiled functions: a cache hit is one native call. The signature is made of what the trace may depend on: structure
// and static values of the arguments, and of tensors the dtype, the rank and which sizes are 1.
#include "program.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <structmember.h>

#include <algorithm>
#include <deque>

#include "../small_array.h"

namespace wengert {

namespace {

// A tensor that the function changes in place: which input it is, and which output is its new value.
struct Write {
  uint32_t input, output;
  bool recorded;  // not under no_grad
  bool used;      // results depend on it after it was changed under no_grad
  std::string op;
};

// What a program takes and gives besides arguments, captured tensors and results.
struct Effects {
  SizeList draws;                 // how far each stream of random numbers moves on
  nb::object begin;               // begin(how far): tensors that follow the arguments
  nb::object commit;              // commit(the last outputs): after a call that succeeded; or None
  std::vector<Write> writes;      // in place, after the run
  std::vector<uint64_t> sources;  // of each output: the inputs that it can be differentiated by
  size_t n_results = 0;           // outputs that the caller sees; those of `writes` and for `commit` follow
};

struct Entry {
  GuardSet guards;
  std::shared_ptr<Program> plain;
  std::vector<std::pair<uint64_t, const Derivative*>> derivatives;  // by which inputs need gradients
  nb::object python;                                                // the trace: derives on demand
  nb::list captured;                                                // tensors from outside, passed after the arguments
  nb::object unflatten;                                             // None: one tensor
  std::unique_ptr<Effects> effects;                                 // null: there are none
  nb::object settings;         // settings(): whether what the trace read of Python objects is still so; or None
  uint64_t settings_seen = 0;  // the epoch in which it last was
};

// Counts changes of what traces may have read of Python objects, such as whether a module is training.
uint64_t settings_epoch = 1;

using Cache = std::unordered_map<std::string, std::deque<Entry>>;  // entries stay where they are as others are added

struct Compiled {
  PyObject_HEAD;
  vectorcallfunc call;
  PyObject* function;  // what is traced
  // trace(compiled, args, kwargs): (plain, guards, captured, unflatten, python, effects, settings); or None if the
  // function closes over a tensor that is not plain, so that there is no program of its own: `lifted` runs it
  PyObject* trace;
  PyObject* slow;    // slow(compiled, args, kwargs): for arguments with structure
  PyObject* lifted;  // lifted(compiled, args, kwargs): for tensors that are not plain
  Cache* cache;
  Cache::value_type* latest;  // where the last call found its entry: nearly always the next one, too
  PyObject* dict;
  PyObject* weak;
};

PyTypeObject* compiled_type = nullptr;

enum class Kind { fast, structured, not_plain };

// The signature of a call, as bytes: on the stack while they are few.
class Key {
  char few_[224];
  size_t n_ = 0;
  std::string many_;

 public:
  void append(const void* bytes, size_t n) {
    if (many_.empty() && n_ + n <= sizeof few_) [[likely]] {
      std::memcpy(few_ + n_, bytes, n);
      n_ += n;
      return;
    }
    if (many_.empty()) many_.assign(few_, n_);
    many_.append(static_cast<const char*>(bytes), n);
  }
  std::string_view bytes() const { return many_.empty() ? std::string_view(few_, n_) : std::string_view(many_); }
};

void put(Key& key, char tag) { key.append(&tag, 1); }

template <class T>
void put(Key& key, char tag, T x) {
  char bytes[1 + sizeof x];
  bytes[0] = tag;
  std::memcpy(bytes + 1, &x, sizeof x);
  key.append(bytes, sizeof bytes);
}

void put_tensor(Key& key, const Value* v) {
  put(key, 'T', v->dtype);
  uint16_t ones = 0;
  for (int i = 0; i < v->ndim; ++i) ones |= static_cast<uint16_t>((v->shape[i] == 1) << i);
  put(key, static_cast<char>(v->ndim), ones);
}

// Appends a static argument to the key; false if it is not of a kind that can be.
bool put_static(Key& key, PyObject* o) {
  if (o == Py_None) return put(key, 'N'), true;
  if (PyBool_Check(o)) return put(key, 'B', o == Py_True), true;
  if (PyLong_CheckExact(o)) {
    int overflow;
    long long i = PyLong_AsLongLongAndOverflow(o, &overflow);
    return overflow ? false : (put(key, 'I', i), true);
  }
  if (PyFloat_CheckExact(o)) return put(key, 'F', PyFloat_AS_DOUBLE(o)), true;
  if (PyUnicode_CheckExact(o)) {
    Py_ssize_t n;
    const char* text = PyUnicode_AsUTF8AndSize(o, &n);
    if (!text) return PyErr_Clear(), false;
    put(key, 'S', n);
    key.append(text, static_cast<size_t>(n));
    return true;
  }
  if (PyTuple_CheckExact(o)) {
    put(key, '(', PyTuple_GET_SIZE(o));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
      if (!put_static(key, PyTuple_GET_ITEM(o, i))) return false;
    return true;
  }
  for (PyObject* d : python_hooks.dtypes)
    if (d == o) return put(key, 'D', d), true;
  return false;
}

constexpr size_t kFewOperands = 16;

struct Call {
  Key key;
  SmallArray<Value*, kFewOperands> in;
  size_t n_in = 0;
  Kind kind = Kind::fast;

  explicit Call(Py_ssize_t arguments) : in(static_cast<size_t>(arguments)) {}

  void argument(PyObject* o) {
    if (is_tensor(o)) {
      if (!as_tensor(o)->plain) {
        kind = Kind::not_plain;
        return;
      }
      Value* v = operand(as_tensor(o));
      in[n_in++] = v;
      put_tensor(key, v);
    } else if (!put_static(key, o) && kind == Kind::fast) {
      kind = Kind::structured;
    }
  }
};

PyObject* call_slowly(PyObject* hook, Compiled* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  nb::list positional;
  nb::dict named;
  for (Py_ssize_t i = 0; i < n; ++i) positional.append(nb::handle(args[i]));
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i)
    named[nb::handle(PyTuple_GET_ITEM(names, i))] = nb::handle(args[n + i]);
  return nb::handle(hook)(nb::handle(reinterpret_cast<PyObject*>(self)), nb::tuple(positional), named).release().ptr();
}

// (draws, begin, commit, [(input, output, recorded, used, op)], sources, number of results)
std::unique_ptr<Effects> read_effects(const nb::tuple& t) {
  auto e = std::make_unique<Effects>();
  e->draws = nb::cast<SizeList>(nb::object(t[0]));
  e->begin = nb::object(t[1]);
  e->commit = nb::object(t[2]);
  for (nb::handle h : nb::cast<nb::list>(nb::object(t[3]))) {
    nb::tuple w = nb::cast<nb::tuple>(h);
    e->writes.push_back({nb::cast<uint32_t>(nb::object(w[0])), nb::cast<uint32_t>(nb::object(w[1])),
                         nb::cast<bool>(nb::object(w[2])), nb::cast<bool>(nb::object(w[3])),
                         nb::cast<std::string>(nb::object(w[4]))});
  }
  for (nb::handle h : nb::cast<nb::list>(nb::object(t[4]))) e->sources.push_back(nb::cast<uint64_t>(h));
  e->n_results = nb::cast<size_t>(nb::object(t[5]));
  return e;
}

// The executor trusts an entry: what Python made of the trace is looked at once, here.
void check_entry(const Entry& e, Call& call) {
  auto require = [](bool holds, const char* what) {
    if (!holds) fail(ErrorKind::value, "compile", what);
  };
  const std::vector<int32_t>& outputs = e.plain->outputs;
  require(std::count(outputs.begin(), outputs.end(), -1) == 0, "the program lacks an output");
  require(!e.unflatten.is_none() || !outputs.empty(), "the program has no output");
  for (nb::handle h : e.captured)
    require(is_tensor(h.ptr()) && as_tensor(h.ptr())->plain, "a tensor that is not plain was captured");
  check_leaves(e.guards.sizes.leaves, call.in.data(), call.n_in);
  if (!e.effects) return check_count(*e.plain, call.n_in + e.captured.size());
  const Effects& effects = *e.effects;
  require(effects.n_results + effects.writes.size() <= outputs.size() && effects.sources.size() <= outputs.size(),
          "the program has fewer outputs than effects");
  check_leaves(effects.draws.program.leaves, call.in.data(), call.n_in);
  for (const Write& w : effects.writes)
    require(w.input < static_cast<size_t>(e.plain->n_inputs) && w.output < outputs.size(),
            "a tensor that is changed in place does not exist");
}

// Null if the function has no program of its own.
Entry* trace_entry(Compiled* self, Call& call, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  nb::object made = nb::steal(call_slowly(self->trace, self, args, n, names));
  if (made.is_none()) return nullptr;
  nb::tuple traced = nb::cast<nb::tuple>(made);
  Entry e;
  e.plain = nb::cast<std::shared_ptr<Program>>(nb::object(traced[0]));
  e.guards = nb::cast<GuardSet>(nb::object(traced[1]));
  e.captured = nb::cast<nb::list>(nb::object(traced[2]));
  e.unflatten = nb::object(traced[3]);
  e.python = nb::object(traced[4]);
  if (nb::object effects(traced[5]); !effects.is_none()) e.effects = read_effects(nb::cast<nb::tuple>(effects));
  e.settings = nb::object(traced[6]);
  e.settings_seen = settings_epoch;
  check_entry(e, call);
  std::deque<Entry>& entries = (*self->cache)[std::string(call.key.bytes())];
  entries.push_back(std::move(e));
  return &entries.back();
}

bool of_attribute(const SizeLeaf& l) { return l.kind == SizeLeaf::attribute; }

const Derivative* derivative_for(Entry& e, uint64_t mask) {
  for (auto& [known, d] : e.derivatives)
    if (known == mask) return d;
  nb::tuple derived = nb::cast<nb::tuple>(e.python.attr("derive")(mask));
  const Derivative* d = nb::cast<const Derivative*>(nb::object(derived[0]));
  if (!d || !d->forward || d->n_outputs != static_cast<int>(e.plain->outputs.size()) ||
      d->forward->n_inputs != e.plain->n_inputs || std::any_of(d->sizes.begin(), d->sizes.end(), of_attribute) ||
      std::any_of(d->forward->sizes.leaves.begin(), d->forward->sizes.leaves.end(), of_attribute))
    fail(ErrorKind::value, "compile", "the derivative is that of another program");
  e.guards = nb::cast<GuardSet>(nb::object(derived[1]));  // deriving may have looked at sizes, too
  e.derivatives.emplace_back(mask, d);
  return d;
}

uint64_t tracked_mask(Value* const* in, size_t n) {
  uint64_t mask = 0;
  if (thread_state.grad_enabled)
    for (size_t i = 0; i < n; ++i)
      if (tracked(in[i])) mask |= uint64_t{1} << std::min<size_t>(i, kLastBit);
  return mask;
}

void run_program(Entry& e, Value** in, size_t n, uint64_t mask, Value** out) {
  Held held(in, static_cast<int>(n));
  if (mask) {
    apply_derivative(*derivative_for(e, mask), in, static_cast<int>(n), nullptr, out);
  } else {
    SmallArray<int64_t, 32> sizes(e.plain->sizes.leaves.size());
    gather_sizes(e.plain->sizes.leaves, in, nullptr, sizes.data());
    run(*e.plain, in, sizes.data(), out);
  }
}

PyObject* results_of(const Entry& e, Value** out, size_t n) {
  if (e.unflatten.is_none()) return wrap(out[0]);
  nb::list results;
  for (size_t i = 0; i < n; ++i) results.append(to_python(out[i]));
  return e.unflatten(results).release().ptr();
}

// Tensors that are written to, in the order of `writes`. Refuses what cannot be written before anything runs.
void find_targets(const Entry& e, const Call& call, PyObject* const* args, Py_ssize_t n_args, Value* const* in,
                  size_t n, TensorObject** targets) {
  const size_t n_hidden = n - call.n_in - e.captured.size();
  for (size_t k = 0; k < e.effects->writes.size(); ++k) {
    const Write& w = e.effects->writes[k];
    if (w.input < call.n_in) {
      uint32_t seen = 0;
      for (Py_ssize_t i = 0; i < n_args; ++i)
        if (is_tensor(args[i]) && seen++ == w.input) targets[k] = as_tensor(args[i]);
    } else if (w.input < call.n_in + n_hidden) {
      fail(ErrorKind::value, "compile", "a hidden operand is not changed in place");
    } else {
      targets[k] = as_tensor(PyList_GET_ITEM(e.captured.ptr(), w.input - call.n_in - n_hidden));
    }
    for (size_t i = 0; i < n; ++i)
      if (i != w.input && (in[i]->buffer == in[w.input]->buffer || share_memory(in[i], in[w.input])))
        throw Error(ErrorKind::trace,
                    w.op + ": the compiled function changes a tensor, " + to_string(in[w.input]->type()) +
                        ", that shares memory with another that it reads, " + to_string(in[i]->type()) +
                        "; make views of it inside the function, or clone() one of the two");
    require_assignable(targets[k]->tensor, w.recorded, w.op.c_str());
  }
}

// A leaf that was changed under no_grad is still that leaf; but the program has an edge to what it was before only.
void refuse_changed_leaves(const Effects& effects, Value* const* in) {
  for (const Write& w : effects.writes)
    if (w.used && tracked(in[w.input]) && in[w.input]->node->leaf)
      throw Error(ErrorKind::gradient,
                  w.op + ": the compiled function changes a leaf that requires a gradient, " +
                      to_string(in[w.input]->type()) +
                      ", under no_grad() and uses it afterwards, so that the derivative of its results by that leaf is "
                      "not known; return values that do not depend on it, or call the function under no_grad()");
}

// An output that no tracked input leads to is no part of the graph.
void drop_unrelated_edges(const Effects& effects, uint64_t mask, Value** out) {
  for (size_t i = 0; i < effects.sources.size(); ++i)
    if (out[i]->node && !(effects.sources[i] & mask)) {
      release(out[i]->node);
      out[i]->node = nullptr;
    }
}

nb::list begin(const Effects& effects, Value* const* in) {
  nb::list amounts;
  for (int64_t n : effects.draws.evaluate(in)) amounts.append(n);
  return nb::cast<nb::list>(effects.begin(amounts));
}

PyObject* run_with_effects(Entry& e, Call& call, PyObject* const* args, Py_ssize_t n_args) {
  const Effects& effects = *e.effects;
  const nb::list hidden = begin(effects, call.in.data());
  const size_t n = call.n_in + hidden.size() + e.captured.size(), n_out = e.plain->outputs.size();
  SmallArray<Value*, kFewOperands> in(n);
  Value** next = std::copy_n(call.in.data(), call.n_in, in.data());
  for (nb::handle h : hidden) *next++ = value_from(h, "compile");
  for (nb::handle h : e.captured) *next++ = operand(as_tensor(h.ptr()));
  check_count(*e.plain, n);
  SmallArray<TensorObject*, kFewOperands> targets(effects.writes.size());
  find_targets(e, call, args, n_args, in.data(), n, targets.data());
  uint64_t mask = tracked_mask(in.data(), n), active = 0;
  for (uint64_t s : effects.sources) active |= s;
  mask &= active;
  if (thread_state.grad_enabled) refuse_changed_leaves(effects, in.data());
  if (mask && n_out > UINT8_MAX)  // as Node::n_outputs
    throw Error(ErrorKind::gradient,
                "a compiled function that changes more than " + std::to_string(UINT8_MAX - effects.n_results) +
                    " tensors cannot be recorded; call it under no_grad(), or detach() what it returns");
  SmallArray<Value*, kFewOperands> out(n_out);
  run_program(e, in.data(), n, mask, out.data());
  drop_unrelated_edges(effects, mask, out.data());
  for (size_t k = 0; k < effects.writes.size(); ++k)
    assign(targets[k]->tensor, out[effects.writes[k].output], effects.writes[k].op.c_str());
  if (!effects.commit.is_none()) {
    nb::list last;
    for (size_t i = effects.n_results + effects.writes.size(); i < n_out; ++i) last.append(to_python(out[i]));
    effects.commit(last);
  }
  return results_of(e, out.data(), effects.n_results);
}

PyObject* run_entry(Entry& e, Call& call) {
  const size_t n_captured = e.captured.size(), n = call.n_in + n_captured;
  SmallArray<Value*, kFewOperands> with_captured(n_captured ? n : 0);
  Value** in = call.in.data();
  if (n_captured) {
    in = std::copy_n(call.in.data(), call.n_in, with_captured.data());
    for (nb::handle h : e.captured) *in++ = operand(as_tensor(h.ptr()));
    in = with_captured.data();
  }
  SmallArray<Value*, 8> out(e.plain->outputs.size());
  run_program(e, in, n, tracked_mask(in, n), out.data());
  return results_of(e, out.data(), e.plain->outputs.size());
}

// Of tensors that an open trace takes in as operands; called where an exception is being handled, from which none may
// leave.
PyObject* call_captured(Compiled* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  try {
    return call_slowly(self->lifted, self, args, n, names);
  } catch (...) {
    return raise_python();
  }
}

bool settings_hold(Entry& e) {
  if (e.settings_seen == settings_epoch || e.settings.is_none()) [[likely]]
    return true;
  const uint64_t now = settings_epoch;
  if (!nb::cast<bool>(e.settings())) return false;
  e.settings_seen = now;
  return true;
}

PyObject* compiled_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
  auto* self = reinterpret_cast<Compiled*>(object);
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (!self->function) {
    PyErr_SetString(PyExc_RuntimeError, "a compiled function was called after it was garbage collected");
    return nullptr;
  }
  try {
    const Py_ssize_t n_named = names ? PyTuple_GET_SIZE(names) : 0;
    Call call(n + n_named);
    for (Py_ssize_t i = 0; i < n; ++i) call.argument(args[i]);
    for (Py_ssize_t i = 0; i < n_named; ++i) {
      put_static(call.key, PyTuple_GET_ITEM(names, i));
      call.argument(args[n + i]);
    }
    if (call.n_in == 0 && thread_state.capturing) throw Captured();
    if (call.kind == Kind::not_plain) return call_slowly(self->lifted, self, args, n, names);
    if (call.kind == Kind::structured) return call_slowly(self->slow, self, args, n, names);
    if (!self->latest || self->latest->first != call.key.bytes()) {
      auto it = self->cache->find(std::string(call.key.bytes()));
      self->latest = it == self->cache->end() ? nullptr : &*it;
    }
    if (self->latest)
      for (Entry& e : self->latest->second)
        if (e.guards.hold(call.in.data(), nullptr) && settings_hold(e))
          return e.effects ? run_with_effects(e, call, args, n + n_named) : run_entry(e, call);
    Entry* e = trace_entry(self, call, args, n, names);
    if (!e) return call_slowly(self->lifted, self, args, n, names);
    return e->effects ? run_with_effects(*e, call, args, n + n_named) : run_entry(*e, call);
  } catch (const Captured&) {
    return call_captured(self, args, n, names);
  } catch (...) {
    return raise_python();
  }
}

PyObject* compiled_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *function, *trace, *slow, *lifted;
  if (!PyArg_ParseTuple(args, "OOOO", &function, &trace, &slow, &lifted)) return nullptr;
  auto cache = std::make_unique<Cache>();  // first: the collector may look at the object as soon as it exists
  auto* self = reinterpret_cast<Compiled*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->cache = cache.release();
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
  for (auto& [key, list] : *self->cache)
    for (Entry& e : list) {
      Py_VISIT(e.python.ptr());
      Py_VISIT(e.captured.ptr());
      Py_VISIT(e.unflatten.ptr());
      Py_VISIT(e.settings.ptr());
      if (e.effects) {
        Py_VISIT(e.effects->begin.ptr());
        Py_VISIT(e.effects->commit.ptr());
      }
    }
  return 0;
}

int compiled_clear(PyObject* object) {
  auto* self = reinterpret_cast<Compiled*>(object);
  self->latest = nullptr;
  Cache gone;
  gone.swap(*self->cache);
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
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* bind_method(PyObject* self, PyObject* instance, PyObject*) {
  if (!instance || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

PyObject* entries(PyObject* object, void*) {
  nb::list out;
  for (auto& [key, list] : *reinterpret_cast<Compiled*>(object)->cache)
    for (Entry& e : list) out.append(e.python);
  return out.release().ptr();
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Compiled, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Compiled, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Compiled, weak), READONLY, nullptr},
    {"function", T_OBJECT_EX, offsetof(Compiled, function), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {"traces", entries, nullptr, "What was traced so far, one per signature.", nullptr},
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
  compiled_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!compiled_type || PyModule_AddObjectRef(m.ptr(), "Compiled", reinterpret_cast<PyObject*>(compiled_type)))
    throw nb::python_error();
  m.def("settings_changed", [] { ++settings_epoch; });
}

}  // namespace wengert
