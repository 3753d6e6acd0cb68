// Compiled functions: a cache hit is one native call. The signature is made of what the trace may depend on: structure
// and static values of the arguments, and of tensors the dtype, the rank and which sizes are 1.
#include "program.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <structmember.h>

#include <deque>

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

struct Compiled {
  PyObject_HEAD;
  vectorcallfunc call;
  PyObject* function;  // traced, and called directly on tensors that are not plain
  PyObject* trace;     // trace(compiled, args, kwargs): (plain, guards, captured, unflatten, python)
  PyObject* slow;      // slow(compiled, args, kwargs): for arguments with structure
  std::unordered_map<std::string, std::deque<Entry>>* cache;  // entries stay where they are while others are added
  PyObject* dict;
  PyObject* weak;
};

PyTypeObject* compiled_type = nullptr;

enum class Kind { fast, structured, not_plain };

template <class T>
void put(std::string& key, char tag, T x) {
  key.push_back(tag);
  key.append(reinterpret_cast<const char*>(&x), sizeof x);
}

void put_tensor(std::string& key, const Value* v) {
  put(key, 'T', v->dtype);
  uint16_t ones = 0;
  for (int i = 0; i < v->ndim; ++i) ones |= static_cast<uint16_t>((v->shape[i] == 1) << i);
  put(key, static_cast<char>(v->ndim), ones);
}

// Appends a static argument to the key; false if it is not of a kind that can be.
bool put_static(std::string& key, PyObject* o) {
  if (o == Py_None) return key.push_back('N'), true;
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

struct Call {
  std::string key;
  std::vector<Value*> in;
  Kind kind = Kind::fast;

  void argument(PyObject* o) {
    if (is_tensor(o)) {
      if (!as_tensor(o)->plain) {
        kind = Kind::not_plain;
        return;
      }
      in.push_back(operand(as_tensor(o)));
      put_tensor(key, in.back());
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

Entry& trace_entry(Compiled* self, const std::string& key, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  nb::tuple traced = nb::steal<nb::tuple>(call_slowly(self->trace, self, args, n, names));
  Entry e;
  e.plain = nb::cast<std::shared_ptr<Program>>(nb::object(traced[0]));
  e.guards = nb::cast<GuardSet>(nb::object(traced[1]));
  e.captured = nb::cast<nb::list>(nb::object(traced[2]));
  e.unflatten = nb::object(traced[3]);
  e.python = nb::object(traced[4]);
  std::deque<Entry>& entries = (*self->cache)[key];
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
  for (nb::handle h : e.captured) call.in.push_back(operand(as_tensor(h.ptr())));
  uint64_t mask = 0;
  if (thread_state.grad_enabled)
    for (size_t i = 0; i < call.in.size(); ++i)
      if (call.in[i]->node && tracked(call.in[i])) mask |= uint64_t{1} << std::min<size_t>(i, 63);
  Held held(call.in.data(), static_cast<int>(call.in.size()));
  constexpr size_t kFew = 8;
  Value* few[kFew];
  std::vector<Value*> many;
  Value** out = few;
  if (e.plain->outputs.size() > kFew) out = (many.resize(e.plain->outputs.size()), many.data());
  if (mask) {
    const Derivative* d = derivative_for(e, mask);
    apply_derivative(*d, call.in.data(), static_cast<int>(call.in.size()), nullptr, out);
  } else {
    int64_t few_sizes[32];
    std::vector<int64_t> many_sizes;
    int64_t* sizes = few_sizes;
    if (e.plain->sizes.leaves.size() > 32) sizes = (many_sizes.resize(e.plain->sizes.leaves.size()), many_sizes.data());
    gather_sizes(e.plain->sizes.leaves, call.in.data(), nullptr, sizes);
    run(*e.plain, call.in.data(), sizes, out);
  }
  if (e.unflatten.is_none()) return wrap(out[0]);
  nb::list results;
  for (size_t i = 0; i < e.plain->outputs.size(); ++i) results.append(to_python(out[i]));
  return e.unflatten(results).release().ptr();
}

PyObject* compiled_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
  auto* self = reinterpret_cast<Compiled*>(object);
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  try {
    Call call;
    call.key.reserve(96);
    for (Py_ssize_t i = 0; i < n; ++i) call.argument(args[i]);
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i) {
      put_static(call.key, PyTuple_GET_ITEM(names, i));
      call.argument(args[n + i]);
    }
    if (call.kind == Kind::not_plain) return PyObject_Vectorcall(self->function, args, nargsf, names);
    if (call.kind == Kind::structured) return call_slowly(self->slow, self, args, n, names);
    auto it = self->cache->find(call.key);
    if (it != self->cache->end())
      for (Entry& e : it->second)
        if (e.guards.hold(call.in.data(), nullptr)) return run_entry(e, call);
    return run_entry(trace_entry(self, call.key, args, n, names), call);
  } catch (...) {
    return raise_python();
  }
}

PyObject* compiled_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *function, *trace, *slow;
  if (!PyArg_ParseTuple(args, "OOO", &function, &trace, &slow)) return nullptr;
  auto* self = reinterpret_cast<Compiled*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->call = compiled_call;
  self->function = Py_NewRef(function);
  self->trace = Py_NewRef(trace);
  self->slow = Py_NewRef(slow);
  self->cache = new std::unordered_map<std::string, std::deque<Entry>>;
  return reinterpret_cast<PyObject*>(self);
}

void compiled_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<Compiled*>(object);
  PyTypeObject* type = Py_TYPE(object);
  if (self->weak) PyObject_ClearWeakRefs(object);
  delete self->cache;
  Py_XDECREF(self->function);
  Py_XDECREF(self->trace);
  Py_XDECREF(self->slow);
  Py_XDECREF(self->dict);
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
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind_method)},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, nullptr},
};
PyType_Spec spec = {
    "wengert._core.Compiled", sizeof(Compiled), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, slots};

}  // namespace

void init_compiled(nb::module_& m) {
  compiled_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!compiled_type || PyModule_AddObjectRef(m.ptr(), "Compiled", reinterpret_cast<PyObject*>(compiled_type)))
    throw nb::python_error();
}

}  // namespace wengert
