// Tensors as names: what a name refers to, and which names share memory. Used for in-place writes in forward mode.
#include <nanobind/stl/string.h>

#include <list>

#include "program.h"

namespace wengert {

nb::object another_name(nb::handle tensor) {
  Value* given = value_from(tensor, "another name");
  Value* v = alias(given);
  if (given->node) retain(given->node);
  v->node = given->node;
  v->output = given->output;
  nb::object named = to_python(v);
  as_tensor(named.ptr())->id = id_of(as_tensor(tensor.ptr()));  // tapes identify the tensor by it
  as_tensor(named.ptr())->requires_grad = as_tensor(tensor.ptr())->requires_grad;
  return named;
}

namespace {

// A new, untracked name for the tensor's current value, which tapes ignore as well. Unlike detach() it does not end a
// path: tapes still know what computed the value.
nb::object untracked_name(nb::handle tensor) {
  nb::object named = to_python(alias(value_from(tensor, "untracked name")));
  if (is_inexact(as_tensor(named.ptr())->tensor.value->dtype)) as_tensor(named.ptr())->requires_grad = 0;
  return named;
}

// Makes a class from a Python definition, with the layout and the deallocator of its base, which is a type of the core.
// (Classes that Python creates itself deallocate their instances in a longer way.) Instances of Tensor and of such a
// subclass can be converted into each other.
nb::object core_layout(nb::handle cls) {
  static std::list<std::string> names;  // types keep pointers to these
  if (!PyType_Check(cls.ptr())) throw nb::type_error("core_layout: expected a class");
  nb::handle bases = reinterpret_cast<PyTypeObject*>(cls.ptr())->tp_bases;
  auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases.ptr(), 0));
  names.push_back(nb::cast<std::string>(cls.attr("__module__")) + "." + nb::cast<std::string>(cls.attr("__name__")));
  PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(base->tp_dealloc)}, {0, nullptr}};
  PyType_Spec spec = {names.back().c_str(), 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  nb::object made = nb::steal(PyType_FromSpecWithBases(&spec, bases.ptr()));
  if (!made.is_valid()) throw nb::python_error();
  const nb::object members = nb::module_::import_("builtins").attr("dict")(cls.attr("__dict__"));
  for (auto [name, member] : nb::borrow<nb::dict>(members)) {
    const std::string key = nb::cast<std::string>(name);
    if (key != "__slots__" && key != "__dict__" && key != "__weakref__") nb::setattr(made, name, member);
  }
  return made;
}

// Turns the tensor from a plain one into one that represents another object.
void hold(nb::handle tensor, nb::handle held) {
  if (!is_tensor(tensor.ptr())) throw nb::type_error("hold: expected a tensor");
  TensorObject* t = as_tensor(tensor.ptr());
  destroy(t->tensor);
  t->tensor = Tensor();
  t->plain = false;
  Py_XSETREF(t->held, held.inc_ref().ptr());
}

// Turns the tensor into a plain one again: a name for a temporary's value, in the same alias group.
void hold_data(nb::handle tensor, nb::handle temporary) {
  if (!is_tensor(tensor.ptr())) throw nb::type_error("hold_data: expected a tensor");
  value_from(temporary, "hold_data");  // refuses tensors that are not plain
  TensorObject* t = as_tensor(tensor.ptr());
  Tensor& from = as_tensor(temporary.ptr())->tensor;
  destroy(t->tensor);
  t->tensor = Tensor();
  t->tensor.value = current(from);
  retain(t->tensor.value);
  if (from.alias) enter_group(t->tensor, from.alias);
  t->tensor.seen = from.seen;
  t->tensor.offset = from.offset;
  t->tensor.is_base = from.is_base;
  t->tensor.detached = from.detached;
  t->tensor.overlaps = from.overlaps;
  t->plain = true;
  Py_CLEAR(t->held);
}

TensorObject* object_of(Tensor* t) {
  return reinterpret_cast<TensorObject*>(reinterpret_cast<char*>(t) - offsetof(TensorObject, tensor));
}

// The tensors that a write to this one changes: [(tensor, its position in the base or None for all of it, whether it is
// detached)], and the base with its axes in memory order. None if there are no others.
nb::object sharing(nb::handle tensor) {
  return guarded([&]() -> nb::object {
    value_from(tensor, "sharing");
    Tensor& t = as_tensor(tensor.ptr())->tensor;
    if (!t.alias || t.alias->refs == 1) return nb::none();
    const Alias& a = *t.alias;
    Ref whole(base_in_memory_order(a));
    nb::list names;
    uint32_t count = 0;
    for (Tensor* other = a.names; other; other = other->following, ++count) {
      nb::object place = nb::none();
      if (!other->is_base || !a.base->contiguous) {
        const Attrs attrs = geometry(*other);
        place = nb::make_tuple(nb::steal(dims_to_python(attrs[0].dims)), nb::steal(dims_to_python(attrs[1].dims)),
                               nb::steal(dims_to_python(attrs[2].dims)));
      }
      names.append(nb::make_tuple(nb::borrow(reinterpret_cast<PyObject*>(object_of(other))), place, other->detached));
    }
    if (count != a.refs || !whole.v)
      throw Error(ErrorKind::in_place, to_string(a.base->type()) +
                                           " is a gradient, or has views and gaps in its memory, so it cannot be given "
                                           "a value with a tangent in place; clone() it first");
    return nb::make_tuple(names, to_python(whole.take()));
  });
}

bool same_buffer(nb::handle a, nb::handle b) {
  return value_from(a, "buffer")->buffer == value_from(b, "buffer")->buffer;
}

}  // namespace

void init_names(nb::module_& m) {
  m.def("another_name", &another_name);
  m.def("untracked_name", &untracked_name);
  m.def("core_layout", &core_layout);
  m.def("hold", &hold);
  m.def("hold_data", &hold_data);
  m.def("sharing", &sharing);
  m.def("same_buffer", &same_buffer);
}

}  // namespace wengert
