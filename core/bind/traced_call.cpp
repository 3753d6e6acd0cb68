#include "traced_call.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "../small_array.h"
#include "dual.h"

namespace wengert {

namespace {

void log_plain(const TracedCall& trace, Value* const* in, int n_in, Value* const* out) {
  const int n = static_cast<int>(trace.program->outputs.size());
  Work work;
  work.ran = trace.program;
  log_call({trace.program->name, in, n_in, out, n, n, nullptr, trace.python.ptr()}, std::move(work));
}

// Marks a path end on untracked results whose operands lead to leaves.
[[gnu::noinline]] void end_path(const Program& p, Value* const* in, int n_in, Value* const* out) {
  end_path("compiled", true, in, n_in, out, static_cast<int>(p.outputs.size()));
}

// Inspects the results of a run that wrote into none of the given values.
void require_finite(const Program& p, const Inspection& inspection, Value** out, Value** into) {
  std::fill_n(into, p.outputs.size(), nullptr);
  if (inspection.passes(out)) return;
  for (size_t i = 0; i < p.outputs.size(); ++i) release(out[i]);
  throw NotFinite();
}

// `into`, if not null, has for each output a value that a program without derivatives may write it into, or null.
// Throws NotFinite if `inspection` is given and not passed.
void run_program(TracedCall& trace, Value** in, size_t n, uint64_t mask, Value** out, Value** into = nullptr,
                 const Inspection* inspection = nullptr) {
  KeepAlive kept(in, static_cast<int>(n));
  if (mask) {
    apply_derivative(trace.derivative_for(mask, in), in, static_cast<int>(n), nullptr, out);
    return;
  }
  const Program& p = *trace.program;
  SmallArray<int64_t, 32> sizes(p.sizes.leaves.size());
  gather_sizes(p.sizes.leaves, in, nullptr, nullptr, sizes.data());
  if (!inspection)
    run(p, in, sizes.data(), out, into);
  else if (!run_inspected(p, in, sizes.data(), out, into, *inspection))
    require_finite(p, *inspection, out, into);
  if (thread_state.logs) [[unlikely]]
    log_plain(trace, in, static_cast<int>(n), out);
  if (led_to_leaves(in, static_cast<int>(n))) [[unlikely]]
    end_path(p, in, static_cast<int>(n), out);
}

PyObject* results_of(const TracedCall& trace, Value** out, size_t n) {
  if (trace.unflatten.is_none()) return wrap(out[0]);
  nb::list results;
  for (size_t i = 0; i < n; ++i) results.append(to_python(out[i]));
  return trace.unflatten(results).release().ptr();
}

TensorObject* captured_object(const TracedCall& trace, size_t k) {
  return as_tensor(PyList_GET_ITEM(trace.captured_list.ptr(), static_cast<Py_ssize_t>(k)));
}

// The Python object of an input tensor that has a `.grad`.
TensorObject* object_of(Tensor* t) {
  return reinterpret_cast<TensorObject*>(reinterpret_cast<char*>(t) - offsetof(TensorObject, tensor));
}

void store_grads(const TracedCall& trace, const TraceArguments& call, Value** out) {
  for (const LeafGrad& g : trace.effects->grads) {
    Tensor* t = g.after == LeafGrad::After::untouched ? nullptr : trace.tensor_of(call, g.leaf);
    if (!t) continue;
    if (g.after == LeafGrad::After::added) {
      Ref sum(out[g.output]);
      if (Node* leaf = current(*t)->node) keep_grad(leaf, sum.v);
    } else {
      store_grad(object_of(t), g.has_output() ? out[g.output] : nullptr);
    }
  }
}

// Changes Python objects as the call does. Signals that came during the program are answered before, so that they do
// not interrupt it halfway; what a handler raises is raised at the end.
void commit_changes(const TracedCall& trace, Value** out, size_t n_results) {
  if (trace.commit.is_none()) return;
  try {
    std::optional<nb::python_error> interrupt;
    if (PyErr_CheckSignals()) interrupt.emplace();
    trace.commit();
    if (interrupt) throw nb::python_error(*interrupt);
  } catch (...) {
    for (size_t i = 0; i < n_results; ++i)
      if (out[i]) release(out[i]);
    throw;
  }
}

// The inputs of a program, and which of them are tensors.
struct Inputs {
  size_t n;
  SmallArray<Value*, 2 * kFewOperands> values;
  SmallArray<Tensor*, 2 * kFewOperands> tensors;

