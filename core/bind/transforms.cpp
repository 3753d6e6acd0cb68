// Native transformations of functions whose arguments and results are plain or dual tensors. Nested, traced and other
// arguments are left to `wengert.transforms.functional`, which gives the same results.
#include <nanobind/stl/pair.h>

#include <cstring>

#include "dual.h"
#include "leaving.h"
#include "program.h"

namespace wengert {

namespace {

using Objects = std::vector<nb::object>;

// --------------------------------------------------------------------------------------------------- reverse mode

struct Extent {
  uint32_t number = begin_extent();
  bool grad_enabled = std::exchange(thread_state.grad_enabled, true);
  Extent() = default;
  Extent(const Extent&) = delete;
  ~Extent() {
    thread_state.grad_enabled = grad_enabled;
    end_extent(number);
  }
};

struct NumbersKept {
  explicit NumbersKept(const Objects& sources) {
    std::vector<Node*> nodes;
    for (const nb::object& s : sources)
      if (const Value* v = bottom_value(s.ptr()); v && v->node) nodes.push_back(v->node);
    enter_transformation(std::move(nodes));
  }
  NumbersKept(const NumbersKept&) = delete;
  ~NumbersKept() { leave_transformation(); }
};

nb::object stolen(PyObject* o) {
  if (!o) throw Error(ErrorKind::python, "");
  return nb::steal(o);
}

bool is_tracked(nb::handle x) {
  if (!is_dual(x.ptr())) return tracked(current(as_tensor(x.ptr())->tensor));
  const PairObject* pair = pair_of(x.ptr());
  return is_tracked(pair->value) || (pair->tangent != Py_None && is_tracked(pair->tangent));
}

// x as a new variable, tracked until the extent ends. Derivatives stop there, except those of an outer transformation.
nb::object source_of(nb::handle x, bool outer, uint32_t extent) {
  static const Op& reshape = *find_op("reshape");
  if (is_dual(x.ptr())) {
    const PairObject* pair = pair_of(x.ptr());
    const nb::object value = source_of(pair->value, outer, extent);
    return stolen(new_dual(pair->level, value.ptr(), pair->tangent));
  }
  const Value* v = current(as_tensor(x.ptr())->tensor);
  if (outer && (tracked(v) || thread_state.n_tapes)) {
    Attrs shape;
    shape.add(Attr::Kind::sizes).dims = v->dims();
    PyObject* operand_object = x.ptr();
    nb::object same = stolen(try_op(reshape, &operand_object, 1, shape));
    Node* n = current(as_tensor(same.ptr())->tensor)->node;
    if (n && active(n)) {  // unless a tape was told to leave x alone
      n->lifetime = longer(n->lifetime, {.extent = extent});
      return same;
    }
  }
  return fresh_leaf(x, 0, extent);
}

// The same tensor under a new name.
nb::object renamed(nb::handle x) {
  if (!is_dual(x.ptr())) return another_name(x);
  const PairObject* pair = pair_of(x.ptr());
  return stolen(new_dual(pair->level, pair->value, pair->tangent));
}

// Whether ops on it are applied natively: it is plain, or a dual of plain tensors.
bool is_simple(nb::handle x) { return bottom_value(x.ptr()) != nullptr; }

struct Seeded {
  nb::object y, bar;
};

// The highest level among the duals, or null. Borrowed.
PyObject* highest_level(const std::vector<Seeded>& roots, const Objects& sources) {
  PyObject* level = nullptr;
  int64_t order = 0;
  auto look = [&](nb::handle x) {
    if (!is_dual(x.ptr()) || pair_of(x.ptr())->order <= order) return;
    order = pair_of(x.ptr())->order;
    level = pair_of(x.ptr())->level;
  };
  for (const Seeded& r : roots) {
    look(r.y);
    look(r.bar);
  }
  for (const nb::object& s : sources) look(s);
  return level;
}

struct Split {
  nb::object value, tangent;  // None means zero
  Split(nb::handle x, PyObject* level) {
    const PairObject* pair = is_dual(x.ptr()) ? pair_of(x.ptr()) : nullptr;
    const bool here = pair && pair->level == level;
    value = nb::borrow(here ? nb::handle(pair->value) : x);
    tangent = here ? nb::borrow(pair->tangent) : nb::none();
  }
};

nb::object zeros_like(nb::handle x) {
  const Value* v = bottom_value(x.ptr());
  return to_python(zeros(v->type()));
}

// Switches recording off during a walk, unless its result must be differentiable.
struct Recording {
  bool before = thread_state.grad_enabled;
  explicit Recording(bool on) { thread_state.grad_enabled = before && on; }
  Recording(const Recording&) = delete;
  ~Recording() { thread_state.grad_enabled = before; }
};

struct Pulling {
  bool retain, record;
};

Objects pull_plain(const std::vector<Seeded>& roots, const Objects& sources, Pulling how) {
  std::vector<Root> from;
  from.reserve(roots.size());
  for (const Seeded& r : roots) from.push_back({end_of_walk(r.y, "backward"), value_from(r.bar, "backward")});
  std::vector<Edge> edges;
  edges.reserve(sources.size());
  for (const nb::object& s : sources) {
    const Value* v = end_of_walk(s, "node");
    edges.push_back({v->node, v->output});
  }
  WalkOptions options;
  options.retain_graph = how.retain;
  options.record = how.record;
  options.sources = &edges;
  WalkResult r = walk(from, options);
  Objects gradients;
  gradients.reserve(sources.size());
  for (size_t i = 0; i < sources.size(); ++i)
    gradients.push_back(!r.sources[i] && r.reached[i] ? zeros_like(sources[i]) : to_python(r.sources[i]));
  return gradients;
}

// Cotangents of the sources; none for a source that the outputs do not depend on. With y = f(x + εẋ), the gradient's
// value is ȳ·∂y/∂x, and its tangent is ȳ·∂ẏ/∂x + ȳ̇·∂y/∂x.
Objects pull(const std::vector<Seeded>& roots, const Objects& sources, Pulling how) {
  PyObject* level = highest_level(roots, sources);
  if (!level) return pull_plain(roots, sources, how);
  std::vector<Seeded> values, tangents;
  for (const Seeded& r : roots) {
    const Split y(r.y, level), bar(r.bar, level);
    values.push_back({y.value, bar.value});
    if (!y.tangent.is_none()) tangents.push_back({y.tangent, bar.value});
    if (!bar.tangent.is_none()) tangents.push_back({y.value, bar.tangent});
  }
  Objects xs;
  for (const nb::object& s : sources) xs.push_back(Split(s, level).value);
  Objects gradients = pull(values, xs, {true, how.record});
  if (tangents.empty()) return gradients;
  Objects dots = pull(tangents, xs, how);
  for (size_t i = 0; i < xs.size(); ++i)
    if (!gradients[i].is_none() && !dots[i].is_none())
      gradients[i] = stolen(new_dual(level, gradients[i].ptr(), dots[i].ptr()));
  return gradients;
}

Objects items_of(nb::handle sequence) {
  const nb::object items = stolen(PySequence_Fast(sequence.ptr(), "pull_back: takes sequences of tensors"));
  Objects found;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i)
    found.push_back(nb::borrow(PySequence_Fast_GET_ITEM(items.ptr(), i)));
  return found;
}

// pull_back(outputs, bars, sources, retain, record): a list of cotangents of the sources; None if a tensor is neither
// plain nor dual.
nb::object pull_back(nb::handle outputs, nb::handle bars, nb::handle sources, bool retain, bool record) {
  return guarded([&]() -> nb::object {
    const Objects ys = items_of(outputs), y_bars = items_of(bars), xs = items_of(sources);
    std::vector<Seeded> roots;
    for (size_t i = 0; i < ys.size() && i < y_bars.size(); ++i) {
      if (!is_simple(ys[i]) || !is_simple(y_bars[i])) return nb::none();
      roots.push_back({ys[i], y_bars[i]});
    }
    for (const nb::object& x : xs)
      if (!is_simple(x)) return nb::none();
    const Recording recording(record);
    nb::list gradients;
    for (nb::object& g : pull(roots, xs, {retain, record})) gradients.append(g);
    return gradients;
  });
}

// x detached from the graph; tangents of outer transformations stay, also under no_grad.
nb::object detached(nb::handle x) {
  if (is_dual(x.ptr())) {
    const PairObject* pair = pair_of(x.ptr());
    nb::object value = detached(pair->value);
    if (pair->tangent == Py_None) return value;
    nb::object tangent = detached(pair->tangent);
    return stolen(new_dual(pair->level, value.ptr(), tangent.ptr()));
  }
  Value* v = current(as_tensor(x.ptr())->tensor);
  return stolen(wrap_view(alias(v), as_tensor(x.ptr()), true));
}

// Calls f with some of its arguments replaced, by these under names of their own.
nb::object call_with(nb::handle f, const nb::tuple& args, nb::handle kwargs, const std::vector<size_t>& positions,
                     const Objects& replaced) {
  nb::object filled = stolen(PyTuple_New(static_cast<Py_ssize_t>(args.size())));
  for (size_t k = 0; k < args.size(); ++k) PyTuple_SET_ITEM(filled.ptr(), k, nb::object(args[k]).release().ptr());
  for (size_t k = 0; k < positions.size(); ++k) {
    Py_DECREF(PyTuple_GET_ITEM(filled.ptr(), positions[k]));
    PyTuple_SET_ITEM(filled.ptr(), positions[k], nullptr);
    PyTuple_SET_ITEM(filled.ptr(), positions[k], renamed(replaced[k]).release().ptr());
  }
  return stolen(PyObject_Call(f.ptr(), filled.ptr(), PyDict_GET_SIZE(kwargs.ptr()) ? kwargs.ptr() : nullptr));
}

// Resolves argnums to non-negative indices; false if an argument is missing or not simple.
bool find_arguments(const nb::tuple& args, const nb::tuple& argnums, std::vector<size_t>& positions) {
  const auto n = static_cast<int64_t>(args.size());
  for (nb::handle h : argnums) {
    if (!PyLong_CheckExact(h.ptr())) return false;
    int overflow;
    const int64_t k = PyLong_AsLongLongAndOverflow(h.ptr(), &overflow);
    if (overflow || k < -n || k >= n) return false;
    positions.push_back(static_cast<size_t>(k < 0 ? k + n : k));
    const Value* v = bottom_value(nb::object(args[positions.back()]).ptr());
    if (!v || !is_inexact(v->dtype)) return false;
  }
  return true;
}

bool is_real_scalar(nb::handle y) {
  const Value* v = bottom_value(y.ptr());
  return v && is_floating(v->dtype) && v->size == 1;
}

nb::object one_like(nb::handle y) {
  const Value* v = bottom_value(y.ptr());
  Ref one(empty_like(v, v->dtype));
  fill_value(one.v, 1.0);
  one->made = Value::kLiteral;
  return to_python(one.take());
}

// value_and_gradient(f, args, kwargs, argnums, settle): (f(*args), its gradients, whether it depends on no argument).
// Returns (sources, result) if the result is not a real scalar, for Python to finish, and None, before calling f, if an
// argument is neither plain nor dual. settle(result) is called for results that are not plain, while arguments are
// tracked.
nb::object value_and_gradient(nb::handle f, const nb::tuple& args, nb::handle kwargs, const nb::tuple& argnums,
                              nb::handle settle) {
  return guarded([&]() -> nb::object {
    std::vector<size_t> positions;
    if (thread_state.capturing || !find_arguments(args, argnums, positions)) return nb::none();
    const bool outer = thread_state.grad_enabled;
    Objects sources;
    sources.reserve(positions.size());
    nb::object y;
    {
      Extent extent;
      for (size_t k : positions) sources.push_back(source_of(nb::object(args[k]), outer, extent.number));
      NumbersKept kept(sources);
      y = call_with(f, args, kwargs, positions, sources);
      if (!is_simple(y)) settle(y);  // reading a dual has brought it up to date
    }
    if (!is_real_scalar(y) || thread_state.capturing) {
      nb::list given;
      for (nb::object& s : sources) given.append(s);
      return nb::make_tuple(given, y);
    }
    const bool record = outer && is_tracked(y);
    bool independent = true;
    Objects gradients;
    {
      const Recording recording(record);
      gradients = pull({{y, one_like(y)}}, sources, {record, record});
    }
    for (size_t k = 0; k < gradients.size(); ++k) {
      independent &= gradients[k].is_none();
      if (gradients[k].is_none()) gradients[k] = zeros_like(sources[k]);
      if (!outer && is_dual(gradients[k].ptr())) gradients[k] = detached(gradients[k]);
    }
    nb::object found = stolen(PyTuple_New(static_cast<Py_ssize_t>(gradients.size())));
    for (size_t k = 0; k < gradients.size(); ++k) PyTuple_SET_ITEM(found.ptr(), k, gradients[k].release().ptr());
    const bool kept = record || (outer && is_dual(y.ptr()));
    return nb::make_tuple(kept ? y : detached(y), found, independent);
  });
}

// ---------------------------------------------------------------------------------------------------- forward mode

// The levels of duals made directly by the user, by the number of transformations running around them.
constinit thread_local std::vector<PyObject*>* shared_levels = nullptr;
constinit thread_local size_t n_forward = 0;  // transformations in progress

void enter_forward() { ++n_forward; }

// Forgets the level for duals made directly inside the transformation that ends.
void leave_forward() {
  while (shared_levels && shared_levels->size() > n_forward) {
    Py_DECREF(shared_levels->back());
    shared_levels->pop_back();
  }
  --n_forward;
}

// Duals made directly by the user are parts of one direction, so they share a level. Inside a transformation that
// started since, that must be an inner level.
nb::object shared_level() {
  return guarded([&] {
    if (!shared_levels) shared_levels = new std::vector<PyObject*>;
    while (shared_levels->size() <= n_forward) shared_levels->push_back(make_level());  // outer levels first
    return nb::borrow((*shared_levels)[n_forward]);
  });
}

// The extent of a forward-mode transformation. Tensors that received a tangent of its level by a write lose it at the
// end.
struct Forward {
  PyObject* level;
  nb::handle end;
  Forward(PyObject* l, nb::handle end_level) : level(l), end(end_level) { enter_forward(); }
  Forward(const Forward&) = delete;
  void leave() {
    if (!level) return;
    leave_forward();
    PyObject* turned = reinterpret_cast<LevelObject*>(level)->turned;
    nb::handle ended = std::exchange(level, nullptr);
    if (turned && PyList_GET_SIZE(turned)) end(ended);
  }
  ~Forward() {
    if (!level) return;
    PyObject *type, *value, *trace;  // f raised an exception
    PyErr_Fetch(&type, &value, &trace);
    try {
      leave();
    } catch (...) {
      PyErr_Clear();
    }
    PyErr_Restore(type, value, trace);
  }
};

bool is_sequence(nb::handle h) { return PyTuple_CheckExact(h.ptr()) || PyList_CheckExact(h.ptr()); }

// Whether the tangent already has the value's type.
bool fits(nb::handle value, nb::handle tangent) {
  const Value *v = bottom_value(value.ptr()), *t = bottom_value(tangent.ptr());
  return v && t && is_inexact(v->dtype) && v->dtype == t->dtype && same_shape(v, t);
}

// push_forward(f, primals, tangents, split, end): f(*primals) and its derivative along the tangents. None, before
// calling f, if an argument is neither plain nor dual. split(level, result) finishes results that are not tensors;
// end(level) removes the level from tensors that were written to.
nb::object push_forward(nb::handle f, nb::handle primals, nb::handle tangents, nb::handle split, nb::handle end) {
  return guarded([&]() -> nb::object {
    if (thread_state.capturing || !is_sequence(primals) || !is_sequence(tangents)) return nb::none();
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(primals.ptr());
    if (PySequence_Fast_GET_SIZE(tangents.ptr()) != n) return nb::none();
    PyObject **x = PySequence_Fast_ITEMS(primals.ptr()), **x_dot = PySequence_Fast_ITEMS(tangents.ptr());
    for (Py_ssize_t i = 0; i < n; ++i)
      if (!fits(x[i], x_dot[i])) return nb::none();
    const nb::object level = stolen(make_level());
    nb::object duals = stolen(PyTuple_New(n));
    for (Py_ssize_t i = 0; i < n; ++i) {
      const nb::object value = renamed(x[i]), tangent = renamed(x_dot[i]);
      PyTuple_SET_ITEM(duals.ptr(), i, new_dual(level.ptr(), value.ptr(), tangent.ptr()));
    }
    Forward forward(level.ptr(), end);
    const nb::object y = stolen(PyObject_Call(f.ptr(), duals.ptr(), nullptr));
    duals.reset();
    if (!is_simple(y) || thread_state.capturing) {
      nb::object pair = split(level, y);
      forward.leave();
      return pair;
    }
    Split pair(y, level.ptr());
    forward.leave();
    return nb::make_tuple(pair.value, pair.tangent.is_none() ? zeros_like(pair.value) : pair.tangent);
  });
}

}  // namespace

void init_transforms(nb::module_& m) {
  m.def("value_and_gradient", &value_and_gradient);
  m.def("pull_back", &pull_back);
  m.def("push_forward", &push_forward);
  m.def("is_simple", &is_simple);  // plain, or a dual of plain tensors
  m.def("fits", &fits);            // whether two plain or dual tensors have the same inexact dtype and shape
  m.def("enter_forward", &enter_forward);
  m.def("leave_forward", [] {
    if (n_forward) leave_forward();
  });
  m.def("shared_level", &shared_level);
  m.def("new_level", &new_level);
}

}  // namespace wengert
