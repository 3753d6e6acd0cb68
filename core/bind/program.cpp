#include "program.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>

#include "../joined.h"
#include "../trace.h"

namespace wengert {

namespace {

SizeLeaf leaf_from(int kind, int source, int index) {
  if (kind < SizeLeaf::input || kind > SizeLeaf::given || source < 0 || index < 0)
    fail(ErrorKind::value, "size",
         "no leaf (" + std::to_string(kind) + ", " + std::to_string(source) + ", " + std::to_string(index) + ")");
  return {static_cast<SizeLeaf::Kind>(kind), source, index};
}

const Op& op_named(const std::string& name) {
  const Op* op = find_op(name);
  if (!op) throw nb::key_error(name.c_str());
  return *op;
}

Type type_from(nb::handle h) {
  nb::tuple t = nb::cast<nb::tuple>(h);
  return {dtype_from(nb::cast<int>(t[0])), dims_from_python(nb::object(t[1]).ptr())};
}

nb::tuple type_to(const Type& t) {
  return nb::make_tuple(static_cast<int>(t.dtype), nb::steal(dims_to_python(t.shape)));
}

Attrs attrs_from(const Op& op, const nb::tuple& values) {
  Attrs attrs;
  std::vector<PyObject*> items;
  for (nb::handle h : values) items.push_back(h.ptr());
  parse_attrs(op, items.data(), static_cast<int>(items.size()), attrs);
  return attrs;
}

void check_operands(const Op& op, size_t n) {
  if (op.n_inputs >= 0 && static_cast<int>(n) != op.n_inputs)
    fail(ErrorKind::value, op.name.c_str(),
         "takes " + std::to_string(op.n_inputs) + " operand(s), got " + std::to_string(n));
}

nb::list infer(const std::string& name, const nb::sequence& inputs, const nb::tuple& attr_values) {
  return guarded([&] {
    const Op& op = op_named(name);
    std::vector<Type> in;
    for (nb::handle h : inputs) in.push_back(type_from(h));
    check_operands(op, in.size());
    Type out[kMaxOutputs];
    op.infer(op, in.data(), static_cast<int>(in.size()), attrs_from(op, attr_values), out);
    nb::list result;
    for (int i = 0; i < op.n_outputs; ++i) result.append(type_to(out[i]));
    return result;
  });
}

// (computing dtype, result dtype) of an elementwise op whose operands promote to `promoted`.
nb::tuple elementwise_dtypes(const std::string& name, int promoted) {
  return guarded([&] {
    const Op& op = op_named(name);
    if (!op.elementwise) fail(ErrorKind::value, name.c_str(), "is not elementwise");
    ElementwiseTypes t = elementwise_types(op, dtype_from(promoted));
    return nb::make_tuple(static_cast<int>(t.compute), static_cast<int>(t.result));
  });
}

// plan_operands(op, dtypes, operands): the dtype in which an elementwise op computes, and the operands with infinities
// in place of the numbers that they stand for. The dtype of an operand that is a number is -1.
nb::tuple plan_named(const std::string& name, const std::vector<int>& dtypes, const nb::tuple& operands) {
  return guarded([&] {
    const Op& op = op_named(name);
    if (!op.elementwise) fail(ErrorKind::value, name.c_str(), "is not elementwise");
    check_operands(op, dtypes.size());
    check_operands(op, operands.size());
    Promoted given[3];
    PyObject* objects[3] = {};
    for (size_t i = 0; i < dtypes.size(); ++i) {
      objects[i] = PyTuple_GET_ITEM(operands.ptr(), i);
      given[i] = dtypes[i] < 0 ? read_number(objects[i]) : Promoted{Promoted::tensor, dtype_from(dtypes[i])};
    }
    const OperandPlan plan = checked_plan(op, given, objects, static_cast<int>(dtypes.size()));
    nb::list planned;
    for (size_t i = 0; i < dtypes.size(); ++i)
      planned.append(plan.infinite[i] ? nb::object(nb::float_(plan.infinite[i] * HUGE_VAL)) : nb::borrow(objects[i]));
    return nb::make_tuple(static_cast<int>(plan.compute), nb::tuple(planned));
  });
}

// ------------------------------------------------------------------------------------------ building programs

std::vector<SizeLeaf> leaves_from(const nb::list& list) {
  std::vector<SizeLeaf> leaves;
  for (nb::handle h : list) {
    auto [kind, source, index] = nb::cast<std::tuple<int, int, int>>(h);
    leaves.push_back(leaf_from(kind, source, index));
  }
  return leaves;
}

nb::list leaves_to(const std::vector<SizeLeaf>& leaves) {
  nb::list out;
  for (const SizeLeaf& l : leaves) out.append(nb::make_tuple(static_cast<int>(l.kind), l.source, l.index));
  return out;
}

struct ProgramBuilder {
  std::shared_ptr<Program> p = std::make_shared<Program>();

