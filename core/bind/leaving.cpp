#include "leaving.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "program.h"
#include "tensor_parts.h"

namespace nb = nanobind;

namespace wengert {

namespace {

// What the running transformations of this thread differentiate with respect to, outermost first. Each owns its nodes.
using Sources = std::vector<Node*>;
constinit thread_local std::vector<Sources>* running = nullptr;

bool depends_on_sources(Node* from) {
  std::unordered_set<const Node*> wanted, seen;
  uint64_t first = UINT64_MAX;  // nodes recorded before every source cannot depend on one
  for (const Sources& sources : *running)
    for (const Node* n : sources) {
      wanted.insert(n);
      first = std::min(first, n->seq);
    }
  std::vector<Node*> todo{from};
  while (!todo.empty()) {
    Node* n = todo.back();
    todo.pop_back();
    if (n->seq < first || !seen.insert(n).second) continue;
    if (wanted.contains(n)) return true;
    for (int i = 0; i < n->n_edges; ++i)
      if (n->edges[i].node) todo.push_back(n->edges[i].node);
  }
  return false;
}

bool inside_transformation(const Value* v) {
  return running && !running->empty() && thread_state.grad_enabled && v->node && depends_on_sources(v->node);
}

Value* plain_value(nb::handle h) {
  if (!is_tensor(h.ptr()) || !as_tensor(h.ptr())->plain) return nullptr;
  return current(as_tensor(h.ptr())->tensor);
}

}  // namespace

void enter_transformation(std::vector<Node*> sources) {
  if (!running) running = new std::vector<Sources>;
  for (Node* n : sources) retain(n);
  running->push_back(std::move(sources));
}

void leave_transformation() {
  if (!running || running->empty()) return;
  Sources sources = std::move(running->back());
  running->pop_back();
  for (Node* n : sources) release(n);
}

namespace {

void enter_by_tensors(const nb::list& tensors) {
  Sources sources;
  for (nb::handle h : tensors)
    if (const Value* v = plain_value(h); v && v->node) sources.push_back(v->node);
  enter_transformation(std::move(sources));
}

}  // namespace

bool may_leave(PyObject* tensor, const Value* v, Leaving how, const char* what) {
  if (!v->node) return true;
  const bool inside = inside_transformation(v);
  const bool has_history = how == Leaving::array && !v->node->leaf && tracked(v);
  if (!inside && !has_history) return true;
  PyObject* r = PyObject_CallFunction(python_hooks.refuse_leaving, "Osi", tensor, what, static_cast<int>(inside));
  Py_XDECREF(r);
  return false;
}

void init_leaving(nb::module_& m) {
  m.def("enter_transformation", &enter_by_tensors);
  m.def("leave_transformation", &leave_transformation);
  // Whether the tensor depends on something that a running transformation of this thread differentiates with respect
  // to.
  m.def("inside_transformation", [](nb::handle tensor) {
    const Value* v = plain_value(tensor);
    return v && inside_transformation(v);
  });
  // The same memory without history, for reading the numbers; also while a function is traced.
  m.def("data", [](nb::handle tensor) {
    if (!is_tensor(tensor.ptr())) throw nb::type_error("data: expected a tensor");
    Value* v = data_of(tensor.ptr(), "numpy");
    if (!v) throw nb::python_error();
    if (v->device != kCpu) return guarded([&] { return to_python(on_device(v, kCpu)); });
    const bool shared = v->buffer->shared;
    PyObject* t = wrap(alias(v));
    v->buffer->shared = shared;  // only for reading, so this does not count as sharing
    if (!t) throw nb::python_error();
    as_tensor(t)->look = true;
    return nb::steal(t);
  });
  // Raises if a number of the tensor, or with `array` the whole array, must not leave.
  m.def(
      "check_leaving",
      [](nb::handle tensor, const char* what, bool array) {
        const Value* v = plain_value(tensor);
        if (v && !may_leave(tensor.ptr(), v, array ? Leaving::array : Leaving::number, what)) throw nb::python_error();
      },
      nb::arg("tensor"), nb::arg("what"), nb::arg("array") = false);
}

}  // namespace wengert