  Inputs(const TracedCall& trace, const TraceArguments& call, const nb::list& hidden)
      : n(call.n + hidden.size() + trace.captured.size()), values(n), tensors(n) {
    std::copy_n(call.values, call.n, values.data());
    std::copy_n(call.tensors, call.n, tensors.data());
    size_t k = call.n;
    for (nb::handle h : hidden) {
      values[k] = value_from(h, "compile");
      tensors[k++] = is_tensor(h.ptr()) ? &as_tensor(h.ptr())->tensor : nullptr;  // a gradient
    }
    for (size_t i = 0; i < trace.captured.size(); ++i) {
      values[k] = operand(captured_object(trace, i));
      tensors[k++] = trace.captured[i];
    }
  }
};

PyObject* run_without_effects(TracedCall& trace, const TraceArguments& call) {
  const size_t n_captured = trace.captured.size(), n = call.n + n_captured;
  SmallArray<Value*, kFewOperands> in(n);
  std::copy_n(call.values, call.n, in.data());
  for (size_t i = 0; i < n_captured; ++i) in[call.n + i] = operand(captured_object(trace, i));
  SmallArray<Value*, 8> out(trace.program->outputs.size());
  run_program(trace, in.data(), n, tracked_mask(in.data(), static_cast<int>(n)), out.data());
  return results_of(trace, out.data(), trace.program->outputs.size());
}

}  // namespace

const Derivative& TracedCall::derivative_for(uint64_t mask, Value* const* in) {
  if (const Derivative* known = derivative(mask)) return *known;
  nb::tuple derived = nb::cast<nb::tuple>(python.attr("derive")(mask));
  add_derivative(mask, nb::cast<DerivativeHandle&>(nb::object(derived[0])), nb::cast<GuardSet>(nb::object(derived[1])));
  if (!guards.hold(in, nullptr)) throw OtherSizes();
  return *derivative(mask);
}

bool TracedCall::has_push() {
  if (effects || !roles.empty() || has_no_push_) return false;
  if (derived_) return true;
  const nb::object made = python.attr("as_derived")();
  has_no_push_ = made.is_none();
  if (!has_no_push_) derived_ = std::make_unique<DerivedHandle>(nb::cast<DerivedHandle&>(made));
  return !has_no_push_;
}

PyObject* run_on_duals(TracedCall& trace, CallArguments& call) {
  std::vector<nb::object> operands;
  int parts = 0;
  for (size_t i = 0; i < call.n_in; ++i) {
    if (is_tensor(call.objects[i])) {
      operands.push_back(nb::borrow(call.objects[i]));
    } else {
      operands.push_back(to_python(Ref::share(call.in[i]).take()));
      as_tensor(operands.back().ptr())->requires_grad = 0;  // tapes do not track numbers
    }
  }
  for (nb::handle h : trace.captured_list) operands.push_back(nb::borrow(h));
  SmallArray<PyObject*, kFewOperands> in(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) parts += count_parts(in[i] = operands[i].ptr());
  if (parts > kLastBit) return nullptr;
  const size_t n_out = trace.program->outputs.size();
  SmallArray<PyObject*, 8> out(n_out);
  call_on_duals(*trace.derived_->held, in.data(), static_cast<int>(operands.size()), out.data());
  if (trace.unflatten.is_none()) return out[0];
  nb::list results;
  for (size_t i = 0; i < n_out; ++i) results.append(nb::steal(out[i]));
  return trace.unflatten(results).release().ptr();
}

bool begin_call(TracedCall& trace, const TraceArguments& call, uint64_t& mask, nb::list& hidden) {
  if (!trace.effects) return true;
  mask = trace.active_mask(call);
  if (mask) trace.derivative_for(mask, call.values);  // before anything is drawn
  nb::list amounts;
  for (int64_t n : trace.effects->draws.evaluate(call.values)) amounts.append(n);
  nb::object given = trace.begin(amounts);
  if (given.is_none()) return false;
  hidden = nb::cast<nb::list>(given);
  for (nb::handle h : hidden)
    if (!h.is_none()) value_from(h, "compile")->made = Value::kLiteral;
  for (const LeafGrad& g : trace.effects->grads)
    if (g.before == LeafGrad::Before::present)
      hidden[g.input - call.n] = nb::steal(grad_of(object_of(trace.tensor_of(call, g.leaf))));
  return true;
}

PyObject* run_traced(TracedCall& trace, const TraceArguments& call, uint64_t mask, const nb::list& hidden) {
  if (!trace.effects) return run_without_effects(trace, call);
  const Effects& effects = *trace.effects;
  Inputs inputs(trace, call, hidden);
  const size_t n_out = trace.program->outputs.size();
  check_count(*trace.program, inputs.n);
  SmallArray<Tensor*, kFewOperands> targets(effects.writes.size());
  find_targets(effects, inputs.values.data(), inputs.tensors.data(), inputs.n, targets.data());
  if (mask && n_out > UINT16_MAX)  // as Node::n_outputs
    throw Error(ErrorKind::gradient,
                "a compiled function that changes more than " + std::to_string(UINT16_MAX - effects.n_results) +
                    " tensors cannot be recorded; call it under no_grad(), or detach() what it returns");
  SmallArray<Value*, kFewOperands> out(n_out), into(n_out);
  std::fill_n(into.data(), n_out, nullptr);
  const bool checked = thread_state.checks == Checks::gradients;
  if (!mask && !thread_state.n_tapes) find_places(effects, inputs.values.data(), targets.data(), checked, into.data());
  run_program(trace, inputs.values.data(), inputs.n, mask, out.data(), into.data(),
              checked && !mask ? &effects.inspection : nullptr);
  if (checked && mask) require_finite(*trace.program, effects.inspection, out.data(), into.data());
  if (mask) drop_unrelated_edges(effects, mask, out.data());
  store_writes(effects, targets.data(), out.data(), into.data());
  store_grads(trace, call, out.data());
  commit_changes(trace, out.data(), effects.n_results);
  return results_of(trace, out.data(), effects.n_results);
}

// The structs that Python builds for a trace.
void init_traced_call(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<NumberGuard> number(m, "NumberGuard");
  nb::enum_<NumberGuard::Comparison>(number, "Comparison")
      .value("LESS", NumberGuard::Comparison::less)
      .value("LESS_EQUAL", NumberGuard::Comparison::less_equal)
      .value("EQUAL", NumberGuard::Comparison::equal)
      .value("GREATER_EQUAL", NumberGuard::Comparison::greater_equal)
      .value("GREATER", NumberGuard::Comparison::greater);
  number
      .def(
          "__init__",
          [](NumberGuard* g, uint32_t input, NumberGuard::Comparison comparison, double constant, bool outcome) {
            new (g) NumberGuard{input, comparison, constant, outcome};
          },
          "input"_a, "comparison"_a, "constant"_a, "outcome"_a)
      .def_ro("input", &NumberGuard::input)
      .def_ro("comparison", &NumberGuard::comparison)
      .def_ro("constant", &NumberGuard::constant)
      .def_ro("outcome", &NumberGuard::outcome);

  nb::class_<TensorWrite>(m, "TensorWrite")
      .def(
          "__init__",
          [](TensorWrite* w, uint32_t input, uint32_t output, bool recorded, std::string op) {
            new (w) TensorWrite{input, output, recorded, std::move(op)};
          },
          "input"_a, "output"_a, "recorded"_a, "op"_a);

  nb::class_<LeafGrad> grad(m, "LeafGrad");
  nb::enum_<LeafGrad::Before>(grad, "Before")
      .value("NOT_READ", LeafGrad::Before::not_read)
      .value("ABSENT", LeafGrad::Before::absent)
      .value("PRESENT", LeafGrad::Before::present);
  nb::enum_<LeafGrad::After>(grad, "After")
      .value("UNTOUCHED", LeafGrad::After::untouched)
      .value("FORGOTTEN", LeafGrad::After::forgotten)
      .value("REPLACED", LeafGrad::After::replaced)
      .value("ADDED", LeafGrad::After::added);
  grad.def(
      "__init__",
      [](LeafGrad* g, uint32_t leaf, LeafGrad::Before before, int dtype, uint32_t input, LeafGrad::After after,
         uint32_t output) { new (g) LeafGrad{leaf, before, dtype_from(dtype), input, after, output}; },
      "leaf"_a, "before"_a, "dtype"_a, "input"_a, "after"_a, "output"_a);

  nb::class_<Effects>(m, "Effects")
      .def(
          "__init__",
          [](Effects* e, const SizeList& draws, std::vector<TensorWrite> writes, std::vector<uint64_t> sources,
             size_t n_results, std::vector<LeafGrad> grads) {
            new (e) Effects{draws, std::move(writes), std::move(sources), n_results, std::move(grads)};
          },
          "draws"_a, "writes"_a, "sources"_a, "n_results"_a, "grads"_a);

  nb::class_<TracedCall>(m, "TracedCall")
      .def(
          "__init__",
          [](TracedCall* t, std::shared_ptr<Program> program, const GuardSet& guards, std::vector<NumberGuard> numbers,
             nb::list captured, nb::object unflatten, nb::object python, const Effects* effects, nb::object begin,
             nb::object commit, nb::object settings, bool asks_roles) {
            if (unflatten.is_none() && program->outputs.empty())
              throw nb::value_error("a program without outputs has no tensor to return");
            new (t) TracedCall;
            t->program = std::move(program);
            t->program->name = nb::cast<std::string>(python.attr("name"));
            t->guards = guards;
            t->numbers = std::move(numbers);
            for (nb::handle h : captured) {
              if (!is_tensor(h.ptr()) || !as_tensor(h.ptr())->plain)
                throw nb::type_error("a tensor that is not plain was captured");
              t->captured.push_back(&as_tensor(h.ptr())->tensor);
            }
            t->captured_list = nb::steal<nb::list>(PySequence_List(captured.ptr()));
            t->unflatten = std::move(unflatten);
            t->python = std::move(python);
            if (effects) t->effects = *effects;
            t->begin = std::move(begin);
            t->commit = std::move(commit);
            t->settings = std::move(settings);
            t->asks_roles = asks_roles;
          },
          "program"_a, "guards"_a, "numbers"_a, "captured"_a, "unflatten"_a.none(), "python"_a, "effects"_a.none(),
          "begin"_a.none(), "commit"_a.none(), "settings"_a.none(), "asks_roles"_a);
}

}  // namespace wengert