  Dims sizes(nb::handle h) { return sizes(dims_from_python(h.ptr())); }
  Dims sizes(const Dims& d) {
    Dims r;
    r.n = d.n;
    for (int i = 0; i < d.n; ++i) r[i] = p->sizes.compile(d[i]);
    return r;
  }

  static std::vector<int32_t> slots(nb::handle h) {
    std::vector<int32_t> v;
    for (nb::handle s : nb::cast<nb::sequence>(h)) v.push_back(nb::cast<int32_t>(s));
    return v;
  }

  void call(const std::string& name, const nb::tuple& attrs, nb::handle in, nb::handle out) {
    guarded([&] {
      Step s;
      s.op = &op_named(name);
      s.owned = s.op->owned.lock();
      s.attrs = attrs_from(*s.op, attrs);
      for (int k = 0; k < s.attrs.n; ++k)
        if (s.attrs.v[k].kind == Attr::Kind::sizes) {
          s.attrs.v[k].dims = sizes(s.attrs.v[k].dims);
          for (Dim d : s.attrs.v[k].dims) s.symbolic |= d.symbolic();
        }
      s.in = slots(in);
      s.out = slots(out);
      p->steps.push_back(std::move(s));
    });
  }

  Region region(std::shared_ptr<const Program> program) {
    Region r{std::move(program), {}};
    for (const SizeLeaf& l : r.program->sizes.leaves) r.leaves.push_back(static_cast<int32_t>(p->sizes.number(l)));
    return r;
  }

  // Runs one of these programs, chosen by the first operand, on the others.
  void choose(const std::vector<std::shared_ptr<Program>>& programs, nb::handle in, nb::handle out) {
    guarded([&] {
      Step s;
      if (programs.empty()) fail(ErrorKind::value, "choose", "takes at least one program");
      for (const std::shared_ptr<Program>& program : programs) s.regions.push_back(region(program));
      s.in = slots(in);
      s.out = slots(out);
      p->steps.push_back(std::move(s));
    });
  }

  // A loop over `length` slices; stacked: (dtype, shape) of the results of all turns, including the leading axis.
  void repeat(const std::shared_ptr<Program>& body, nb::handle length, int n_carried, int n_sliced, bool reverse,
              const nb::list& stacked, nb::handle in, nb::handle out) {
    guarded([&] {
      Step s;
      s.loop = std::make_unique<Loop>();
      s.loop->length = sizes(length)[0];
      s.loop->n_carried = n_carried;
      s.loop->n_sliced = n_sliced;
      s.loop->reverse = reverse;
      for (nb::handle h : stacked) {
        nb::tuple t = nb::cast<nb::tuple>(h);
        s.loop->stacked_dtypes.push_back(dtype_from(nb::cast<int>(nb::object(t[0]))));
        s.loop->stacked_shapes.push_back(sizes(nb::object(t[1])));
      }
      s.regions.push_back(region(body));
      s.in = slots(in);
      s.out = slots(out);
      p->steps.push_back(std::move(s));
    });
  }

  // A loop that runs while a condition on the carried and the constant values holds.
  void repeat_while(const std::shared_ptr<Program>& condition, const std::shared_ptr<Program>& body, int n_carried,
                    nb::handle in, nb::handle out) {
    guarded([&] {
      Step s;
      s.loop = std::make_unique<Loop>();
      s.loop->n_carried = n_carried;
      s.regions.push_back(region(condition));
      s.regions.push_back(region(body));
      s.in = slots(in);
      s.out = slots(out);
      p->steps.push_back(std::move(s));
    });
  }

