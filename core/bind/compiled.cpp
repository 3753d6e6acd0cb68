// Compiled functions: a cache hit is one native call. The signature is made of what the trace may depend on: structure
// and static values of the arguments, and of tensors the dtype, the rank and which sizes are 1. A number whose value
// has changed is an operand without axes instead, unless the function needs to know it.
#include "program.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <structmember.h>

#include <algorithm>
#include <list>
#include <optional>

#include "../finite.h"
#include "../small_array.h"
#include "autocast.h"

namespace wengert {

namespace {

// A tensor that the function changes in place: which input it is, and which output is its new value.
struct Write {
  uint32_t input, output;
  bool recorded;  // not under no_grad
  std::string op;
  bool in_place = false;  // whether the program may write the new value over the old
};

// The `.grad` of a leaf that the function reads or changes.
struct LeafGrad {
  enum Before : uint8_t { not_read, absent, present };
  enum After : uint8_t { untouched, forgotten, replaced, added };
  uint32_t leaf;  // which input it is
  Before before;
  DType dtype;         // of what is present
  uint32_t input = 0;  // which input that is
  After after;
  uint32_t output = 0;  // that is the new one, or is added
};

// What a program takes and gives besides arguments, captured tensors and results.
struct Effects {
  SizeList draws;     // how far each stream of random numbers moves on
  nb::object begin;   // begin(how far): tensors that follow the arguments; None where the function is to be traced anew
  nb::object commit;  // commit(): after a call that succeeded; or None
  std::vector<Write> writes;      // in place, after the run
  std::vector<uint64_t> sources;  // of each output: the inputs that it can be differentiated by
  size_t n_results = 0;           // outputs that the caller sees; those of `writes` and `grads` follow
  std::vector<LeafGrad> grads;
};

// What the trace has asked about a number that is an operand.
struct NumberGuard {
  enum Comparison : uint8_t { less, less_equal, equal, greater_equal, greater };
  uint32_t input;
  Comparison comparison;
  double constant;
  bool outcome;

