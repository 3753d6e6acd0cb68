// Compiled functions: a cache hit is one native call. The signature is made of what the trace may depend on: structure
// and static values of the arguments, and of tensors the dtype, the rank and which sizes are 1.
#include "program.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <structmember.h>

#include <deque>

#include "../small_array.h"

namespace wengert {

namespace {

struct Entry {
  GuardSet guards;
  std::shared_ptr<Program> plain;
  std::vector<std::pair<uint64_t, const Derivative*>> derivatives;  // by which inputs need gradients
  nb::object python;                                                // the trace: derives on demand
  nb::list captured;                                                // tensors from outside, passed after the arguments
  nb::object unflatten;                                             // None: one tensor
};

using Cache = std::unordered_map<std::string, std::deque<Entry>>;  // entries stay where they are as others are added

struct Compiled {
  PyObject_HEAD;
  vectorcallfunc call;
  PyObject* function;  // what is traced
  PyObject* trace;     // trace(compiled, args, kwargs): (plain, guards, captured, unflatten, python)
  PyObject* slow;      // slow(compiled, args, kwargs): for arguments with structure
  PyObject* lifted;    // lifted(compiled, args, kwargs): for tensors that are not plain
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

Entry& trace_entry(Compiled* self, std::string_view key, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  nb::tuple traced = nb::steal<nb::tuple>(call_slowly(self->trace, self, args, n, names));
  Entry e;
  e.plain = nb::cast<std::shared_ptr<Program>>(nb::object(traced[0]));
  e.guards = nb::cast<GuardSet>(nb::object(traced[1]));
  e.captured = nb::cast<nb::list>(nb::object(traced[2]));
  e.unflatten = nb::object(traced[3]);
  e.python = nb::object(traced[4]);
  std::deque<Entry>& entries = (*self->cache)[std::string(key)];
  entries.push_back(std::move(e));
  return entries.back();
}

const Derivative* derivative_for(Entry& e, uint64_t mask) {
  for (auto& [known, d] : e.derivatives)
    if (known == mask) return d;
  nb::tuple derived = nb::cast<nb::tuple>(e.python.attr("derive")(mask));
  const Derivative* d = nb::cast<const Derivative*>(nb::object(derived[0]));
  e.guards = nb::cast<GuardSet>(nb::object(derived[1]));  // deriving may have looked at sizes, too
  e.derivatives.emplace_back(mask, d);
  return d;
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
  uint64_t mask = 0;
  if (thread_state.grad_enabled)
    for (size_t i = 0; i < n; ++i)
      if (tracked(in[i])) mask |= uint64_t{1} << std::min<size_t>(i, kLastBit);
  Held held(in, static_cast<int>(n));
  SmallArray<Value*, 8> out(e.plain->outputs.size());
  if (mask) {
    apply_derivative(*derivative_for(e, mask), in, static_cast<int>(n), nullptr, out.data());
  } else {
    SmallArray<int64_t, 32> sizes(e.plain->sizes.leaves.size());
    gather_sizes(e.plain->sizes.leaves, in, nullptr, sizes.data());
    run(*e.plain, in, sizes.data(), out.data());
  }
  if (e.unflatten.is_none()) return wrap(out[0]);
  nb::list results;
  for (size_t i = 0; i < e.plain->outputs.size(); ++i) results.append(to_python(out[i]));
  return e.unflatten(results).release().ptr();
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
    if (call.kind == Kind::not_plain) return call_slowly(self->lifted, self, args, n, names);
    if (call.kind == Kind::structured) return call_slowly(self->slow, self, args, n, names);
    if (!self->latest || self->latest->first != call.key.bytes()) {
      auto it = self->cache->find(std::string(call.key.bytes()));
      self->latest = it == self->cache->end() ? nullptr : &*it;
    }
    if (self->latest)
      for (Entry& e : self->latest->second)
        if (e.guards.hold(call.in.data(), nullptr)) return run_entry(e, call);
    return run_entry(trace_entry(self, call.key.bytes(), args, n, names), call);
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
}

}  // namespace wengert
