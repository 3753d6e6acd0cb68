#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "program.h"

namespace wengert {

namespace {

// A node as Python sees it while a derivative is being recorded, printed or explained.
struct NodeHandle {
  Node* node;
  explicit NodeHandle(Node* n) : node(n) { retain(n); }
  NodeHandle(const NodeHandle& o) : node(o.node) { retain(node); }
  NodeHandle& operator=(const NodeHandle&) = delete;
  ~NodeHandle() { release(node); }
};

nb::list saved(const NodeHandle& h) {
  return guarded([&] {
    Node* n = h.node;
    if (is_freed(n)) fail_freed(n);
    check_saved(n);
    nb::list out;
    for (int i = 0; i < n->n_saved; ++i) out.append(to_python(saved_operand(n, i)));
    return out;
  });
}

nb::list edges(const NodeHandle& h) {
  nb::list out;
  for (int i = 0; i < h.node->n_edges; ++i) {
    const Edge& e = h.node->edges[i];
    if (e.node)
      out.append(nb::make_tuple(NodeHandle(e.node), e.output));
    else
      out.append(nb::none());
  }
  return out;
}

nb::list sizes(const NodeHandle& h) {
  nb::list out;
  if (h.node->derivative)
    for (size_t i = 0; i < h.node->derivative->sizes.size(); ++i) out.append(h.node->sizes[i]);
  return out;
}

Value* plain_value(nb::handle h) {
  return is_tensor(h.ptr()) && as_tensor(h.ptr())->plain ? current(as_tensor(h.ptr())->tensor) : nullptr;
}

}  // namespace

nb::object node_to_python(Node* n) { return nb::cast(NodeHandle(n)); }

Value* end_of_walk(nb::handle h, const char* what) {
  Value* v = plain_value(h);
  return v && v->node && v->node->lifetime.extent ? v : value_from(h, what);
}

namespace {

nb::object node_of(nb::handle tensor) {
  Value* v = end_of_walk(tensor, "node");
  if (!v->node) return nb::none();
  return nb::make_tuple(NodeHandle(v->node), v->output);
}

Edge edge_of(nb::handle h) {
  nb::tuple t = nb::cast<nb::tuple>(h);
  return {nb::cast<NodeHandle&>(nb::object(t[0])).node, nb::cast<uint32_t>(nb::object(t[1]))};
}

// Sets whether instructions are recorded during a walk; never turns recording on if it was off.
struct Recording {
  bool before = thread_state.grad_enabled;
  explicit Recording(bool on) { thread_state.grad_enabled = before && on; }
  ~Recording() { thread_state.grad_enabled = before; }
};

// roots: (tensor, seed tensor); sources: None, or a list of None | (node, output).
// Returns (gradients of sources, which were reached, [(id, gradient) of leaves], nodes run, edges computed).
nb::tuple backward(const nb::list& roots, nb::handle sources, bool retain_graph, bool accumulate_grads, bool all_leaves,
                   bool record) {
  return guarded([&] {
    std::vector<Root> from;
    for (nb::handle h : roots) {
      nb::tuple t = nb::cast<nb::tuple>(h);
      from.push_back({end_of_walk(nb::object(t[0]), "backward"), value_from(nb::object(t[1]), "backward")});
    }
    std::vector<Edge> wanted;
    WalkOptions options;
    options.retain_graph = retain_graph;
    options.accumulate = accumulate_grads;
    options.all_leaves = all_leaves;
    options.record = record;
    Recording recording(record);
    if (!sources.is_none()) {
      for (nb::handle h : nb::cast<nb::list>(sources)) wanted.push_back(h.is_none() ? Edge{nullptr, 0} : edge_of(h));
      options.sources = &wanted;
    }
    WalkResult r = walk(from, options);
    nb::list gradients, reached, leaves;
    for (size_t i = 0; i < r.sources.size(); ++i) {
      gradients.append(to_python(r.sources[i]));
      reached.append(static_cast<bool>(r.reached[i]));
    }
    for (auto& [id, v] : r.leaves) leaves.append(nb::make_tuple(id, to_python(v)));
    return nb::make_tuple(gradients, reached, leaves, r.nodes_run, r.edges_computed);
  });
}

// The initial cotangent of a recorded tensor: the given one if its type fits, or one for a real scalar. Null in all
// other cases, which Python converts or refuses.
Ref simple_seed(Value* y, nb::handle given) {
  if (!y || !y->node || !is_inexact(y->dtype)) return Ref();
  if (given.is_none()) {
    if (y->size != 1 || !is_floating(y->dtype)) return Ref();
    Ref one(empty_like(y, y->dtype));
    fill_value(one.v, 1.0);
    one->made = Value::kLiteral;
    return one;
  }
  Value* seed = plain_value(given);
  const bool fits = seed && seed->dtype == y->dtype && seed->dims() == y->dims() && !seed->buffer->pinned;
  return fits ? Ref::share(seed) : Ref();
}

// The common case of `Tensor.backward`: all leaves, gradients accumulated. Returns ({id: gradient}, node), or None if
// this is another case.
nb::object backward_to_leaves(nb::handle tensor, nb::handle gradient, bool retain_graph) {
  return guarded([&]() -> nb::object {
    Value* y = plain_value(tensor);
    Ref seed = simple_seed(y, gradient);
    if (!seed.v) return nb::none();
    WalkOptions options;
    options.retain_graph = retain_graph;
    options.accumulate = options.all_leaves = true;
    Recording recording(false);
    NodeHandle root(y->node);
    WalkResult r = walk({{y, seed.v}}, options);
    nb::dict gradients;
    for (auto& [id, g] : r.leaves) gradients[nb::int_(id)] = to_python(g);
    return nb::make_tuple(gradients, root);
  });
}

// The common case of `grad_of`: one output, and inputs in a list or a tuple. Returns a list of gradients, with None for
// inputs that the output does not depend on; or None if this is another case.
nb::object gradients_by(nb::handle tensor, nb::handle inputs, nb::handle gradient, bool retain_graph, bool record) {
  return guarded([&]() -> nb::object {
    if (!PyList_CheckExact(inputs.ptr()) && !PyTuple_CheckExact(inputs.ptr())) return nb::none();
    Value* y = plain_value(tensor);
    Ref seed = simple_seed(y, gradient);
    if (!seed.v) return nb::none();
    std::vector<Value*> xs;
    std::vector<Edge> edges;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(inputs.ptr()); ++i) {
      xs.push_back(plain_value(PySequence_Fast_GET_ITEM(inputs.ptr(), i)));
      if (!xs.back()) return nb::none();
      edges.push_back({xs.back()->node, xs.back()->output});
    }
    WalkOptions options;
    options.retain_graph = retain_graph;
    options.sources = &edges;
    options.record = record;
    Recording recording(record);
    WalkResult r = walk({{y, seed.v}}, options);
    nb::list gradients;
    for (size_t i = 0; i < xs.size(); ++i) {
      Value* g = r.sources[i];
      if (!g && r.reached[i]) {
        g = zeros(xs[i]->type());
      }
      gradients.append(to_python(g));
    }
    return gradients;
  });
}

// Records a custom node; `pullback` takes the cotangents of all outputs and returns one cotangent (or None) per input.
void record_custom_node(nb::handle pullback, const nb::list& inputs, const nb::list& outputs) {
  guarded([&] {
    std::vector<Value*> in, out;
    for (nb::handle h : inputs) in.push_back(value_from(h, "custom op"));
    for (nb::handle h : outputs) out.push_back(value_from(h, "custom op"));
    if (!any_tracked(in.data(), static_cast<int>(in.size()))) return;
    record_custom(pullback.inc_ref().ptr(), in.data(), static_cast<int>(in.size()), out.data(),
                  static_cast<int>(out.size()));
  });
}

}  // namespace