  bool holds(Value* const* in) const {
    const Value* v = in[input];
    const double x = v->dtype == DType::Float64   ? *reinterpret_cast<const double*>(v->data)
                     : v->dtype == DType::Float32 ? *reinterpret_cast<const float*>(v->data)
                                                  : static_cast<double>(*reinterpret_cast<const int64_t*>(v->data));
    switch (comparison) {
      case less: return (x < constant) == outcome;
      case less_equal: return (x <= constant) == outcome;
      case equal: return (x == constant) == outcome;
      case greater_equal: return (x >= constant) == outcome;
      default: return (x > constant) == outcome;
    }
  }
};

// What a tensor is to reverse mode: `backward` inside the function differentiates by the leaves.
enum class Role : char { constant, leaf, hooked_leaf, computed };

Role role_of(const Value* v) {
  if (!tracked(v)) return Role::constant;
  if (!v->node->leaf) return Role::computed;
  return v->node->hooks || v->node->final_hooks ? Role::hooked_leaf : Role::leaf;
}

struct Entry {
  GuardSet guards;
  std::vector<Type> captured_types;  // a tensor from outside may be given another dtype
  std::vector<Role> roles;           // of arguments and captured tensors, if the trace depends on them
  std::vector<NumberGuard> numbers;
  std::shared_ptr<Program> plain;
  std::vector<std::pair<uint64_t, DerivativeHandle>> derivatives;  // by which inputs need gradients
  nb::object python;                                               // the trace: derives on demand
  nb::list captured;                                               // tensors from outside, passed after the arguments
  nb::object unflatten;                                            // None: one tensor
  std::unique_ptr<Effects> effects;                                // null: there are none
  nb::object settings;         // settings(): whether what the trace read of Python objects is still so; or None
  uint64_t settings_seen = 0;  // the epoch in which it last was
  uint64_t used = 0;           // when it last was, counted in calls
  int running = 0;             // calls that are in it now
};

// What is not among the last so many traces of a function goes: static values may be different in every call.
constexpr size_t kMostEntries = 128;

// Counts changes of what traces may have read of Python objects, such as whether a module is training.
uint64_t settings_epoch = 1;

struct Cache {
  std::unordered_map<std::string, std::list<Entry>> by_key;  // entries stay where they are as others come and go
  std::vector<bool> operands;                                // of each argument: whether a number there is an operand
  size_t count = 0;
  uint64_t calls = 0;
};

struct Compiled {
  PyObject_HEAD;
  vectorcallfunc call;
  PyObject* function;  // what is traced
  // trace(compiled, args, kwargs): (plain, guards, captured, unflatten, python, effects, settings, guards of numbers);
  // or None if the function closes over a tensor that is not plain, so that there is no program of its own: `lifted`
  // runs it. It may change which numbers are operands.
  PyObject* trace;
  PyObject* slow;    // slow(compiled, args, kwargs): for arguments with structure
  PyObject* lifted;  // lifted(compiled, args, kwargs): for tensors that are not plain
  // Of a function of the library: what autocast does to its operands; nothing is cast inside. -1: of the user's, whose
  // ops are cast, so that every policy has traces of its own.
  int precision;
  Cache* cache;
  decltype(Cache::by_key)::value_type* latest;  // where the last call found its entry: nearly always the next one, too
  PyObject* dict;
  PyObject* weak;
};

PyTypeObject* compiled_type = nullptr;

enum class Kind { fast, structured, not_plain };

// The types of numbers that may be operands besides float and int: of NumPy.
PyObject *numpy_float64 = nullptr, *numpy_float32 = nullptr, *numpy_int64 = nullptr;

// Larger integers are static: what is computed of two smaller ones is exact.
constexpr int64_t kLargestInteger = int64_t{1} << 31;

enum class NumberKind : char { none = 0, real = 'f', integer = 'i', float64 = 'd', float32 = 's', int64 = 'l' };

NumberKind number_kind(PyObject* o) {
  if (PyFloat_CheckExact(o)) return NumberKind::real;
  if (PyLong_CheckExact(o)) return NumberKind::integer;
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(o));
  if (type == numpy_float64) return NumberKind::float64;
  if (type == numpy_float32) return NumberKind::float32;
  return type == numpy_int64 ? NumberKind::int64 : NumberKind::none;
}

bool is_integral(NumberKind kind) { return kind == NumberKind::integer || kind == NumberKind::int64; }

// The value of an integer, or false if it is too large to be looked at as one.
bool read_integer(PyObject* o, int64_t& value) {
  int overflow = 0;
  nb::object index = nb::steal(PyNumber_Index(o));
  if (!index) throw nb::python_error();
  value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  return overflow == 0;
}

double read_real(PyObject* o) {
  const double x = PyFloat_AsDouble(o);
  if (x == -1.0 && PyErr_Occurred()) throw nb::python_error();
  return x;
}

// A number as a value without axes; null if it is an integer too large for that.
Value* number_value(PyObject* o, NumberKind kind) {
  Value* v;
  if (is_integral(kind)) {
    int64_t i;
    if (!read_integer(o, i) || i > kLargestInteger || i < -kLargestInteger) return nullptr;
    v = scalar_int(DType::Int64, i);
  } else {
    v = scalar(kind == NumberKind::float32 ? DType::Float32 : DType::Float64, read_real(o));
  }
  v->made = Value::kLiteral;
  return v;
}

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
  put(key, 'T', static_cast<uint16_t>(static_cast<uint16_t>(v->dtype) << 8 | v->device));
  uint16_t ones = 0;
  for (int i = 0; i < v->ndim; ++i) ones |= static_cast<uint16_t>((v->shape[i] == 1) << i);
  put(key, static_cast<char>(v->ndim), ones);
}

