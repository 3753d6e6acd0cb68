#include "dual.h"

#include <structmember.h>

#include "../small_array.h"

namespace wengert {

namespace {

PyTypeObject* dual_type = nullptr;       // the Python class DualTensor
PyTypeObject* pair_type = nullptr;       // the Python class Pair
PyTypeObject* pair_base_type = nullptr;  // its base class, which has the fields
PyTypeObject* view_type = nullptr;       // likewise for View
PyTypeObject* view_base_type = nullptr;
PyTypeObject* level_type = nullptr;  // likewise for Level
PyTypeObject* level_base_type = nullptr;

PairObject* held_pair(PyObject* dual) { return reinterpret_cast<PairObject*>(as_tensor(dual)->held); }

int64_t n_writes = 0;  // writes to duals of any level

// Brings a view up to date if its base was written to. Throws.
void reread(PairObject* pair) {
  auto* view = reinterpret_cast<ViewObject*>(pair->view);
  const int64_t version = held_pair(view->base)->version;
  if (version == view->seen) return;
  PyObject* read = PyObject_CallMethod(pair->view, "reread", "O", pair);
  if (!read) throw Error(ErrorKind::python, "");
  Py_DECREF(read);
  view->seen = version;
}

bool is_view(const PairObject* pair) {
  if (Py_TYPE(pair->view) != view_type) return false;
  PyObject* base = reinterpret_cast<ViewObject*>(pair->view)->base;
  PyObject* held = base && is_tensor(base) ? as_tensor(base)->held : nullptr;
  return held && Py_TYPE(held) == pair_type;
}

bool is_whole(const PairObject* p) { return p->value && p->tangent && p->level && p->view && p->order > 0; }

}  // namespace

// A view is refreshed if its base, which may itself be a view, was written to.
PairObject* pair_of(PyObject* dual) {
  PairObject* pair = held_pair(dual);
  if (pair->checked == n_writes || pair->view == Py_None) return pair;
  std::vector<PairObject*> chain;
  for (PairObject* p = pair; p->checked != n_writes && is_view(p);
       p = held_pair(reinterpret_cast<ViewObject*>(p->view)->base))
    chain.push_back(p);
  for (; !chain.empty(); chain.pop_back()) {
    reread(chain.back());
    chain.back()->checked = n_writes;
  }
  return pair;
}

bool is_dual(PyObject* o) {
  if (Py_TYPE(o) != dual_type) return false;
  PyObject* held = as_tensor(o)->held;
  return held && Py_TYPE(held) == pair_type && is_whole(reinterpret_cast<PairObject*>(held));
}

Value* bottom_value(PyObject* o) {
  while (is_dual(o)) o = pair_of(o)->value;
  return is_tensor(o) && as_tensor(o)->plain ? current(as_tensor(o)->tensor) : nullptr;
}

int count_parts(PyObject* o) {
  if (!is_dual(o)) return 1;
  const PairObject* pair = pair_of(o);
  return count_parts(pair->value) + (pair->tangent == Py_None ? 0 : count_parts(pair->tangent));
}

namespace {

// Owned references, dropped at the end of the scope.
struct Objects {
  SmallArray<PyObject*, 16> at;
  int n;
  explicit Objects(int count) : at(count), n(count) { std::fill_n(at.data(), n, nullptr); }
  ~Objects() {
    for (int i = 0; i < n; ++i) Py_XDECREF(at[i]);
  }
};

// Programs rely on a tangent having the type of its value.
void require_same_type(const Value* value, const Value* tangent) {
  if (!value || !tangent || value->dtype != tangent->dtype || !same_shape(value, tangent))
    throw Error(ErrorKind::value,
                "a dual tensor's tangent must have the shape and dtype of its value; make it by dual()");
}

bool is_plain(PyObject* tensor) { return as_tensor(tensor)->plain; }

// The operands of an op split at one level: the values, then the tangents of those in `mask`. All are borrowed.
struct Level {
  int64_t order = 0;
  PyObject* level = nullptr;
  uint64_t mask = 0;
  bool nested = false;  // some of the parts are duals themselves
  SmallArray<PyObject*, 16> parts;
  SmallArray<Value*, 16> bottoms;  // bottom values of the parts, for their types
  int n_parts;