nb::object fresh_leaf(nb::handle tensor, uint64_t id, uint32_t extent) {
  Value* v = alias(value_from(tensor, "leaf"));
  v->node = new_leaf(id ? id : new_id(), {.extent = extent}, v->type());
  nb::object t = to_python(v);
  as_tensor(t.ptr())->requires_grad = 1;
  return t;
}

namespace {

// Limits how long results computed from this tensor stay tracked: until the extent ends, unless something else tracks
// them.
void track_in_extent(nb::handle tensor, uint32_t extent) {
  Node* n = value_from(tensor, "extent")->node;
  if (n) n->lifetime = longer(n->lifetime, {.extent = extent});
}

// Gives a detached output of a node its edge back, for use while the derivative is recorded.
nb::object reattach(const NodeHandle& h, uint32_t output, nb::handle tensor) {
  Value* v = alias(value_from(tensor, "output"));
  retain(h.node);
  v->node = h.node;
  v->output = output;
  return to_python(v);
}

void call_custom(Node* n, Value* const* bars, Value** out, bool record) {
  nb::list args;
  for (int i = 0; i < n->n_outputs; ++i) {
    retain(bars[i]);
    args.append(to_python(bars[i]));
  }
  try {
    nb::handle pullback(static_cast<PyObject*>(n->custom));
    nb::object result = record ? pullback(args, NodeHandle(n)) : pullback(args);
    nb::sequence bars_in = nb::cast<nb::sequence>(result);
    for (int i = 0; i < n->n_edges; ++i) {
      nb::object g = bars_in[i];
      if (g.is_none()) continue;
      out[i] = value_from(g, "custom op");
      retain(out[i]);
    }
  } catch (nb::python_error& e) {
    e.restore();
    throw Error(ErrorKind::python, "");
  }
}

void retain_grad(nb::handle tensor) {
  Value* v = value_from(tensor, "retain_grad");
  if (!v->node || v->node->leaf) return;
  v->node->retains_grad = true;
  v->node->id = id_of(as_tensor(tensor.ptr()));
}

nb::object set_grad_enabled(bool on) {
  bool before = thread_state.grad_enabled;
  thread_state.grad_enabled = on;
  return nb::bool_(before);
}

// Sets whether ops on plain tensors become instructions of the open trace; returns the previous setting.
bool set_capturing(bool on) {
  ThreadState& s = thread_state;
  std::swap(s.capturing, on);
  s.update();
  return on;
}

void mark_changed(nb::handle tensor, bool on) {
  if (!is_tensor(tensor.ptr())) throw nb::type_error("mark_changed: takes a tensor");
  as_tensor(tensor.ptr())->changed = on;
}

void bind_tape_class(nb::module_& m) {
  nb::class_<Tape>(m, "TapeRecord", "An ordered owner of recorded instructions.")
      .def(nb::init<>())
      .def("start", [](Tape& t) { start(t); })
      .def("stop", [](Tape& t) { stop(t); })
      .def("clear", &Tape::clear)
      .def("handle",
           [](const Tape& t, uint64_t id) {
             auto it = t.handles.find(id);
             if (it == t.handles.end()) return nb::object(nb::none());
             retain(it->second);
             return to_python(it->second);
           })
      .def_ro("recording", &Tape::recording)
      .def_ro("epoch", &Tape::epoch)
      .def_prop_ro("n_nodes", [](const Tape& t) { return t.nodes.size(); })
      .def("calls", [](const Tape& t) {
        nb::list out;
        for (const auto& call : t.calls) out.append(std::const_pointer_cast<Call>(call));
        return out;
      });
  m.def("recording_tapes", [] { return thread_state.n_tapes; });
}

}  // namespace

