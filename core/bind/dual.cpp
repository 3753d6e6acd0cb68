#include "dual.h"

#include <structmember.h>

#include "../small_array.h"

namespace wengert {

namespace {

PyTypeObject* dual_type = nullptr;       // the Python class DualTensor
PyTypeObject* pair_type = nullptr;       // the Python class Pair
PyTypeObject* pair_base_type = nullptr;  // its base, which has the fields

// What the dual stands for now: a view is read again if what it is a view of was written to. Borrowed; throws.
PairObject* pair_of(PyObject* dual) {
  auto* pair = reinterpret_cast<PairObject*>(as_tensor(dual)->held);
  if (pair->view != Py_None) [[unlikely]] {
    PyObject* view = Py_NewRef(pair->view);
    PyObject* refreshed = PyObject_CallMethod(view, "refresh", "O", pair);
    Py_DECREF(view);
    if (!refreshed) throw Error(ErrorKind::python, "");
    Py_DECREF(refreshed);
  }
  return pair;
}

bool is_whole(const PairObject* p) { return p->value && p->tangent && p->level && p->view && p->order > 0; }

}  // namespace

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

// References that are dropped in the end.
struct Objects {
  SmallArray<PyObject*, 16> at;
  int n;
  explicit Objects(int count) : at(count), n(count) { std::fill_n(at.data(), n, nullptr); }
  ~Objects() {
    for (int i = 0; i < n; ++i) Py_XDECREF(at[i]);
  }
};

// Programs trust that a tangent has the type of its value.
void require_same_type(const PairObject* p) {
  const Value *value = bottom_value(p->value), *tangent = bottom_value(p->tangent);
  if (!value || !tangent || value->dtype != tangent->dtype || !same_shape(value, tangent))
    throw Error(ErrorKind::value,
                "a dual tensor's tangent must have the shape and dtype of its value; make it by dual()");
}

// The operands of one level, taken apart: values, then the tangents of those in `mask`. All are borrowed.
struct Level {
  int64_t order = 0;
  PyObject* level = nullptr;
  uint64_t mask = 0;
  SmallArray<PyObject*, 16> parts;
  int n_parts;

  Level(PyObject* const* operands, int n) : parts(2 * n), n_parts(n) {
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
      if (!here || pairs[i]->tangent == Py_None) continue;
      require_same_type(pairs[i]);
      mask |= uint64_t{1} << i;
      parts[n_parts++] = pairs[i]->tangent;
    }
  }
};

// Takes the references to value and tangent.
PyObject* new_dual(const Level& l, PyObject* value, PyObject* tangent) {
  PyObject* held = pair_type->tp_alloc(pair_type, 0);
  PyObject* d = held ? dual_type->tp_alloc(dual_type, 0) : nullptr;
  if (!d) {
    Py_XDECREF(held);
    Py_DECREF(value);
    Py_DECREF(tangent);
    throw Error(ErrorKind::python, "");
  }
  auto* pair = reinterpret_cast<PairObject*>(held);
  pair->value = value;
  pair->tangent = tangent;
  pair->level = Py_NewRef(l.level);
  pair->order = l.order;
  pair->view = Py_NewRef(Py_None);
  pair->known_layout = 1;
  clear_fields(as_tensor(d));
  as_tensor(d)->held = held;
  return d;
}

// Outputs at this level: values and tangents, of which an absent one (null) is zero. Takes the references. What has no
// tangent is no dual, but for views: they follow writes to what they are views of.
void join(const Level& l, PyObject** values_and_tangents, int n, PyObject** out, bool views = false) {
  for (int i = 0; i < n; ++i) {
    PyObject* value = std::exchange(values_and_tangents[i], nullptr);
    PyObject* tangent = std::exchange(values_and_tangents[n + i], nullptr);
    if (views && !tangent) tangent = Py_NewRef(Py_None);
    out[i] = value && tangent ? new_dual(l, value, tangent) : value;
  }
}

void apply_to_values(Derived& p, PyObject* const* operands, int n, const int64_t* given, PyObject** out) {
  SmallArray<Value*, 16> in(n);
  for (int i = 0; i < n; ++i) in[i] = operand(as_tensor(operands[i]));
  const int n_out = static_cast<int>(p.program->outputs.size());
  SmallArray<Value*, 8> results(n_out);
  apply(p, in.data(), n, given, results.data());
  for (int i = 0; i < n_out; ++i) out[i] = results[i] ? wrap(results[i]) : nullptr;
  if (PyErr_Occurred()) throw Error(ErrorKind::python, "");  // no memory for one of them: it is not a zero
}

void apply_to_objects(Derived& p, PyObject* const* operands, int n, const int64_t* given, PyObject** out) {
  Level l(operands, n);
  if (!l.order) return apply_to_values(p, operands, n, given, out);
  SmallArray<Value*, 16> types(n);
  for (int i = 0; i < n; ++i) types[i] = bottom_value(l.parts[i]);
  Derived& push = find_push(p, types.data(), n, given, l.mask);
  const int n_out = static_cast<int>(p.program->outputs.size());
  Objects parts(2 * n_out);
  apply_to_objects(push, l.parts.data(), l.n_parts, given, parts.at.data());
  join(l, parts.at.data(), n_out, out);
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
  Level l(operands, n);
  SmallArray<Value*, 16> types(n);
  for (int i = 0; i < n; ++i) types[i] = bottom_value(l.parts[i]);
  SmallArray<int64_t, 16> given(kMaxAttrs * kMaxRank);
  int64_t* next = given.data();
  for (int k = 0; k < attrs.n; ++k)
    if (attrs[k].kind == Attr::Kind::sizes)
      for (Dim d : attrs[k].dims) *next++ = d.raw;
  Derived& push = find_push(op, types.data(), n, attrs, given.data(), l.mask);
  Objects parts(2 * op.n_outputs);
  apply_to_objects(push, l.parts.data(), l.n_parts, given.data(), parts.at.data());
  SmallArray<PyObject*, kMaxOutputs> out(op.n_outputs);
  join(l, parts.at.data(), op.n_outputs, out.data(), op.view != nullptr);
  return packed(out.data(), op.n_outputs);
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
  type->tp_free(self);
  Py_DECREF(type);
}

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

// set_dual_types(dual, pair): the classes of what ops on duals make.
PyObject* set_dual_types(PyObject*, PyObject* args) {
  PyObject *dual, *pair;
  if (!PyArg_ParseTuple(args, "OO", &dual, &pair)) return nullptr;
  const bool fit = PyType_Check(dual) && PyType_Check(pair) &&
                   PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(dual), tensor_type) &&
                   reinterpret_cast<PyTypeObject*>(dual)->tp_basicsize == tensor_type->tp_basicsize &&
                   PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(pair), pair_base_type) &&
                   reinterpret_cast<PyTypeObject*>(pair)->tp_basicsize == pair_base_type->tp_basicsize;
  if (!fit) return PyErr_SetString(PyExc_TypeError, "set_dual_types: expected subclasses of Tensor and Pair"), nullptr;
  dual_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(dual));
  pair_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(pair));
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"set_dual_types", set_dual_types, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int init_dual_types(PyObject* module) {
  PyObject* base = PyType_FromSpec(&spec);
  if (!base || PyModule_AddObjectRef(module, "Pair", base)) return -1;
  pair_base_type = reinterpret_cast<PyTypeObject*>(base);
  return PyModule_AddFunctions(module, functions);
}

}  // namespace wengert
