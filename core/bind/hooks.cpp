#include "hooks.h"

#include "program.h"

namespace wengert {

namespace {

Value* call_hooks(void* hooks, Value* gradient) {
  nb::object g = to_python(gradient);
  try {
    // Iterates over a copy, because a hook may remove itself.
    nb::list functions(nb::cast<nb::list>(nb::handle(static_cast<PyObject*>(hooks))));
    std::vector<nb::object> snapshot;
    for (nb::handle f : functions) snapshot.push_back(nb::borrow(f));
    for (nb::object& f : snapshot) {
      nb::object changed = f(g);
      if (!changed.is_none()) g = changed;
    }
    Value* v = value_from(g, "gradient hook");
    retain(v);
    return v;
  } catch (nb::python_error& e) {
    e.restore();
    throw Error(ErrorKind::python, "");
  }
}

nb::list hooks_of(nb::handle tensor) {
  Value* v = value_from(tensor, "register_hook");
  if (!v->node) return nb::list();
  if (!v->node->hooks) v->node->hooks = nb::list().release().ptr();
  make_collectable(as_tensor(tensor.ptr()));
  return nb::borrow<nb::list>(static_cast<PyObject*>(v->node->hooks));
}

// The list of a tensor's gradient hooks, or of its final-gradient hooks; None if there is none.
nb::object existing_hooks(nb::handle tensor, bool final) {
  if (!is_tensor(tensor.ptr()) || !as_tensor(tensor.ptr())->plain) return nb::none();
  const Node* n = current(as_tensor(tensor.ptr())->tensor)->node;
  void* hooks = !n ? nullptr : !final ? n->hooks : n->leaf ? n->final_hooks : nullptr;
  if (!hooks) return nb::none();
  return nb::borrow(static_cast<PyObject*>(hooks));
}

// The hooks called when a leaf's gradient is final; None if the tensor is not a leaf.
nb::object final_hooks_of(nb::handle tensor) {
  Node* n = value_from(tensor, "register_post_accumulate_hook")->node;
  if (!n || !n->leaf) return nb::none();
  if (!n->final_hooks) {
    n->final_hooks = nb::list().release().ptr();
    ++n_final_hooks;
  }
  make_collectable(as_tensor(tensor.ptr()));
  return nb::borrow(static_cast<PyObject*>(n->final_hooks));
}

void call_final_hooks(void* hooks) {
  try {
    const nb::list functions(nb::cast<nb::list>(nb::handle(static_cast<PyObject*>(hooks))));
    std::vector<nb::object> snapshot;  // a hook may remove itself
    for (nb::handle f : functions) snapshot.push_back(nb::borrow(f));
    for (nb::object& f : snapshot) f();
  } catch (nb::python_error& e) {
    e.restore();
    throw Error(ErrorKind::python, "");
  }
}

}  // namespace

void init_hooks(nb::module_& m) {
  m.def("hooks_of", &hooks_of);
  m.def("final_hooks_of", &final_hooks_of);
  m.def("existing_hooks", &existing_hooks);
  tape_hooks.any_hooks = [](void* hooks) { return PyList_GET_SIZE(static_cast<PyObject*>(hooks)) > 0; };
  tape_hooks.call_hooks = call_hooks;
  tape_hooks.call_final_hooks = call_final_hooks;
}

}  // namespace wengert