void init_tape(nb::module_& m) {
  nb::class_<NodeHandle>(m, "Node", "A recorded instruction.")
      .def_prop_ro("key", [](const NodeHandle& h) { return reinterpret_cast<uintptr_t>(h.node); })
      .def_prop_ro("seq", [](const NodeHandle& h) { return h.node->seq; })
      .def_prop_ro("is_leaf", [](const NodeHandle& h) { return h.node->leaf; })
      .def_prop_ro("id", [](const NodeHandle& h) { return h.node->id; })
      .def_prop_ro("freed", [](const NodeHandle& h) { return is_freed(h.node); })
      .def_prop_ro("end", [](const NodeHandle& h) { return h.node->end; })
      .def_prop_ro("zero_edges", [](const NodeHandle& h) { return h.node->zero_edges; })
      .def_prop_ro("n_outputs", [](const NodeHandle& h) { return static_cast<int>(h.node->n_outputs); })
      .def_prop_ro("types",  // (dtype, shape) of the outputs of an instruction that has several, or of a leaf
                   [](const NodeHandle& h) {
                     nb::list found;
                     for (int i = 0; h.node->types && i < h.node->n_outputs; ++i)
                       found.append(nb::make_tuple(static_cast<int>(h.node->types[i].dtype),
                                                   nb::steal(dims_to_python(h.node->types[i].shape))));
                     return found;
                   })
      .def_prop_ro("active", [](const NodeHandle& h) { return active(h.node); })
      .def_prop_ro("name",
                   [](const NodeHandle& h) {
                     if (h.node->leaf) return std::string("leaf");
                     return h.node->derivative ? h.node->derivative->name : std::string("custom");
                   })
      .def_prop_ro("line", [](const NodeHandle& h) { return describe(h.node->line); })
      .def_prop_ro("custom",
                   [](const NodeHandle& h) {
                     void* custom = h.node->leaf ? nullptr : h.node->custom;
                     return custom ? nb::borrow(static_cast<PyObject*>(custom)) : nb::none();
                   })
      .def_prop_ro("derivation",
                   [](const NodeHandle& h) {
                     if (!h.node->derivative || !h.node->derivative->python) return nb::object(nb::none());
                     return nb::borrow(static_cast<PyObject*>(h.node->derivative->python));
                   })
      .def_prop_ro("hooks",
                   [](const NodeHandle& h) {
                     return h.node->hooks ? nb::borrow(static_cast<PyObject*>(h.node->hooks)) : nb::none();
                   })
      .def_prop_ro("saved", &saved)
      .def_prop_ro("edges", &edges)
      .def_prop_ro("sizes", &sizes)
      .def("keep_grad", [](const NodeHandle& h, nb::handle g) { keep_grad(h.node, value_from(g, "grad")); })
      .def("__eq__", [](const NodeHandle& a, const NodeHandle& b) { return a.node == b.node; })
      .def("__hash__", [](const NodeHandle& h) { return reinterpret_cast<Py_ssize_t>(h.node) >> 4; });
  bind_tape_class(m);
  m.def("node_of", &node_of);
  m.def("backward", &backward, nb::arg("roots"), nb::arg("sources").none(), nb::arg("retain_graph"),
        nb::arg("accumulate"), nb::arg("all_leaves"), nb::arg("record") = false);
  m.def("backward_to_leaves", &backward_to_leaves, nb::arg("tensor"), nb::arg("gradient").none(),
        nb::arg("retain_graph"));
  m.def("gradients_by", &gradients_by, nb::arg("tensor"), nb::arg("inputs"), nb::arg("gradient").none(),
        nb::arg("retain_graph"), nb::arg("record"));
  m.def("record_custom", &record_custom_node);
  m.def("begin_extent", &begin_extent);
  m.def("end_extent", &end_extent);
  m.def("track_in_extent", &track_in_extent);
  m.def("fresh_leaf", &fresh_leaf, nb::arg("tensor"), nb::arg("id") = 0, nb::arg("extent") = 0);
  m.def("reattach", &reattach);
  m.def("grad_of", [](nb::handle tensor) {
    if (!is_tensor(tensor.ptr())) throw nb::type_error("grad_of: takes a tensor");
    return nb::steal(grad_of(as_tensor(tensor.ptr())));
  });
  m.def("retain_grad", &retain_grad);
  m.def("set_grad_enabled", &set_grad_enabled);
  m.def("set_capturing", &set_capturing);
  m.def("mark_changed", &mark_changed);
  m.def("is_grad_enabled", [] { return thread_state.grad_enabled; });
  m.def("inside_reverse", [] { return thread_state.n_extents > 0; });

  tape_hooks.source_line = current_line;
  drop_source_line = [](SourceLine line) { Py_DECREF(static_cast<PyObject*>(line.code)); };
  tape_hooks.drop_line = [](SourceLine line) { Py_DECREF(static_cast<PyObject*>(line.code)); };
  tape_hooks.drop_object = [](void* o) { Py_DECREF(static_cast<PyObject*>(o)); };
  tape_hooks.describe_line = describe;
  tape_hooks.call_custom = call_custom;
}

}  // namespace wengert