  // Runs a program whose first operands are the values of these sizes.
  void with_sizes(const std::shared_ptr<Program>& program, const nb::list& leaves, nb::handle in, nb::handle out) {
    guarded([&] {
      Step s;
      const std::vector<SizeLeaf> given = leaves_from(leaves);
      Region r{program, {}};
      for (const SizeLeaf& l : program->sizes.leaves) {
        const auto found = std::find(given.begin(), given.end(), l);
        r.leaves.push_back(found == given.end() ? static_cast<int32_t>(p->sizes.number(l))
                                                : ~static_cast<int32_t>(found - given.begin()));
      }
      s.regions.push_back(std::move(r));
      s.n_sizes = static_cast<int>(given.size());
      s.in = slots(in);
      s.out = slots(out);
      p->steps.push_back(std::move(s));
    });
  }

  // registers: (dtype, row, input slot or -1, output slot or -1, output shape, constant or None)
  // code: (kind, op name or dtype, row, inputs, output)
  // like: a slot with the shape of the iteration space, or -1
  void fused(nb::handle shape, int like, int row_axes, const nb::list& registers, const nb::list& code) {
    guarded([&] {
      Step s;
      s.group = std::make_unique<FusedGroup>();
      FusedGroup& g = *s.group;
      g.like = like;
      if (like < 0) g.shape = sizes(shape);
      g.row_axes = row_axes;
      for (nb::handle h : registers) add_register(s, nb::cast<nb::tuple>(h));
      for (nb::handle h : code) add_instruction(g, nb::cast<nb::tuple>(h));
      g.finish();  // checks register indices; slot indices are checked when the program is finished
      p->steps.push_back(std::move(s));
    });
  }

  void add_register(Step& s, const nb::tuple& t) {
    FusedRegister r;
    r.dtype = dtype_from(nb::cast<int>(t[0]));
    r.row = nb::cast<bool>(t[1]);
    r.input = nb::cast<int32_t>(t[2]);
    r.output = nb::cast<int32_t>(t[3]);
    if (r.output >= 0 && s.group->like < 0) {
      r.output_shape = static_cast<int32_t>(s.group->output_shapes.size());
      s.group->output_shapes.push_back(sizes(nb::object(t[4])));
    }
    nb::object constant(t[5]);
    if (!constant.is_none()) {
      r.constant = true;
      set_number(constant.ptr(), r.dtype, r.bytes);
    }
    if (r.input >= 0) s.in.push_back(r.input);
    if (r.output >= 0) s.out.push_back(r.output);
    s.group->registers.push_back(r);
  }

  void add_instruction(FusedGroup& g, const nb::tuple& t) {
    FusedInstruction i{};
    std::string kind = nb::cast<std::string>(t[0]);
    i.row = nb::cast<bool>(t[2]);
    std::vector<int32_t> in = slots(nb::object(t[3]));
    if (in.empty() || in.size() > std::size(i.in)) fail(ErrorKind::value, "fused", "takes one to three operands");
    i.n_in = static_cast<uint8_t>(in.size());
    for (size_t k = 0; k < in.size(); ++k) i.in[k] = static_cast<int16_t>(register_at(g, in[k]));
    i.out = static_cast<int16_t>(register_at(g, nb::cast<int32_t>(t[4])));
    auto code = [](DType d) { return static_cast<int>(d); };
    const DType last = g.registers[in.back()].dtype, made = g.registers[i.out].dtype;
    if (kind == "map") {
      i.kind = FusedInstruction::Kind::map;
      const Op& op = op_named(nb::cast<std::string>(t[1]));
      check_operands(op, in.size());
      i.op = op.kernel;
      i.map = op.elementwise ? op.map[code(last)] : nullptr;
      if (!i.map) fail(ErrorKind::dtype, op.name.c_str(), std::string("no kernel for ") + name_of(last));
      for (size_t k = 0; k < in.size(); ++k) {
        const bool condition = static_cast<int>(k) < op.n_conditions;
        if (g.registers[in[k]].dtype != (condition ? DType::Bool : last) || made != op.map_result[code(last)])
          fail(ErrorKind::dtype, op.name.c_str(), "registers have other dtypes than the kernel");
      }
    } else if (kind == "cast") {
      i.kind = FusedInstruction::Kind::cast;
      check_operands(op_named("cast"), in.size());
      i.cast = kernels().cast[code(last)][code(made)];
      if (!i.cast) fail(ErrorKind::dtype, "cast", std::string("no kernel for ") + name_of(last));
    } else if (kind == "reduce") {
      i.kind = FusedInstruction::Kind::reduce;
      const Op& op = op_named(nb::cast<std::string>(t[1]));
      i.reduction = op.reduction;
      if (op.reduction != Reduction::count) i.reduce = kernels().row_reduce[static_cast<int>(op.reduction)][code(last)];
      if (!i.reduce) fail(ErrorKind::dtype, op.name.c_str(), std::string("no row kernel for ") + name_of(last));
      if (made != last && made != DType::Bool)
        fail(ErrorKind::dtype, op.name.c_str(), "keeps the dtype of its operand");
    } else {
      i.kind = FusedInstruction::Kind::expand;
      if (made != last) fail(ErrorKind::dtype, "expand", "keeps the dtype of its operand");
    }
    g.code.push_back(i);
    g.source.emplace_back(&op_named(nb::cast<std::string>(t[1])), i);
  }

