// Finds hooks that can never be called: they close over a tensor that was computed from the one they are registered on,
// and nothing else refers to that tensor. Python's collector cannot see such a cycle because it leads through nodes and
// values, so the references are counted here, over both kinds of objects.
#include <unordered_map>

#include "program.h"

namespace wengert {

namespace {

enum class Kind : uint8_t { object, value, node, alias };

struct Visit {
  Kind kind;
  int64_t inside = 0;  // references from objects visited so far
  bool alive = false;
};

bool is_plain_tensor(PyObject* o) { return is_tensor(o) && as_tensor(o)->plain && !as_tensor(o)->held; }

// Whether all references held by an object of this type are followed. Other objects are assumed to be alive.
bool is_followed(PyObject* o) {
  static PyObject* const partial = nb::object(nb::module_::import_("functools").attr("partial")).release().ptr();
  return PyCell_Check(o) || PyTuple_CheckExact(o) || PyList_CheckExact(o) || PyDict_CheckExact(o) ||
         PyMethod_Check(o) || reinterpret_cast<PyObject*>(Py_TYPE(o)) == partial;
}

class Search {
 public:
  // The hook lists that nothing outside refers to, as new references, given all hooks.
  std::vector<PyObject*> unreachable(PyObject* hooks) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(hooks); ++i) meet(PyList_GET_ITEM(hooks, i), Kind::object);
    for (size_t i = 0; i < found_.size(); ++i) each_reference(found_[i], [this](void* p, Kind kind) { meet(p, kind); });
    for (void* p : found_)
      if (references(p) > visits_.at(p).inside) mark(p);
    std::vector<PyObject*> dead;
    for (void* p : found_) {
      if (visits_.at(p).kind != Kind::node || visits_.at(p).alive) continue;
      const Node* n = static_cast<Node*>(p);
      for (void* list : {n->hooks, n->leaf ? n->final_hooks : nullptr})
        if (list && !visits_.at(list).alive) dead.push_back(Py_NewRef(static_cast<PyObject*>(list)));
    }
    return dead;
  }

 private:
  void meet(void* p, Kind kind) {
    auto [it, fresh] = visits_.try_emplace(p, Visit{kind});
    ++it->second.inside;
    if (fresh) found_.push_back(p);
  }

  void mark(void* first) {
    std::vector<void*> marked = {first};
    while (!marked.empty()) {
      void* p = marked.back();
      marked.pop_back();
      if (std::exchange(visits_.at(p).alive, true)) continue;
      each_reference(p, [&](void* next, Kind) { marked.push_back(next); });
    }
  }

  int64_t references(void* p) const {
    switch (visits_.at(p).kind) {
      case Kind::object: return Py_REFCNT(static_cast<PyObject*>(p));
      case Kind::value: return static_cast<Value*>(p)->refs;
      case Kind::node: return static_cast<Node*>(p)->refs;
      case Kind::alias: return static_cast<Alias*>(p)->refs;
    }
    return INT64_MAX;
  }

  template <class Visit>
  void each_reference(void* p, Visit visit) const {
    switch (visits_.at(p).kind) {
      case Kind::object: return of_object(static_cast<PyObject*>(p), visit);
      case Kind::alias: return visit(static_cast<Alias*>(p)->base, Kind::value);
      case Kind::value:
        if (Node* n = static_cast<Value*>(p)->node) visit(n, Kind::node);
        return;
      case Kind::node: return of_node(static_cast<Node*>(p), visit);
    }
  }

  template <class Visit>
  static void of_node(Node* n, Visit visit) {
    for (int i = 0; i < n->n_edges; ++i)
      if (n->edges[i].node) visit(n->edges[i].node, Kind::node);
    for (int i = 0; i < n->n_saved; ++i)
      if (n->saved[i].value) visit(n->saved[i].value, Kind::value);
    if (n->hooks) visit(n->hooks, Kind::object);
    if (n->leaf && n->final_hooks) visit(n->final_hooks, Kind::object);
  }

  template <class Visit>
  static void of_object(PyObject* o, Visit visit) {
    if (is_plain_tensor(o)) {
      const Tensor& t = as_tensor(o)->tensor;
      if (t.value) visit(t.value, Kind::value);
      if (t.alias) visit(t.alias, Kind::alias);
    } else if (PyFunction_Check(o)) {  // not its globals, which are alive
      for (PyObject* part : {PyFunction_GET_CLOSURE(o), PyFunction_GET_DEFAULTS(o), PyFunction_GET_KW_DEFAULTS(o)})
        if (part) visit(part, Kind::object);
    } else if (is_followed(o)) {
      auto call = [](PyObject* part, void* to) {
        (*static_cast<Visit*>(to))(part, Kind::object);
        return 0;
      };
      Py_TYPE(o)->tp_traverse(o, call, &visit);
    }
  }

  std::unordered_map<void*, Visit> visits_;
  std::vector<void*> found_;
};

// free_unreachable_hooks(hooks): removes those hooks that only unreachable tensors would call.
void free_unreachable_hooks(nb::list hooks) {
  const std::vector<PyObject*> dead = Search().unreachable(hooks.ptr());
  for (PyObject* list : dead) PyList_SetSlice(list, 0, PyList_GET_SIZE(list), nullptr);
  for (PyObject* list : dead) Py_DECREF(list);
}

}  // namespace

void init_hook_cycles(nb::module_& m) { m.def("free_unreachable_hooks", &free_unreachable_hooks); }

}  // namespace wengert