  Level(PyObject* const* operands, int n) : parts(2 * n), bottoms(2 * n), n_parts(n) {
    SmallArray<PairObject*, 8> pairs(n);
    for (int i = 0; i < n; ++i) {
      pairs[i] = is_dual(operands[i]) ? pair_of(operands[i]) : nullptr;
      if (!pairs[i] || pairs[i]->order <= order) continue;
      order = pairs[i]->order;
      level = pairs[i]->level;
    }
    for (int i = 0; i < n; ++i) {
      const bool here = order && pairs[i] && pairs[i]->order == order;
      parts[i] = here ? pairs[i]->value : operands[i];
      bottoms[i] = bottom_value(parts[i]);
      nested |= !is_plain(parts[i]);
      if (!here || pairs[i]->tangent == Py_None) continue;
      mask |= uint64_t{1} << i;
      parts[n_parts] = pairs[i]->tangent;
      bottoms[n_parts] = bottom_value(pairs[i]->tangent);
      require_same_type(bottoms[i], bottoms[n_parts]);
      nested |= !is_plain(parts[n_parts++]);
    }
  }
};

// Recently dropped pairs, kept for the next op. They keep their reference to the type.
constexpr int kMostDropped = 256;
PyObject* dropped_pairs[kMostDropped];
int n_dropped = 0;

PyObject* new_pair() {
  if (!n_dropped) return pair_type->tp_alloc(pair_type, 0);
  PyObject* pair = dropped_pairs[--n_dropped];
  _Py_NewReference(pair);
  return pair;
}

// Takes the references to value and tangent.
PyObject* new_dual_of(PyObject* level, int64_t order, PyObject* value, PyObject* tangent) {
  PyObject* held = new_pair();
  auto* d = held ? reinterpret_cast<PyObject*>(new_dual_tensor()) : nullptr;
  if (!d) {
    Py_XDECREF(held);
    Py_DECREF(value);
    Py_DECREF(tangent);
    throw Error(ErrorKind::python, "");
  }
  auto* pair = reinterpret_cast<PairObject*>(held);
  pair->value = value;
  pair->tangent = tangent;
  pair->level = Py_NewRef(level);
  pair->order = order;
  pair->view = Py_NewRef(Py_None);
  pair->version = pair->checked = 0;
  pair->known_layout = 1;
  as_tensor(d)->held = held;
  return d;
}

// Joins values and tangents to the outputs at this level. A null tangent is zero, and an output without a tangent is
// not a dual. Takes the references.
void join(const Level& l, PyObject** values_and_tangents, int n, PyObject** out) {
  for (int i = 0; i < n; ++i) {
    PyObject* value = std::exchange(values_and_tangents[i], nullptr);
    PyObject* tangent = std::exchange(values_and_tangents[n + i], nullptr);
    out[i] = value && tangent ? new_dual_of(l.level, l.order, value, tangent) : value;
  }
}

void apply_to_values(Derived& p, PyObject* const* operands, int n, const int64_t* given, PyObject** out) {
  SmallArray<Value*, 16> in(n);
  for (int i = 0; i < n; ++i) in[i] = operand(as_tensor(operands[i]));
  const int n_out = static_cast<int>(p.program->outputs.size());
  SmallArray<Value*, 8> results(n_out);
  apply(p, in.data(), n, given, results.data());
  for (int i = 0; i < n_out; ++i) out[i] = results[i] ? wrap(results[i]) : nullptr;
  if (PyErr_Occurred()) throw Error(ErrorKind::python, "");  // out of memory, as opposed to a symbolic zero
}

void apply_to_objects(Derived& p, PyObject* const* operands, int n, const int64_t* given, PyObject** out);

// Applies the push to the parts.
void apply_to_parts(Derived& push, Level& l, const int64_t* given, PyObject** out) {
  if (l.nested) return apply_to_objects(push, l.parts.data(), l.n_parts, given, out);
  apply_to_values(push, l.parts.data(), l.n_parts, given, out);
}

void apply_to_objects(Derived& p, PyObject* const* operands, int n, const int64_t* given, PyObject** out) {
  Level l(operands, n);
  if (!l.order) return apply_to_values(p, operands, n, given, out);
  Derived& push = find_push(p, l.bottoms.data(), n, given, l.mask);
  const int n_out = static_cast<int>(p.program->outputs.size());
  Objects parts(2 * n_out);
  apply_to_parts(push, l, given, parts.at.data());
  join(l, parts.at.data(), n_out, out);
}

PyObject* view_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self) new (&reinterpret_cast<ViewObject*>(self)->read) std::vector<Attr>();
  return self;
}

// Notes that y is a view of the dual x if it shares memory with it, so that it follows writes as plain views do.
void note_view(const Op& op, PyObject* y, PyObject* x, const Attrs& attrs) {
  if (bottom_value(y)->buffer != bottom_value(x)->buffer) return;
  PyObject* made = view_new(view_type, nullptr, nullptr);
  if (!made) throw Error(ErrorKind::python, "");
  Py_SETREF(held_pair(y)->view, made);
  auto* view = reinterpret_cast<ViewObject*>(made);
  view->base = Py_NewRef(x);
  view->seen = pair_of(x)->version;
  held_pair(y)->checked = n_writes;
  view->op = &op;
  view->read.assign(attrs.v, attrs.v + attrs.n);
}

