#include "derived.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "../joined.h"
#include "../trace.h"
#include "ops.h"

namespace wengert {

namespace {

// n_given: the number of sizes given by the caller; negative: one for each leaf.
DerivedHandle make_derived(std::shared_ptr<Program> program, int n_given, const nb::object& python) {
  auto* p = new Derived;
  p->all_given = n_given < 0;
  p->n_given = p->all_given ? static_cast<int>(program->sizes.leaves.size()) : n_given;
  p->program = std::move(program);
  p->python = nb::object(python).release().ptr();
  return DerivedHandle(p);
}

// Checks that the parts of a derivative are consistent, because nodes read them unchecked.
void check_derivative(const Op* op, const Program* forward, const Program& vjp,
                      const std::vector<std::pair<int, int>>& saves, const std::vector<int>& edges, int n_outputs) {
  auto require = [](bool holds, const char* what) {
    if (!holds) fail(ErrorKind::value, "derivative", what);
  };
  require(op || forward, "needs an op or a forward program");
  require(n_outputs >= 0 && n_outputs <= UINT16_MAX, "has at most 65535 outputs");  // the range of Node::n_outputs
  const int all = forward ? static_cast<int>(forward->outputs.size()) : n_outputs;
  require(forward ? all >= n_outputs : op->n_outputs == n_outputs, "has another number of outputs than its program");
  if (forward) require(std::count(forward->outputs.begin(), forward->outputs.end(), -1) == 0, "lacks an output");
  const int n_inputs = forward ? forward->n_inputs : op->n_inputs < 0 ? UINT16_MAX : op->n_inputs;
  for (auto [kind, index] : saves) {
    const int limit = kind == SavedRef::input ? n_inputs : kind == SavedRef::output ? n_outputs : all - n_outputs;
    require(kind >= SavedRef::input && kind <= SavedRef::residual && index >= 0 && index < limit,
            "saves what does not exist");
  }
  // The ranges of the counters in Node and SavedRef.
  require(saves.size() <= UINT16_MAX && n_inputs <= UINT16_MAX + 1,
          "has more inputs or saves more values than 65,535; compile parts of the function");
  for (int e : edges) require(e >= 0 && e < n_inputs, "has an edge to an input that does not exist");
  require(vjp.n_inputs == n_outputs + static_cast<int>(saves.size()),
          "saves another number of values than its VJP reads");
  require(vjp.outputs.size() == edges.size(), "has another number of edges than its VJP has results");
  for (const SizeLeaf& l : vjp.sizes.leaves)
    require(l.kind == SizeLeaf::attribute || l.kind == SizeLeaf::given || l.source < n_inputs,
            "reads sizes of what does not exist");
}

// saves and outputs: (kind, index)
DerivativeHandle make_derivative(const nb::object& op_name, const std::string& name, std::shared_ptr<Program> forward,
                                 const DerivedHandle& vjp, const std::vector<std::pair<int, int>>& saves,
                                 const std::vector<int>& edges, int n_outputs,
                                 const std::vector<std::pair<int, int>>& outputs, const nb::object& python) {
  auto made = std::make_unique<Derivative>();
  Derivative* d = made.get();
  if (!op_name.is_none()) d->op = &op_named(nb::cast<std::string>(op_name));
  if (d->op && !d->op->owned.expired())
    fail(ErrorKind::value, "derivative", "an op that was made at run time has none outside of programs");
  guarded([&] { check_derivative(d->op, forward.get(), *vjp.held->program, saves, edges, n_outputs); });
  d->name = name;
  d->forward = std::move(forward);
  d->vjp = vjp.share();
  for (Program* p : {d->forward.get(), d->vjp->program.get()})
    if (p && p->name.empty()) p->name = name;
  for (auto [kind, index] : saves)
    d->saves.push_back({static_cast<SavedRef::Kind>(kind), static_cast<uint16_t>(index)});
  for (int e : edges) d->edges.push_back(static_cast<uint16_t>(e));
  for (auto [kind, index] : outputs)
    d->outputs.push_back({static_cast<OutputRef::Kind>(kind), static_cast<uint16_t>(index)});
  d->sizes = d->vjp->program->sizes.leaves;
  d->n_outputs = n_outputs;
  d->python = nb::object(python).release().ptr();
  return DerivativeHandle(made.release());
}

// While one of these exists, a rule is being traced to derive something; open tapes and traces must not see it.
struct Unobserved {
  ThreadState before = thread_state;
  Unobserved() {
    thread_state.capturing = thread_state.replays = false;
    thread_state.checks = Checks::none;
    thread_state.autocast = nullptr;
    thread_state.set_tapes(0);
  }
  ~Unobserved() { thread_state = before; }
};

// Calls Python to derive something; its exceptions pass through the core.
template <class F>
auto derive_unobserved(F&& f) {
  Unobserved scope;
  try {
    return f();
  } catch (nb::python_error& e) {
    e.restore();
    throw Error(ErrorKind::python, "");
  }
}

nb::list types_of(Value* const* in, int n_in) {
  nb::list types;
  for (int i = 0; i < n_in; ++i) types.append(type_to(in[i]->type()));
  return types;
}

nb::list given_to(const Derived& p, const int64_t* given) {
  nb::list sizes;
  for (int i = 0; i < p.n_given; ++i) sizes.append(given[i]);
  return sizes;
}

// hook(op name, types, attributes, mask) → (derived program, guards)
template <class T>
T* derive_from_op(PyObject* hook, const Op& op, Value* const* in, int n_in, const Attrs& attrs, uint64_t mask,
                  GuardSet& guards) {
  return derive_unobserved([&] {
    nb::list attr_values;
    for (int k = 0; k < attrs.n; ++k) attr_values.append(nb::steal(attr_to_python(attrs[k])));
    nb::object made = nb::handle(hook)(op.name, types_of(in, n_in), nb::tuple(attr_values), mask);
    guards = GuardSet(nb::cast<std::vector<Guard>>(made[1]));
    return nb::cast<Handle<T>&>(made[0]).share();
  });
}

// hook(source, types, sizes given, mask) → (derived program, guards, whether it is valid for every rank)
template <class T>
T* derive_from_program(PyObject* hook, const Derived& p, Value* const* in, int n_in, const int64_t* given,
                       uint64_t mask, GuardSet& guards, int& rank) {
  return derive_unobserved([&] {
    nb::handle source(static_cast<PyObject*>(p.python));
    nb::object made = nb::handle(hook)(source, types_of(in, n_in), given_to(p, given), mask);
    guards = GuardSet(nb::cast<std::vector<Guard>>(made[1]));
    if (!nb::cast<bool>(made[2])) rank = in[0]->ndim;
    return nb::cast<Handle<T>&>(made[0]).share();
  });
}

void set_derive_hooks() {
  derive_hooks.op = [](const Op& op, Value* const* in, int n, const Attrs& attrs, uint64_t mask, GuardSet& guards) {
    return derive_from_op<Derivative>(python_hooks.derive, op, in, n, attrs, mask, guards);
  };
  derive_hooks.push_op = [](const Op& op, Value* const* in, int n, const Attrs& attrs, uint64_t mask,
                            GuardSet& guards) {
    return derive_from_op<Derived>(python_hooks.push, op, in, n, attrs, mask, guards);
  };
  derive_hooks.program = [](const Derived& p, Value* const* in, int n, const int64_t* given, uint64_t mask,
                            GuardSet& guards, int& rank) {
    return derive_from_program<Derivative>(python_hooks.derive_again, p, in, n, given, mask, guards, rank);
  };
  derive_hooks.push_program = [](const Derived& p, Value* const* in, int n, const int64_t* given, uint64_t mask,
                                 GuardSet& guards, int& rank) {
    return derive_from_program<Derived>(python_hooks.push_again, p, in, n, given, mask, guards, rank);
  };
  derive_hooks.narrow = [](const Derived& p, uint64_t mask) {
    return derive_unobserved([&] {
      nb::object made = nb::handle(python_hooks.narrow)(nb::handle(static_cast<PyObject*>(p.python)), mask);
      return nb::cast<DerivedHandle&>(made).share();
    });
  };
  derive_hooks.partial = [](const Derived& p, Value* const* in, int n, const int64_t* given, int n_bars, uint64_t mask,
                            GuardSet& guards, int& rank) -> Derived* {
    return derive_unobserved([&]() -> Derived* {
      nb::handle source(static_cast<PyObject*>(p.python));
      nb::object made = nb::handle(python_hooks.partial)(source, types_of(in, n), given_to(p, given), n_bars, mask);
      if (made.is_none()) return nullptr;
      guards = GuardSet(nb::cast<std::vector<Guard>>(made[1]));
      if (!nb::cast<bool>(made[2])) rank = in[0]->ndim;
      return nb::cast<DerivedHandle&>(nb::object(made[0])).share();
    });
  };
  derive_hooks.share_object = [](void* o) -> void* { return Py_XNewRef(static_cast<PyObject*>(o)); };
  derive_hooks.drop_object = [](void* o) { Py_DECREF(static_cast<PyObject*>(o)); };
}

// hook(types of the inputs, steps, number of leaves) → the joined program, or None
std::shared_ptr<Program> join_in_python(const std::vector<Type>& inputs, const std::vector<JoinedStep>& steps,
                                        size_t n_leaves) {
  return derive_unobserved([&]() -> std::shared_ptr<Program> {
    nb::list types;
    for (const Type& t : inputs) types.append(type_to(t));
    nb::object made = nb::handle(python_hooks.join)(types, steps, n_leaves);
    return made.is_none() ? nullptr : nb::cast<std::shared_ptr<Program>>(made);
  });
}

void bind_joined(nb::module_& m) {
  nb::class_<JoinedStep::Target>(m, "JoinedTarget")
      .def_ro("to", &JoinedStep::Target::to, "A step; ~k: leaf k.")
      .def_ro("output", &JoinedStep::Target::output);
  nb::class_<JoinedStep>(m, "JoinedStep")
      .def_prop_ro("source", [](const JoinedStep& s) { return nb::borrow(static_cast<PyObject*>(s.vjp->python)); })
      .def_prop_ro("sizes", [](const JoinedStep& s) { return given_to(*s.vjp, s.sizes); })
      .def_ro("first_size", &JoinedStep::first_size)
      .def_ro("n_outputs", &JoinedStep::n_outputs)
      .def_ro("saved", &JoinedStep::saved)
      .def_ro("edges", &JoinedStep::edges);
  m.attr("NOWHERE") = static_cast<int>(JoinedStep::kNowhere);
  m.def("joined_counters", [] { return std::pair(joined_counters.joined, joined_counters.runs); });
  m.def("join_after", [](int passes) { return std::exchange(join_after, passes); });
  join_steps = join_in_python;
}

}  // namespace

void init_derived(nb::module_& m) {
  nb::class_<DerivedHandle>(m, "Derived", "A derived program.");
  m.def("make_derived", &make_derived, nb::arg("program"), nb::arg("n_given"), nb::arg("python"));
  nb::class_<DerivativeHandle>(m, "Derivative").def_prop_ro("name", [](const DerivativeHandle& d) {
    return d.held->name;
  });
  m.def("make_derivative", &make_derivative, nb::arg("op").none(), nb::arg("name"), nb::arg("forward").none(),
        nb::arg("vjp"), nb::arg("saves"), nb::arg("edges"), nb::arg("n_outputs"), nb::arg("outputs"),
        nb::arg("python"));
  set_derive_hooks();
  bind_joined(m);
}

}  // namespace wengert