  static int32_t register_at(const FusedGroup& g, int32_t k) {
    if (k < 0 || k >= static_cast<int32_t>(g.registers.size()) || k > INT16_MAX)
      fail(ErrorKind::value, "fused", "has no register " + std::to_string(k));
    return k;
  }

  // Sizes that no step reads but that later derivatives of the program need.
  void keep_sizes(nb::handle kept) {
    guarded([&] {
      for (nb::handle h : nb::cast<nb::sequence>(kept)) p->sizes.compile(dim_from_python(h.ptr()));
    });
  }

  // Gives this program the size leaves of another, so that the same numbers can be passed to both.
  void set_leaves(const nb::list& leaves) { p->sizes.set_leaves(leaves_from(leaves)); }

  // Returns the program; the builder starts a new one.
  std::shared_ptr<Program> finish(int n_inputs, int n_slots, const nb::list& constants, nb::handle outputs) {
    return guarded([&] {
      std::shared_ptr<Program> made = std::exchange(p, std::make_shared<Program>());
      made->n_inputs = n_inputs;
      made->n_slots = n_slots;
      for (nb::handle h : constants) {
        nb::tuple t = nb::cast<nb::tuple>(h);
        Value* v = value_from(nb::object(t[1]), "constant");
        retain(v);
        made->constants.emplace_back(nb::cast<int32_t>(nb::object(t[0])), v);
      }
      made->outputs = slots(outputs);
      made->finish();
      return made;
    });
  }
};

}  // namespace

void check_count(const Program& p, size_t n) {
  if (static_cast<int>(n) != p.n_inputs)
    fail(ErrorKind::value, "program", "takes " + std::to_string(p.n_inputs) + " inputs, got " + std::to_string(n));
}

DType dtype_from(int code) {
  if (code < 0 || code >= kNumDTypes) fail(ErrorKind::dtype, "dtype", "no dtype has the code " + std::to_string(code));
  return static_cast<DType>(code);
}

namespace {

std::vector<Value*> values_from(nb::handle tensors, const char* what) {
  std::vector<Value*> v;
  for (nb::handle h : nb::cast<nb::sequence>(tensors)) v.push_back(value_from(h, what));
  return v;
}

nb::list run_program(const Program& p, const nb::sequence& inputs) {
  return guarded([&] {
    std::vector<Value*> in = values_from(inputs, "program");
    check_count(p, in.size());
    check_leaves(p.sizes.leaves, in.data(), in.size());
    std::vector<int64_t> sizes(p.sizes.leaves.size());
    gather_sizes(p.sizes.leaves, in.data(), nullptr, nullptr, sizes.data());
    std::vector<Value*> out(p.outputs.size());
    run(p, in.data(), sizes.data(), out.data());
    nb::list result;
    for (Value* v : out) result.append(to_python(v));
    return result;
  });
}

// ---------------------------------------------------------------------------------------------- derivatives

// The leaves of sizes, each once.
nb::list leaves_of_sizes(nb::handle sizes) {
  return guarded([&] {
    std::vector<SizeLeaf> found;
    for (nb::handle h : nb::cast<nb::sequence>(sizes))
      for (SizeLeaf l : leaves_of(dim_from_python(h.ptr())))
        if (std::find(found.begin(), found.end(), l) == found.end()) found.push_back(l);
    return leaves_to(found);
  });
}

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

void init_joined(nb::module_& m) {
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

std::vector<nb::tuple> describe_guards(const std::vector<Guard>& guards) {
  std::vector<nb::tuple> out;
  for (const Guard& g : guards)
    out.push_back(nb::make_tuple(nb::steal(dim_to_python(g.a)), g.comparison == Comparison::equal ? "==" : "<",
                                 nb::steal(dim_to_python(g.b)), g.outcome));
  return out;
}

using Operator = PyObject* (*)(PyObject*, PyObject*);

template <int comparison>
PyObject* compare(PyObject* a, PyObject* b) {
  return PyObject_RichCompare(a, b, comparison);
}

// Applies Python's operator to the size's number and the other operand.
template <class F>
nb::object on_number(Dim a, nb::handle b, F op, bool swapped) {
  if (is_tensor(b.ptr()) || is_traced_number(b.ptr()))  // the other operand's type handles this; Python asks it next
    return nb::borrow(Py_NotImplemented);
  nb::object number = nb::int_(guarded([&] { return number_of(a); }));
  PyObject* made = swapped ? op(b.ptr(), number.ptr()) : op(number.ptr(), b.ptr());
  if (!made) throw nb::python_error();
  return nb::steal(made);
}

nb::object power(Dim a, nb::handle b, nb::handle mod, bool swapped) {
  return on_number(a, b, [=](PyObject* x, PyObject* y) { return PyNumber_Power(x, y, mod.ptr()); }, swapped);
}

// If b is symbolic, records a guard that it is not 0.
Dim quotient(Dim a, Dim b) {
  if (b == Dim(0)) {
    PyErr_SetString(PyExc_ZeroDivisionError, "integer division or modulo by zero");
    throw nb::python_error();
  }
  return dim_floordiv(a, b);
}

void bind_dim(nb::module_& m) {
  auto py = [](Dim d) { return nb::steal(dim_to_python(d)); };
  // Sizes and integers give a size; with any other operand, such as a float, a size acts as a number.
  auto with = [](Dim a, nb::handle b, auto f, Operator op, bool swapped = false) -> nb::object {
    if (PyIndex_Check(b.ptr()) && !is_tensor(b.ptr())) {
      return nb::cast(f(guarded([&] { return dim_from_python(b.ptr()); })));
    }
    return on_number(a, b, op, swapped);
  };
  nb::class_<Dim>(m, "Dim", "A size while tracing: an expression over the sizes of inputs.")
      .def("__add__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return py(a + b); }, PyNumber_Add); })
      .def("__radd__",
           [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return py(a + b); }, PyNumber_Add, true); })
      .def("__sub__",
           [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return py(a - b); }, PyNumber_Subtract); })
      .def("__rsub__",
           [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return py(b - a); }, PyNumber_Subtract, true); })
      .def("__mul__",
           [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return py(a * b); }, PyNumber_Multiply); })
      .def("__rmul__",
           [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return py(a * b); }, PyNumber_Multiply, true); })
      .def("__neg__", [=](Dim a) { return py(a * Dim(-1)); })
      .def("__floordiv__",
           [=](Dim a, nb::handle h) {
             return with(a, h, [=](Dim b) { return py(quotient(a, b)); }, PyNumber_FloorDivide);
           })
      .def("__rfloordiv__",
           [=](Dim a, nb::handle h) {
             return with(a, h, [=](Dim b) { return py(quotient(b, a)); }, PyNumber_FloorDivide, true);
           })
      .def("__mod__",
           [=](Dim a, nb::handle h) {
             return with(a, h, [=](Dim b) { return py(a - quotient(a, b) * b); }, PyNumber_Remainder);
           })
      .def("__rmod__",
           [=](Dim a, nb::handle h) {
             return with(a, h, [=](Dim b) { return py(b - quotient(b, a) * a); }, PyNumber_Remainder, true);
           })
      .def("__truediv__", [](Dim a, nb::handle h) { return on_number(a, h, PyNumber_TrueDivide, false); })
      .def("__rtruediv__", [](Dim a, nb::handle h) { return on_number(a, h, PyNumber_TrueDivide, true); })
      .def(
          "__pow__", [](Dim a, nb::handle h, nb::handle mod) { return power(a, h, mod, false); }, nb::arg(),
          nb::arg("mod") = nb::none())
      .def(
          "__rpow__", [](Dim a, nb::handle h, nb::handle mod) { return power(a, h, mod, true); }, nb::arg(),
          nb::arg("mod") = nb::none())
      .def("__divmod__", [](Dim a, nb::handle h) { return on_number(a, h, PyNumber_Divmod, false); })
      .def("__rdivmod__", [](Dim a, nb::handle h) { return on_number(a, h, PyNumber_Divmod, true); })
      .def(
          "__eq__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return a == b; }, compare<Py_EQ>); },
          nb::arg("other").none())
      .def(
          "__ne__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return !(a == b); }, compare<Py_NE>); },
          nb::arg("other").none())
      .def("__lt__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return a < b; }, compare<Py_LT>); })
      .def("__le__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return a <= b; }, compare<Py_LE>); })
      .def("__gt__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return b < a; }, compare<Py_GT>); })
      .def("__ge__", [=](Dim a, nb::handle h) { return with(a, h, [=](Dim b) { return b <= a; }, compare<Py_GE>); })
      .def("__bool__", [=](Dim a) { return !(a == Dim(0)); })
      .def("__hash__", [](Dim a) { return static_cast<Py_ssize_t>(a.raw); })
      .def("__index__", [](Dim a) { return guarded([&] { return number_of(a); }); })
      .def("__repr__", [](Dim a) { return to_string(a); })
      .def_prop_ro("hint", &Dim::hint)
      .def_prop_ro("is_leaf", [](Dim a) { return is_leaf(a); })
      .def_prop_ro("raw", [](Dim a) { return a.raw; });
  m.def("open_symbols", &open_symbols);
  m.def("close_symbols", [] { guarded(close_symbols); });
  m.def("new_symbol", [=](int kind, int source, int index, int64_t hint) {
    return guarded([&] { return py(new_symbol(leaf_from(kind, source, index), hint)); });
  });
  nb::class_<Guard>(m, "Guard");
  m.def("open_guards", &open_guards);
  m.def("close_guards", [] { return guarded([] { return close_guards(); }); });
  m.def("describe_guards", &describe_guards);
  init_joined(m);
  nb::class_<GuardSet>(m, "GuardSet");
  m.def("make_guards", [](const std::vector<Guard>& recorded) { return GuardSet(recorded); });
  nb::class_<SizeList>(m, "SizeList");
  m.def("make_sizes", [](nb::handle sizes) {
    return guarded([&] {
      SizeList made;
      for (Dim d : dims_from_python(sizes.ptr())) made.entries.push_back(made.program.compile(d));
      return made;
    });
  });
}

}  // namespace

nb::object to_python(Value* owned) {
  if (!owned) return nb::none();
  PyObject* o = wrap(owned);
  if (!o) throw nb::python_error();
  return nb::steal(o);
}

Value* value_from(nb::handle h, const char* what) {
  if (!is_tensor(h.ptr()) || !as_tensor(h.ptr())->plain) {
    PyErr_Format(PyExc_TypeError, "%s: expected a plain tensor, got %s", what, Py_TYPE(h.ptr())->tp_name);
    throw nb::python_error();
  }
  TensorObject* t = as_tensor(h.ptr());
  if (!thread_state.capturing) return operand(t);
  if (t->changed) throw Captured();
  return current(t->tensor);
}

namespace {

nb::object broadcast_shapes(const std::string& op, nb::handle a, nb::handle b) {
  return guarded([&] {
    return nb::steal(dims_to_python(broadcast(op.c_str(), dims_from_python(a.ptr()), dims_from_python(b.ptr()))));
  });
}

// Leaves are (kind, source, index); values are numbers or other sizes.
SizeSubstitution substitution_from(const nb::list& leaves, const nb::list& values) {
  return guarded([&] {
    std::vector<Dim> to;
    for (nb::handle h : values) to.push_back(dim_from_python(h.ptr()));
    const std::vector<SizeLeaf> from = leaves_from(leaves);
    if (to.size() != from.size()) fail(ErrorKind::value, "substitute_sizes", "takes one value for each leaf");
    return SizeSubstitution(from, to);
  });
}

nb::object substitute(SizeSubstitution& replace, nb::handle sizes) {
  return guarded([&] {
    Dims out;
    for (Dim d : dims_from_python(sizes.ptr())) out.push(replace(d));
    return nb::steal(dims_to_python(out));
  });
}

}  // namespace

void init_program(nb::module_& m) {
  bind_dim(m);
  m.def("broadcast_shapes", &broadcast_shapes);
  nb::class_<SizeSubstitution>(m, "SizeSubstitution", "Replaces leaves in sizes by numbers or other sizes.")
      .def("__init__", [](SizeSubstitution* made, const nb::list& leaves,
                          const nb::list& values) { new (made) SizeSubstitution(substitution_from(leaves, values)); })
      .def("__call__", &substitute);
  m.def("substitute_sizes", [](nb::handle sizes, const nb::list& leaves, const nb::list& values) {
    SizeSubstitution replace = substitution_from(leaves, values);
    return substitute(replace, sizes);
  });
  m.def("leaves_of_sizes", &leaves_of_sizes);
  m.def("infer", &infer);
  m.def("set_traced_number",
        [](nb::type_object type) { set_traced_number(reinterpret_cast<PyTypeObject*>(type.release().ptr())); });
  m.def("elementwise_dtypes", &elementwise_dtypes);
  m.def("plan_operands", &plan_named);
  m.def("promote_number", [](int dtype, nb::handle number) {  // promotes a tensor's dtype with a Python number
    return guarded([&] { return static_cast<int>(with_number(dtype_from(dtype), read_number(number.ptr()).kind)); });
  });
  m.def("promote",
        [](int a, int b) { return guarded([&] { return static_cast<int>(promote(dtype_from(a), dtype_from(b))); }); });
  nb::class_<Program>(m, "Program", "A program in executable form.")
      .def("run", &run_program)
      .def_rw("name", &Program::name)
      .def_prop_ro("size_leaves", [](const Program& p) { return leaves_to(p.sizes.leaves); });
  nb::class_<ProgramBuilder>(m, "ProgramBuilder")
      .def(nb::init<>())
      .def("call", &ProgramBuilder::call)
      .def("choose", &ProgramBuilder::choose)
      .def("repeat", &ProgramBuilder::repeat)
      .def("repeat_while", &ProgramBuilder::repeat_while)
      .def("with_sizes", &ProgramBuilder::with_sizes)
      .def("fused", &ProgramBuilder::fused)
      .def("set_leaves", &ProgramBuilder::set_leaves)
      .def("keep_sizes", &ProgramBuilder::keep_sizes)
      .def("finish", &ProgramBuilder::finish);
  nb::class_<DerivedHandle>(m, "Derived", "A derived program.");
  m.def("make_derived", &make_derived, nb::arg("program"), nb::arg("n_given"), nb::arg("python"));
  nb::class_<DerivativeHandle>(m, "Derivative").def_prop_ro("name", [](const DerivativeHandle& d) {
    return d.held->name;
  });
  m.def("make_derivative", &make_derivative, nb::arg("op").none(), nb::arg("name"), nb::arg("forward").none(),
        nb::arg("vjp"), nb::arg("saves"), nb::arg("edges"), nb::arg("n_outputs"), nb::arg("outputs"),
        nb::arg("python"));
  set_derive_hooks();
  m.def("run_counters", [] { return nb::make_tuple(run_counters.steps, run_counters.groups, run_counters.gemms); });
  nb::class_<Op>(m, "NativeOp", "What the core says of an op.")
      .def_ro("name", &Op::name)
      .def_ro("n_inputs", &Op::n_inputs)
      .def_ro("n_outputs", &Op::n_outputs)
      .def_prop_ro("attrs",
                   [](const Op& op) {
                     nb::list attrs;
                     for (const AttrSpec& a : op.attrs) attrs.append(nb::make_tuple(a.name, static_cast<int>(a.kind)));
                     return attrs;
                   })
      .def_ro("elementwise", &Op::elementwise)
      .def_ro("differentiable", &Op::differentiable)
      .def_prop_ro("view", [](const Op& op) { return op.view != nullptr; })
      .def_ro("n_conditions", &Op::n_conditions)
      .def_prop_ro("fuses",
                   [](const Op& op) {
                     switch (op.fusion) {
                       case FusionRole::map: return "map";
                       case FusionRole::reduce: return "reduce";
                       case FusionRole::expand: return "expand";
                       case FusionRole::alias: return "alias";
                       default: return "";
                     }
                   })
      .def_prop_ro("fusion", [](const Op& op) { return static_cast<int>(op.fusion); });
  m.def("op_table", [] {
    nb::list table;
    for (const Op* op : all_ops()) table.append(nb::cast(op, nb::rv_policy::reference));
    return table;
  });
}

}  // namespace wengert