// View ops are linear, so they are applied to the value and to the tangent. Even without a tangent the result is a
// dual, because it must follow writes to its base.
PyObject* view_of_dual(const Op& op, PyObject* x, const Attrs& attrs) {
  const PairObject* pair = pair_of(x);
  Objects parts(2);
  parts.at[0] = try_op(op, &pair->value, 1, attrs);
  if (!parts.at[0]) throw Error(ErrorKind::python, "");
  parts.at[1] = pair->tangent == Py_None ? Py_NewRef(Py_None) : try_op(op, &pair->tangent, 1, attrs);
  if (!parts.at[1]) throw Error(ErrorKind::python, "");
  PyObject* y =
      new_dual_of(pair->level, pair->order, std::exchange(parts.at[0], nullptr), std::exchange(parts.at[1], nullptr));
  try {
    note_view(op, y, x, attrs);
  } catch (...) {
    Py_DECREF(y);
    throw;
  }
  return y;
}

PyObject* packed(PyObject** outputs, int n) {
  if (n == 1) return outputs[0];
  PyObject* t = PyTuple_New(n);
  for (int i = 0; i < n; ++i) {
    if (t)
      PyTuple_SET_ITEM(t, i, outputs[i]);
    else
      Py_XDECREF(outputs[i]);
  }
  return t;
}

}  // namespace

PyObject* call_on_duals(const Op& op, PyObject* const* operands, int n, const Attrs& attrs) {
  if (op.view && n == 1) return view_of_dual(op, operands[0], attrs);
  Level l(operands, n);
  int64_t given[kMaxAttrs * kMaxRank];
  int64_t* next = given;
  for (int k = 0; k < attrs.n; ++k)
    if (attrs[k].kind == Attr::Kind::sizes)
      for (Dim d : attrs[k].dims) *next++ = d.raw;
  const Handle<Derived> push = find_push(op, l.bottoms.data(), n, attrs, given, l.mask);
  Objects parts(2 * op.n_outputs);
  apply_to_parts(*push.held, l, given, parts.at.data());
  SmallArray<PyObject*, kMaxOutputs> out(op.n_outputs);
  join(l, parts.at.data(), op.n_outputs, out.data());
  return packed(out.data(), op.n_outputs);
}

void call_on_duals(Derived& p, PyObject* const* operands, int n, PyObject** out) {
  apply_to_objects(p, operands, n, nullptr, out);
}

// ---------------------------------------------------------------------------------------------------- the types