// Appends a static argument to the key; false if it is not of a kind that can be.
bool put_static(Key& key, PyObject* o) {
  if (o == Py_None) return put(key, 'N'), true;
  if (PyBool_Check(o)) return put(key, 'B', o == Py_True), true;
  if (NumberKind kind = number_kind(o); kind != NumberKind::none) {
    put(key, '#');
    if (!is_integral(kind)) return put(key, static_cast<char>(kind), read_real(o)), true;
    int64_t i;
    return read_integer(o, i) ? (put(key, static_cast<char>(kind), i), true) : false;
  }
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

struct Arguments {
  Key key;
  SmallArray<Value*, kFewOperands> in;
  SmallArray<PyObject*, kFewOperands> given;  // the arguments that these are the values of
  size_t n_in = 0;
  Kind kind = Kind::fast;
  std::vector<Ref> numbers;  // owns those that are operands

  Arguments(const Cache& cache, PyObject* const* args, Py_ssize_t n, PyObject* names)
      : Arguments(n + (names ? PyTuple_GET_SIZE(names) : 0)) {
    for (Py_ssize_t i = 0; i < n; ++i) argument(cache, args[i], static_cast<size_t>(i));
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i) {
      put_static(key, PyTuple_GET_ITEM(names, i));
      argument(cache, args[n + i], static_cast<size_t>(n + i));
    }
  }

  // The first that is not the CPU.
  DeviceId device() {
    for (size_t i = 0; i < n_in; ++i)
      if (in[i]->device != kCpu) return in[i]->device;
    return kCpu;
  }

 private:
  explicit Arguments(Py_ssize_t arguments)
      : in(static_cast<size_t>(arguments)), given(static_cast<size_t>(arguments)) {}

  void argument(const Cache& cache, PyObject* o, size_t position) {
    if (is_tensor(o)) {
      if (!as_tensor(o)->plain) {
        kind = Kind::not_plain;
        return;
      }
      Value* v = operand(as_tensor(o));
      put_tensor(key, v);
      take(v, o);
    } else if (position < cache.operands.size() && cache.operands[position] && number(o)) {
      return;
    } else if (!put_static(key, o) && kind == Kind::fast) {
      kind = Kind::structured;
    }
  }

  bool number(PyObject* o) {
    const NumberKind kind = number_kind(o);
    Value* v = kind == NumberKind::none ? nullptr : number_value(o, kind);
    if (!v) return false;
    numbers.emplace_back(v);
    put(key, static_cast<char>(kind));
    take(v, o);
    return true;
  }

  void take(Value* v, PyObject* o) {
    given[n_in] = o;
    in[n_in++] = v;
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

// (draws, begin, commit, [(input, output, recorded, op)], sources, number of results,
//  [(leaf, before, dtype, input, after, output)])
std::unique_ptr<Effects> read_effects(const nb::tuple& t) {
  auto e = std::make_unique<Effects>();
  e->draws = nb::cast<SizeList>(nb::object(t[0]));
  e->begin = nb::object(t[1]);
  e->commit = nb::object(t[2]);
  for (nb::handle h : nb::cast<nb::list>(nb::object(t[3]))) {
    nb::tuple w = nb::cast<nb::tuple>(h);
    e->writes.push_back({nb::cast<uint32_t>(nb::object(w[0])), nb::cast<uint32_t>(nb::object(w[1])),
                         nb::cast<bool>(nb::object(w[2])), nb::cast<std::string>(nb::object(w[3]))});
  }
  for (nb::handle h : nb::cast<nb::list>(nb::object(t[4]))) e->sources.push_back(nb::cast<uint64_t>(h));
  e->n_results = nb::cast<size_t>(nb::object(t[5]));
  for (nb::handle h : nb::cast<nb::list>(nb::object(t[6]))) {
    nb::tuple g = nb::cast<nb::tuple>(h);
    e->grads.push_back(
        {nb::cast<uint32_t>(nb::object(g[0])), static_cast<LeafGrad::Before>(nb::cast<int>(nb::object(g[1]))),
         dtype_from(nb::cast<int>(nb::object(g[2]))), nb::cast<uint32_t>(nb::object(g[3])),
         static_cast<LeafGrad::After>(nb::cast<int>(nb::object(g[4]))), nb::cast<uint32_t>(nb::object(g[5]))});
  }
  return e;
}

// The executor trusts an entry: what Python made of the trace is looked at once, here.
void check_entry(const Entry& e, Arguments& call) {
  auto require = [](bool holds, const char* what) {
    if (!holds) fail(ErrorKind::value, "compile", what);
  };
  const std::vector<int32_t>& outputs = e.plain->outputs;
  require(std::count(outputs.begin(), outputs.end(), -1) == 0, "the program lacks an output");
  require(!e.unflatten.is_none() || !outputs.empty(), "the program has no output");
  for (nb::handle h : e.captured)
    require(is_tensor(h.ptr()) && as_tensor(h.ptr())->plain, "a tensor that is not plain was captured");
  check_leaves(e.guards.sizes.leaves, call.in.data(), call.n_in);
  for (const NumberGuard& g : e.numbers)
    require(g.input < call.n_in && number_kind(call.given[g.input]) != NumberKind::none, "a guard is on no number");
  if (!e.effects) return check_count(*e.plain, call.n_in + e.captured.size());
  const Effects& effects = *e.effects;
  require(effects.n_results + effects.writes.size() <= outputs.size() && effects.sources.size() <= outputs.size(),
          "the program has fewer outputs than effects");
  check_leaves(effects.draws.program.leaves, call.in.data(), call.n_in);
  for (const Write& w : effects.writes)
    require(w.input < static_cast<size_t>(e.plain->n_inputs) && w.output < outputs.size(),
            "a tensor that is changed in place does not exist");
  for (const LeafGrad& g : effects.grads)
    require(g.leaf < static_cast<size_t>(e.plain->n_inputs) && g.input < static_cast<size_t>(e.plain->n_inputs) &&
                (g.after < LeafGrad::replaced || g.output < outputs.size()),
            "a gradient that is read or changed does not exist");
}

// The tensor that an input of the program is; null for hidden ones and numbers.
TensorObject* input_tensor(const Entry& e, Arguments& call, size_t index) {
  const size_t n_hidden = e.plain->n_inputs - call.n_in - e.captured.size();
  PyObject* o = index < call.n_in              ? call.given[index]
                : index < call.n_in + n_hidden ? nullptr
                                               : PyList_GET_ITEM(e.captured.ptr(), index - call.n_in - n_hidden);
  return o && is_tensor(o) ? as_tensor(o) : nullptr;
}

// Whether a step can fail only for want of memory. After what others have written over, a call that fails would have
// changed something.
bool is_safe(const Step& s) {
  return s.group || s.gemm || (s.op && !s.owned && (s.op->view || std::string_view(s.op->name) == "sum"));
}

// Whether the step that makes the new value is the last to read the old one, and writes element by element.
bool can_be_in_place(const Program& p, const Write& w) {
  const int32_t slot = p.outputs[w.output], old = static_cast<int32_t>(w.input);
  if (std::count(p.outputs.begin(), p.outputs.end(), slot) > 1) return false;
  auto has = [](const std::vector<int32_t>& slots, int32_t x) {
    return std::find(slots.begin(), slots.end(), x) != slots.end();
  };
  size_t made = p.steps.size();
  for (size_t i = p.steps.size(); i-- > 0;) {
    const Step& s = p.steps[i];
    if (has(s.out, slot)) {
      made = i;
      break;
    }
    if (has(s.in, old) || !is_safe(s)) return false;
  }
  return made < p.steps.size() && p.steps[made].group;
}

std::vector<Role> roles_of(const Entry& e, Arguments& call) {
  std::vector<Role> roles;
  for (size_t i = 0; i < call.n_in; ++i) roles.push_back(role_of(call.in[i]));
  for (nb::handle h : e.captured) roles.push_back(role_of(current(as_tensor(h.ptr())->tensor)));
  return roles;
}

bool roles_hold(const Entry& e, Arguments& call) {
  const Role* expected = e.roles.data();
  if (e.roles.empty()) return true;
  for (size_t i = 0; i < call.n_in; ++i)
    if (role_of(call.in[i]) != *expected++) return false;
  for (nb::handle h : e.captured)
    if (role_of(current(as_tensor(h.ptr())->tensor)) != *expected++) return false;
  return true;
}

bool captured_types_hold(const Entry& e) {
  const Type* expected = e.captured_types.data();
  for (nb::handle h : e.captured) {
    const Value* v = current(as_tensor(h.ptr())->tensor);
    if (v->dtype != expected->dtype || v->device != expected->device || !(v->dims() == expected->shape)) return false;
    ++expected;
  }
  return true;
}

bool grads_hold(const Entry& e, Arguments& call) {
  if (!e.effects) return true;
  for (const LeafGrad& g : e.effects->grads) {
    if (g.before == LeafGrad::not_read) continue;
    const TensorObject* t = input_tensor(e, call, g.leaf);
    const Value* v = t ? current(const_cast<Tensor&>(t->tensor)) : nullptr;
    const bool present = v && v->node && v->node->grad;
    if (present != (g.before == LeafGrad::present) || (present && v->node->grad->base->dtype != g.dtype)) return false;
  }
  return true;
}

// Nothing if the function has no program of its own.
std::optional<Entry> trace_entry(Compiled* self, PyObject* const* args, Py_ssize_t n, PyObject* names,
                                 bool& asks_roles) {
  nb::object made = nb::steal(call_slowly(self->trace, self, args, n, names));
  if (made.is_none()) return std::nullopt;
  nb::tuple traced = nb::cast<nb::tuple>(made);
  Entry e;
  e.plain = nb::cast<std::shared_ptr<Program>>(nb::object(traced[0]));
  e.guards = nb::cast<GuardSet>(nb::object(traced[1]));
  e.captured = nb::cast<nb::list>(nb::object(traced[2]));
  e.unflatten = nb::object(traced[3]);
  e.python = nb::object(traced[4]);
  e.plain->name = nb::cast<std::string>(e.python.attr("name"));
  if (nb::object effects(traced[5]); !effects.is_none()) e.effects = read_effects(nb::cast<nb::tuple>(effects));
  e.settings = nb::object(traced[6]);
  for (nb::handle h : nb::cast<nb::list>(nb::object(traced[7]))) {
    nb::tuple t = nb::cast<nb::tuple>(h);
    e.numbers.push_back({nb::cast<uint32_t>(nb::object(t[0])),
                         static_cast<NumberGuard::Comparison>(nb::cast<int>(nb::object(t[1]))),
                         nb::cast<double>(nb::object(t[2])), nb::cast<bool>(nb::object(t[3]))});
  }
  asks_roles = nb::cast<bool>(nb::object(traced[8]));
  e.settings_seen = settings_epoch;
  return e;
}

// Forgets the entry that was not used for the longest time.
void drop_one(Compiled* self) {
  Cache& cache = *self->cache;
  auto bucket = cache.by_key.end();
  std::list<Entry>::iterator oldest;
  for (auto b = cache.by_key.begin(); b != cache.by_key.end(); ++b)
    for (auto e = b->second.begin(); e != b->second.end(); ++e)
      if (!e->running && (bucket == cache.by_key.end() || e->used < oldest->used)) {
        bucket = b;
        oldest = e;
      }
  if (bucket == cache.by_key.end()) return;
  std::list<Entry> gone;  // freed last: what it owns may call Python
  gone.splice(gone.end(), bucket->second, oldest);
  --cache.count;
  if (!bucket->second.empty()) return;
  if (self->latest == &*bucket) self->latest = nullptr;
  cache.by_key.erase(bucket);
}

std::list<Entry>& keep(Compiled* self, Arguments& call, Entry&& e, bool asks_roles) {
  check_entry(e, call);
  for (nb::handle h : e.captured) e.captured_types.push_back(current(as_tensor(h.ptr())->tensor)->type());
  if (asks_roles) e.roles = roles_of(e, call);
  if (e.effects)
    for (Write& w : e.effects->writes) w.in_place = can_be_in_place(*e.plain, w);
  if (self->cache->count >= kMostEntries) drop_one(self);
  std::list<Entry>& entries = self->cache->by_key[std::string(call.key.bytes())];
  entries.push_front(std::move(e));
  ++self->cache->count;
  return entries;
}

bool of_attribute(const SizeLeaf& l) { return l.kind == SizeLeaf::attribute; }

// Thrown where deriving an entry found that it is for other sizes than those of the call: it was traced for the sizes
// of an earlier one, and a rule has looked at them. Nothing has happened by then, and the entry's guards know.
struct OtherSizes {};

const Derivative& derivative_for(Entry& e, uint64_t mask, Value* const* in) {
  for (auto& [known, d] : e.derivatives)
    if (known == mask) return *d.held;
  nb::tuple derived = nb::cast<nb::tuple>(e.python.attr("derive")(mask));
  const Derivative* d = nb::cast<DerivativeHandle&>(nb::object(derived[0])).held;
  if (!d->forward || d->n_outputs != static_cast<int>(e.plain->outputs.size()) ||
      d->forward->n_inputs != e.plain->n_inputs || std::any_of(d->sizes.begin(), d->sizes.end(), of_attribute) ||
      std::any_of(d->forward->sizes.leaves.begin(), d->forward->sizes.leaves.end(), of_attribute))
    fail(ErrorKind::value, "compile", "the derivative is that of another program");
  e.guards = nb::cast<GuardSet>(nb::object(derived[1]));  // deriving may have looked at sizes, too
  e.derivatives.emplace_back(mask, nb::cast<DerivativeHandle&>(nb::object(derived[0])));
  if (!e.guards.hold(in, nullptr)) throw OtherSizes();
  return *e.derivatives.back().second.held;
}

void log_plain(const Entry& e, Value* const* in, int n_in, Value* const* out) {
  const int n = static_cast<int>(e.plain->outputs.size());
  Work work;
  work.ran = e.plain;
  const std::string name = nb::cast<std::string>(e.python.attr("name"));
  log_call({name, in, n_in, out, n, n, nullptr, e.python.ptr()}, std::move(work));
}

// Results that are not tracked though operands lead to leaves carry the end of that path.
[[gnu::noinline]] void end_path(const Entry& e, Value* const* in, int n_in, Value* const* out) {
  for (size_t i = 0; i < e.plain->outputs.size(); ++i) end_path("compiled", true, in, n_in, out + i, 1);
}

// `into`, if not null: of each output, a value that a program without derivatives may write it into, or null.
void run_program(Entry& e, Value** in, size_t n, uint64_t mask, Value** out, Value* const* into = nullptr) {
  Held held(in, static_cast<int>(n));
  if (mask) {
    apply_derivative(derivative_for(e, mask, in), in, static_cast<int>(n), nullptr, out);
  } else {
    SmallArray<int64_t, 32> sizes(e.plain->sizes.leaves.size());
    gather_sizes(e.plain->sizes.leaves, in, nullptr, nullptr, sizes.data());
    run(*e.plain, in, sizes.data(), out, into);
    if (thread_state.logs) [[unlikely]]
      log_plain(e, in, static_cast<int>(n), out);
    if (led_to_leaves(in, static_cast<int>(n))) [[unlikely]]
      end_path(e, in, static_cast<int>(n), out);
  }
}

PyObject* results_of(const Entry& e, Value** out, size_t n) {
  if (e.unflatten.is_none()) return wrap(out[0]);
  nb::list results;
  for (size_t i = 0; i < n; ++i) results.append(to_python(out[i]));
  return e.unflatten(results).release().ptr();
}

// Buffers of our own are apart from each other.
bool overlap(const Value* a, const Value* b) {
  return a->buffer == b->buffer || ((a->buffer->pinned || b->buffer->pinned) && share_memory(a, b));
}

// Tensors that are written to, in the order of `writes`. Refuses what cannot be written before anything runs.
void find_targets(const Entry& e, Arguments& call, const nb::list& hidden, Value* const* in, size_t n,
                  TensorObject** targets) {
  for (size_t k = 0; k < e.effects->writes.size(); ++k) {
    const Write& w = e.effects->writes[k];
    targets[k] = input_tensor(e, call, w.input);
    if (!targets[k] && w.input >= call.n_in && is_tensor(PyList_GET_ITEM(hidden.ptr(), w.input - call.n_in)))
      targets[k] = as_tensor(PyList_GET_ITEM(hidden.ptr(), w.input - call.n_in));  // a gradient
    if (!targets[k]) fail(ErrorKind::value, "compile", "a number is not changed in place");
    for (size_t i = 0; i < n; ++i)
      if (i != w.input && overlap(in[i], in[w.input]))
        throw Error(ErrorKind::trace,
                    w.op + ": the compiled function changes a tensor, " + to_string(in[w.input]->type()) +
                        ", that shares memory with another that it reads, " + to_string(in[i]->type()) +
                        "; make views of it inside the function, or clone() one of the two");
    require_assignable(targets[k]->tensor, w.recorded, w.op.c_str());
  }
}

// An output that no tracked input leads to is no part of the graph.
void drop_unrelated_edges(const Effects& effects, uint64_t mask, Value** out) {
  for (size_t i = 0; i < effects.sources.size(); ++i)
    if (out[i]->node && !(effects.sources[i] & mask)) {
      release(out[i]->node);
      out[i]->node = nullptr;
    }
}

// The hidden inputs of a call; false if what the trace has assumed of Python objects is not so any more.
bool begin(const Entry& e, Arguments& call, nb::list& hidden) {
  nb::list amounts;
  for (int64_t n : e.effects->draws.evaluate(call.in.data())) amounts.append(n);
  nb::object given = e.effects->begin(amounts);
  if (given.is_none()) return false;
  hidden = nb::cast<nb::list>(given);
  for (nb::handle h : hidden)
    if (!h.is_none()) value_from(h, "compile")->made = Value::kLiteral;
  for (const LeafGrad& g : e.effects->grads)
    if (g.before == LeafGrad::present) hidden[g.input - call.n_in] = nb::steal(grad_of(input_tensor(e, call, g.leaf)));
  return true;
}

// By which inputs a call will be differentiated; hidden ones, which are not there yet, are never tracked.
uint64_t active_mask(const Entry& e, Arguments& call) {
  if (!thread_state.grad_enabled) return 0;
  uint64_t mask = tracked_mask(call.in.data(), static_cast<int>(call.n_in)), active = 0;
  size_t i = e.plain->n_inputs - e.captured.size();
  for (nb::handle h : e.captured)
    mask |= uint64_t{tracked(operand(as_tensor(h.ptr())))} << std::min<size_t>(i++, kLastBit);
  for (uint64_t s : e.effects->sources) active |= s;
  return mask & active;
}

// What a call with effects needs before it runs.
struct Prepared {
  uint64_t mask = 0;
  nb::list hidden;
};

bool prepare(Entry& e, Arguments& call, Prepared& made) {
  if (!e.effects) return true;
  made.mask = active_mask(e, call);
  if (made.mask) derivative_for(e, made.mask, call.in.data());  // before anything is drawn
  return begin(e, call, made.hidden);
}

void store_grads(const Entry& e, Arguments& call, Value** out) {
  for (const LeafGrad& g : e.effects->grads) {
    TensorObject* t = g.after == LeafGrad::untouched ? nullptr : input_tensor(e, call, g.leaf);
    if (!t) continue;
    if (g.after == LeafGrad::added) {
      Ref sum(out[g.output]);
      if (Node* leaf = current(t->tensor)->node) keep_grad(leaf, sum.v);
    } else {
      store_grad(t, g.after == LeafGrad::replaced ? out[g.output] : nullptr);
    }
  }
}

// Thrown where what a call would write is not finite, before it is written.
struct NotFiniteEffects {};

// Whether losses, gradients and parameters are finite; other state is where they are.
bool finite_effects(const Effects& effects, TensorObject* const* targets, Value* const* out) {
  if (effects.grads.empty() && effects.writes.empty()) return true;
  for (size_t i = 0; i < effects.n_results; ++i)
    if (out[i]->size == 1 && !all_finite(out[i])) return false;
  for (size_t k = 0; k < effects.writes.size(); ++k)
    if (lasting_leaf(current(targets[k]->tensor)) && !all_finite(out[effects.writes[k].output])) return false;
  for (const LeafGrad& g : effects.grads)
    if (g.after >= LeafGrad::replaced && !all_finite(out[g.output])) return false;
  return true;
}

PyObject* run_with_effects(Entry& e, Arguments& call, Prepared& made) {
  const Effects& effects = *e.effects;
  const uint64_t mask = made.mask;
  const nb::list& hidden = made.hidden;
  const size_t n = call.n_in + hidden.size() + e.captured.size(), n_out = e.plain->outputs.size();
  SmallArray<Value*, kFewOperands> in(n);
  Value** next = std::copy_n(call.in.data(), call.n_in, in.data());
  for (nb::handle h : hidden) *next++ = value_from(h, "compile");
  for (nb::handle h : e.captured) *next++ = operand(as_tensor(h.ptr()));
  check_count(*e.plain, n);
  SmallArray<TensorObject*, kFewOperands> targets(effects.writes.size());
  find_targets(e, call, hidden, in.data(), n, targets.data());
  if (mask && n_out > UINT16_MAX)  // as Node::n_outputs
    throw Error(ErrorKind::gradient,
                "a compiled function that changes more than " + std::to_string(UINT16_MAX - effects.n_results) +
                    " tensors cannot be recorded; call it under no_grad(), or detach() what it returns");
  SmallArray<Value*, kFewOperands> out(n_out), into(n_out);
  std::fill_n(into.data(), n_out, nullptr);
  const bool checked = !mask && thread_state.checks == Checks::gradients;
  if (!mask && !thread_state.n_tapes && !checked)
    for (size_t k = 0; k < effects.writes.size(); ++k) {
      const Write& w = effects.writes[k];
      if (w.in_place && writable(targets[k]->tensor)) into[w.output] = in[w.input];
    }
  run_program(e, in.data(), n, mask, out.data(), into.data());
  if (checked && !finite_effects(effects, targets.data(), out.data())) {
    for (size_t i = 0; i < n_out; ++i) release(out[i]);
    throw NotFiniteEffects();
  }
  if (mask) drop_unrelated_edges(effects, mask, out.data());
  for (size_t k = 0; k < effects.writes.size(); ++k) {
    const Write& w = effects.writes[k];
    if (into[w.output]) {
      before_write(out[w.output]->buffer);
      ++out[w.output]->buffer->version;
      release(out[w.output]);
    } else {
      assign(targets[k]->tensor, out[w.output], w.op.c_str(), w.recorded && thread_state.grad_enabled);
    }
  }
  store_grads(e, call, out.data());
  if (!effects.commit.is_none()) effects.commit();
  return results_of(e, out.data(), effects.n_results);
}

PyObject* run_entry(Entry& e, Arguments& call) {
  const size_t n_captured = e.captured.size(), n = call.n_in + n_captured;
  SmallArray<Value*, kFewOperands> with_captured(n_captured ? n : 0);
  Value** in = call.in.data();
  if (n_captured) {
    in = std::copy_n(call.in.data(), call.n_in, with_captured.data());
    for (nb::handle h : e.captured) *in++ = operand(as_tensor(h.ptr()));
    in = with_captured.data();
  }
  SmallArray<Value*, 8> out(e.plain->outputs.size());
  run_program(e, in, n, tracked_mask(in, static_cast<int>(n)), out.data());
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

// Arguments and captured tensors are on one device, but for numbers.
void require_one_device(const Entry& e, Arguments& call) {
  unsigned any = kCpu;
  for (size_t i = 0; i < call.n_in; ++i) any |= call.in[i]->device;
  for (nb::handle h : e.captured) any |= current(as_tensor(h.ptr())->tensor)->device;
  if (any == kCpu) [[likely]]
    return;
  std::vector<Value*> all(call.in.data(), call.in.data() + call.n_in);
  for (nb::handle h : e.captured) all.push_back(current(as_tensor(h.ptr())->tensor));
  common_device("compile", all.data(), static_cast<int>(all.size()));
}

// Runs an entry, which stays in the cache meanwhile; null, and no exception is set, if it is not for this call.
PyObject* run_found(Compiled* self, std::list<Entry>& entries, std::list<Entry>::iterator at, Arguments& call) {
  struct Running {
    Entry& e;
    explicit Running(Entry& entered) : e(entered) { ++e.running; }
    ~Running() { --e.running; }
  } running(*at);
  require_one_device(*at, call);
  Prepared made;
  if (!prepare(*at, call, made)) return nullptr;
  at->used = ++self->cache->calls;
  if (at != entries.begin()) entries.splice(entries.begin(), entries, at);  // the next call is likely the same
  return at->effects ? run_with_effects(*at, call, made) : run_entry(*at, call);
}

bool numbers_hold(const Entry& e, Value* const* in) {
  for (const NumberGuard& g : e.numbers)
    if (!g.holds(in)) return false;
  return true;
}

bool holds(Entry& e, Arguments& call) {
  return e.guards.hold(call.in.data(), nullptr) && numbers_hold(e, call.in.data()) && captured_types_hold(e) &&
         roles_hold(e, call) && grads_hold(e, call) && settings_hold(e);
}

void put_policy(Key& key) {
  if (thread_state.autocast) [[unlikely]]
    put(key, 'A', thread_state.autocast->id);
}

// Whether all arguments are tensors, or values that a signature can have: there is nothing to convert or take apart.
bool are_flat(PyObject* const* args, Py_ssize_t n) {
  Key scratch;
  for (Py_ssize_t i = 0; i < n; ++i)
    if (!is_tensor(args[i]) && !put_static(scratch, args[i])) return false;
  return true;
}

PyObject* compiled_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names);

// A function of the library under autocast: its operands are cast, and nothing inside.
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

// Op by op, with every result looked at; nothing has been changed yet. It raises where the first bad result is found.
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
    Arguments call(*self->cache, args, n, names);
    put_policy(call.key);
    if (call.n_in == 0 && thread_state.capturing) throw Captured();
    if (call.kind == Kind::not_plain) return call_slowly(self->lifted, self, args, n, names);
    if (call.kind == Kind::structured) return call_slowly(self->slow, self, args, n, names);
    if (thread_state.checks == Checks::results && !thread_state.capturing)  // so that its own lines are known
      return PyObject_Vectorcall(self->function, args, nargsf, names);
    if (!self->latest || self->latest->first != call.key.bytes()) {
      auto it = self->cache->by_key.find(std::string(call.key.bytes()));
      self->latest = it == self->cache->by_key.end() ? nullptr : &*it;
    }
    if (self->latest) {
      std::list<Entry>& entries = self->latest->second;
      for (auto e = entries.begin(); e != entries.end(); ++e)
        if (holds(*e, call))
          if (PyObject* result = run_found(self, entries, e, call); result || PyErr_Occurred()) return result;
    }
    bool asks_roles = false;
    std::optional<Entry> traced;
    {
      const Placement here(call.device());
      traced = trace_entry(self, args, n, names, asks_roles);
    }
    if (!traced) return call_slowly(self->lifted, self, args, n, names);
    Arguments again(*self->cache, args, n, names);  // other numbers may be operands now
    put_policy(again.key);
    std::list<Entry>& entries = keep(self, again, std::move(*traced), asks_roles);
    PyObject* result = run_found(self, entries, entries.begin(), again);
    if (!result && !PyErr_Occurred())
      fail(ErrorKind::trace, "compile", "what the function reads of Python objects changes while it is traced");
    return result;
  } catch (const NotFiniteEffects&) {
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
  auto cache = std::make_unique<Cache>();  // first: the collector may look at the object as soon as it exists
  auto* self = reinterpret_cast<Compiled*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->cache = cache.release();
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
  for (auto& [key, list] : self->cache->by_key)
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
  std::swap(gone, *self->cache);
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

PyObject* entries(PyObject* object, void*) {
  nb::list out;
  for (auto& [key, list] : reinterpret_cast<Compiled*>(object)->cache->by_key)
    for (Entry& e : list) out.append(e.python);
  return out.release().ptr();
}

PyObject* operands_of(PyObject* object, void*) {
  const std::vector<bool>& operands = reinterpret_cast<Compiled*>(object)->cache->operands;
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
    reinterpret_cast<Compiled*>(object)->cache->operands = std::move(operands);
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
  compiled_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!compiled_type || PyModule_AddObjectRef(m.ptr(), "Compiled", reinterpret_cast<PyObject*>(compiled_type)))
    throw nb::python_error();
  m.def("settings_changed", [] { ++settings_epoch; });
  m.def("set_numpy_types", [](nb::type_object float64, nb::type_object float32, nb::type_object int64) {
    numpy_float64 = float64.release().ptr();
    numpy_float32 = float32.release().ptr();
    numpy_int64 = int64.release().ptr();
  });
}

}  // namespace wengert