namespace {

int set_level(PyObject* self, PyObject* level, void*) {
  auto* p = reinterpret_cast<PairObject*>(self);
  if (!level) return PyErr_SetString(PyExc_AttributeError, "the level of a pair cannot be deleted"), -1;
  PyObject* number = PyObject_GetAttrString(level, "level");
  const int64_t order = number ? PyLong_AsLongLong(number) : -1;
  Py_XDECREF(number);
  if (PyErr_Occurred()) return -1;
  Py_XSETREF(p->level, Py_NewRef(level));
  p->order = order;
  return 0;
}

PyObject* get_level(PyObject* self, void*) {
  PyObject* level = reinterpret_cast<PairObject*>(self)->level;
  return Py_NewRef(level ? level : Py_None);
}

int pair_init(PyObject* self, PyObject* args, PyObject* named) {
  static const char* names[] = {"value", "tangent", "level", "view", "version", "known_layout", nullptr};
  PyObject *value, *tangent, *level, *view = Py_None;
  long long version = 0;
  int known_layout = 1;
  if (!PyArg_ParseTupleAndKeywords(args, named, "OOO|OLp", const_cast<char**>(names), &value, &tangent, &level, &view,
                                   &version, &known_layout))
    return -1;
  auto* p = reinterpret_cast<PairObject*>(self);
  if (set_level(self, level, nullptr)) return -1;
  Py_XSETREF(p->value, Py_NewRef(value));
  Py_XSETREF(p->tangent, Py_NewRef(tangent));
  Py_XSETREF(p->view, Py_NewRef(view));
  p->version = version;
  p->checked = -1;
  p->known_layout = static_cast<char>(known_layout);
  return 0;
}

void pair_dealloc(PyObject* self) {
  auto* p = reinterpret_cast<PairObject*>(self);
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(p->value);
  Py_XDECREF(p->tangent);
  Py_XDECREF(p->level);
  Py_XDECREF(p->view);
  if (type == pair_type && n_dropped < kMostDropped) {
    dropped_pairs[n_dropped++] = self;
    return;
  }
  type->tp_free(self);
  Py_DECREF(type);
}

int view_init(PyObject* self, PyObject* args, PyObject* named) {
  static const char* names[] = {"base", "name", "attrs", "seen", "detached", nullptr};
  PyObject *base, *attrs;
  const char* name;
  long long seen;
  int detached = 0;
  if (!PyArg_ParseTupleAndKeywords(args, named, "OsO!L|p", const_cast<char**>(names), &base, &name, &PyTuple_Type,
                                   &attrs, &seen, &detached))
    return -1;
  auto* v = reinterpret_cast<ViewObject*>(self);
  const Op* op = find_op(name);
  if (!op || !op->view) return PyErr_Format(PyExc_ValueError, "View: %s is not an op that makes views", name), -1;
  v->op = op;
  Py_XSETREF(v->base, Py_NewRef(base));
  Py_XSETREF(v->attrs, Py_NewRef(attrs));
  v->seen = seen;
  v->detached = static_cast<char>(detached);
  return 0;
}

// Drops a view's base, which may be a view itself, and so on; a long chain is destroyed iteratively.
void drop_base(PyObject* base) {
  constexpr int kDeepest = 64;
  static thread_local int depth = 0;
  static thread_local std::vector<PyObject*> waiting;
  if (depth == kDeepest) return waiting.push_back(base);
  ++depth;
  Py_DECREF(base);
  --depth;
  while (depth == 0 && !waiting.empty()) {
    PyObject* next = waiting.back();
    waiting.pop_back();
    ++depth;
    Py_DECREF(next);
    --depth;
  }
}

void view_dealloc(PyObject* self) {
  auto* v = reinterpret_cast<ViewObject*>(self);
  PyTypeObject* type = Py_TYPE(self);
  if (v->base) drop_base(v->base);
  Py_XDECREF(v->attrs);
  v->read.~vector();
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef view_members[] = {
    {"base", T_OBJECT, offsetof(ViewObject, base), READONLY, nullptr},
    {"seen", T_LONGLONG, offsetof(ViewObject, seen), 0, nullptr},
    {"detached", T_BOOL, offsetof(ViewObject, detached), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyObject* get_name(PyObject* self, void*) {
  const Op* op = reinterpret_cast<ViewObject*>(self)->op;
  return op ? PyUnicode_FromString(op->name.c_str()) : Py_NewRef(Py_None);
}

PyObject* get_attrs(PyObject* self, void*) {
  auto* v = reinterpret_cast<ViewObject*>(self);
  if (!v->attrs) {
    Attrs attrs;
    for (const Attr& a : v->read) attrs.add(a.kind) = a;
    try {
      v->attrs = attrs_to_python(attrs);
    } catch (...) {
      return raise_python();
    }
  }
  return Py_NewRef(v->attrs);
}

PyGetSetDef view_properties[] = {
    {"name", get_name, nullptr, "The name of the op.", nullptr},
    {"attrs", get_attrs, nullptr, "The attributes of the op.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot view_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(view_new)},
    {Py_tp_getset, view_properties},
    {Py_tp_init, reinterpret_cast<void*>(view_init)},
    {Py_tp_dealloc, reinterpret_cast<void*>(view_dealloc)},
    {Py_tp_members, view_members},
    {0, nullptr},
};
PyType_Spec view_spec = {"wengert._core.View", sizeof(ViewObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                         view_slots};

PyMemberDef members[] = {
    {"value", T_OBJECT, offsetof(PairObject, value), 0, nullptr},
    {"tangent", T_OBJECT, offsetof(PairObject, tangent), 0, nullptr},
    {"view", T_OBJECT, offsetof(PairObject, view), 0, nullptr},
    {"version", T_LONGLONG, offsetof(PairObject, version), 0, nullptr},
    {"known_layout", T_BOOL, offsetof(PairObject, known_layout), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef properties[] = {
    {"level", get_level, set_level, "The transformation that it belongs to.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_init, reinterpret_cast<void*>(pair_init)},
    {Py_tp_dealloc, reinterpret_cast<void*>(pair_dealloc)},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, nullptr},
};
PyType_Spec spec = {"wengert._core.Pair", sizeof(PairObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

int level_init(PyObject* self, PyObject* args, PyObject* named) {
  if (PyTuple_GET_SIZE(args) || named) return PyErr_SetString(PyExc_TypeError, "a level takes no arguments"), -1;
  reinterpret_cast<LevelObject*>(self)->order = new_level();
  return 0;
}

void level_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(reinterpret_cast<LevelObject*>(self)->turned);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* get_turned(PyObject* self, void*) {
  auto* l = reinterpret_cast<LevelObject*>(self);
  if (!l->turned) l->turned = PyList_New(0);
  return Py_XNewRef(l->turned);
}

int set_turned(PyObject* self, PyObject* turned, void*) {
  if (!turned || !PyList_CheckExact(turned)) return PyErr_SetString(PyExc_TypeError, "turned: expected a list"), -1;
  Py_XSETREF(reinterpret_cast<LevelObject*>(self)->turned, Py_NewRef(turned));
  return 0;
}

PyMemberDef level_members[] = {
    {"level", T_LONGLONG, offsetof(LevelObject, order), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef level_properties[] = {
    {"turned", get_turned, set_turned, "Weak references to tensors that became duals of this level by a write.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot level_slots[] = {
    {Py_tp_init, reinterpret_cast<void*>(level_init)},
    {Py_tp_dealloc, reinterpret_cast<void*>(level_dealloc)},
    {Py_tp_members, level_members},
    {Py_tp_getset, level_properties},
    {0, nullptr},
};
PyType_Spec level_spec = {"wengert._core.Level", sizeof(LevelObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                          level_slots};

// Whether a class adds no fields to its base.
bool is_like(PyObject* type, PyTypeObject* base) {
  auto* t = reinterpret_cast<PyTypeObject*>(type);
  return PyType_Check(type) && PyType_IsSubtype(t, base) && t->tp_basicsize == base->tp_basicsize;
}

// set_dual_types(dual, pair, view, level): the classes of the objects that ops on duals make.
PyObject* set_dual_types(PyObject*, PyObject* args) {
  PyObject *dual, *pair, *view, *level;
  if (!PyArg_ParseTuple(args, "OOOO", &dual, &pair, &view, &level)) return nullptr;
  if (!is_like(dual, tensor_type) || !is_like(pair, pair_base_type) || !is_like(view, view_base_type) ||
      !is_like(level, level_base_type)) {
    PyErr_SetString(PyExc_TypeError,
                    "set_dual_types: expected subclasses of Tensor, Pair, View and Level without more fields");
    return nullptr;
  }
  dual_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(dual));
  set_dual_tensor_type(dual_type);
  pair_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(pair));
  view_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(view));
  level_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(level));
  Py_RETURN_NONE;
}

// pair_of(dual): its current contents.
PyObject* read_pair(PyObject*, PyObject* dual) {
  PyObject* held = is_tensor(dual) ? as_tensor(dual)->held : nullptr;
  if (!held || Py_TYPE(held) != pair_type || !is_whole(reinterpret_cast<PairObject*>(held)))
    return PyErr_SetString(PyExc_TypeError, "pair_of: expected a dual tensor"), nullptr;
  try {
    return Py_NewRef(reinterpret_cast<PyObject*>(pair_of(dual)));
  } catch (...) {
    return raise_python();
  }
}

// note_dual_write(): views of duals may have to be refreshed.
PyObject* note_dual_write(PyObject*, PyObject*) {
  ++n_writes;
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"note_dual_write", note_dual_write, METH_NOARGS, nullptr},
    {"pair_of", read_pair, METH_O, nullptr},
    {"set_dual_types", set_dual_types, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* new_dual(PyObject* level, PyObject* value, PyObject* tangent) {
  const int64_t order = reinterpret_cast<LevelObject*>(level)->order;
  return new_dual_of(level, order, Py_NewRef(value), Py_NewRef(tangent));
}

int64_t new_level() {
  static int64_t last = 0;
  return ++last;
}

PyObject* make_level() {
  PyObject* made = level_type->tp_alloc(level_type, 0);
  if (!made) throw Error(ErrorKind::python, "");
  reinterpret_cast<LevelObject*>(made)->order = new_level();
  return made;
}

int init_dual_types(PyObject* module) {
  const struct {
    const char* name;
    PyType_Spec* spec;
    PyTypeObject** type;
  } bases[] = {{"Pair", &spec, &pair_base_type},
               {"View", &view_spec, &view_base_type},
               {"Level", &level_spec, &level_base_type}};
  for (const auto& base : bases) {
    PyObject* type = PyType_FromSpec(base.spec);
    if (!type || PyModule_AddObjectRef(module, base.name, type)) return -1;
    *base.type = reinterpret_cast<PyTypeObject*>(type);
  }
  return PyModule_AddFunctions(module, functions);
}

}  // namespace wengert
