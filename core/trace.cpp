#include "trace.h"

#include <algorithm>
#include <bit>

#include "device.h"
#include "finite.h"
#include "small_array.h"

namespace wengert {

std::vector<int64_t> SizeList::evaluate(Value* const* in) const {
  std::vector<int64_t> leaves(program.leaves.size()), results(program.steps.size()), found;
  gather_sizes(program.leaves, in, nullptr, nullptr, leaves.data());
  program.evaluate(leaves.data(), results.data());
  for (Dim d : entries) found.push_back(SizeProgram::resolve(d, results.data()));
  return found;
}

bool NumberGuard::holds(Value* const* in) const {
  const Value* v = in[input];
  const double x = v->dtype == DType::Float64   ? *reinterpret_cast<const double*>(v->data)
                   : v->dtype == DType::Float32 ? *reinterpret_cast<const float*>(v->data)
                                                : static_cast<double>(*reinterpret_cast<const int64_t*>(v->data));
  switch (comparison) {
    case Comparison::less: return (x < constant) == outcome;
    case Comparison::less_equal: return (x <= constant) == outcome;
    case Comparison::equal: return (x == constant) == outcome;
    case Comparison::greater_equal: return (x >= constant) == outcome;
    default: return (x > constant) == outcome;
  }
}

Role role_of(const Value* v) {
  if (!tracked(v)) return Role::constant;
  if (!v->node->leaf) return Role::computed;
  return v->node->hooks || v->node->final_hooks ? Role::hooked_leaf : Role::leaf;
}

namespace {

// Whether a step can only fail by running out of memory. A call that fails after overwriting a tensor would leave it
// changed.
bool is_safe(const Step& s) {
  return s.group || s.gemm || (s.op && !s.owned && (s.op->view || s.op->reduction == Reduction::sum));
}

bool has(const std::vector<int32_t>& slots, int32_t x) {
  return std::find(slots.begin(), slots.end(), x) != slots.end();
}

// After how many steps an output is known.
size_t steps_until(const Program& p, uint32_t output) {
  size_t made = p.steps.size();
  while (made > 0 && !has(p.steps[made - 1].out, p.outputs[output])) --made;
  return made;
}

// Whether the step that makes the new value is the last to read the old one, and writes element by element.
bool can_be_in_place(const Program& p, const TensorWrite& w) {
  const int32_t slot = p.outputs[w.output], old = static_cast<int32_t>(w.input);
  if (std::count(p.outputs.begin(), p.outputs.end(), slot) > 1) return false;
  size_t made = p.steps.size();
  for (size_t i = p.steps.size(); i-- > 0;) {
    const Step& s = p.steps[i];
    if (has(s.out, slot)) {
      made = i;
      break;
    }
    if (has(s.in, old) || !is_safe(s)) return false;
  }
  return made < p.steps.size() && p.steps[made].group;
}

void require(bool holds, const char* what) {
  if (!holds) fail(ErrorKind::value, "compile", what);
}

void check_effects(const Effects& effects, const Program& p, const TraceArguments& call) {
  const size_t n_in = static_cast<size_t>(p.n_inputs), n_out = p.outputs.size();
  require(effects.n_results + effects.writes.size() <= n_out && effects.sources.size() <= n_out,
          "the program has fewer outputs than effects");
  check_leaves(effects.draws.program.leaves, call.values, call.n);
  for (const TensorWrite& w : effects.writes)
    require(w.input < n_in && w.output < n_out, "a tensor that is changed in place does not exist");
  for (const LeafGrad& g : effects.grads)
    require(g.leaf < n_in && g.input < n_in && (!g.has_output() || g.output < n_out),
            "a gradient that is read or changed does not exist");
}

// Buffers that we allocated never overlap.
bool overlap(const Value* a, const Value* b) {
  return a->buffer == b->buffer || ((a->buffer->pinned || b->buffer->pinned) && share_memory(a, b));
}

// Which inputs may share memory with another. Looking at every pair would take milliseconds with a thousand parameters.
class InputBuffers {
 public:
  InputBuffers(Value* const* in, size_t n) : in_(in), n_(n), table_(slots_for(n)), mask_(slots_for(n) - 1) {
    std::fill_n(table_.data(), mask_ + 1, Slot{});
    for (size_t i = 0; i < n; ++i) {
      if (in[i]->buffer->pinned) pinned_.push_back(i);
      Slot& s = slot(in[i]->buffer);
      s.repeated = s.buffer != nullptr;
      s.buffer = in[i]->buffer;
    }
  }

  // An input that shares memory with input `which`, or null.
  const Value* other(size_t which) {
    const Buffer* b = in_[which]->buffer;
    if (b->pinned || slot(b).repeated) {
      for (size_t i = 0; i < n_; ++i)
        if (i != which && overlap(in_[i], in_[which])) return in_[i];
    } else {
      for (size_t i : pinned_)
        if (overlap(in_[i], in_[which])) return in_[i];
    }
    return nullptr;
  }

 private:
  struct Slot {
    const Buffer* buffer;
    bool repeated;
  };

  static size_t slots_for(size_t n) { return std::bit_ceil(2 * n + 1); }

  // Where this buffer is, or an empty place for it.
  Slot& slot(const Buffer* b) {
    size_t k = (reinterpret_cast<uint64_t>(b) >> 4) * 0x9e3779b97f4a7c15 >> 32 & mask_;
    while (table_[k].buffer && table_[k].buffer != b) k = (k + 1) & mask_;
    return table_[k];
  }

  Value* const* in_;
  size_t n_;
  SmallArray<Slot, 128> table_;
  size_t mask_;
  std::vector<size_t> pinned_;
};

// Without a copy of the shape: every call asks for every tensor.
bool has_type(const Value* v, const Type& t) {
  if (v->dtype != t.dtype || v->device != t.device || v->ndim != t.shape.n) return false;
  for (int i = 0; i < v->ndim; ++i)
    if (v->shape[i] != t.shape[i].raw) return false;
  return true;
}

bool of_attribute(const SizeLeaf& l) { return l.kind == SizeLeaf::attribute; }

}  // namespace

void Trace::finish(const TraceArguments& call, bool asks_roles) {
  const std::vector<int32_t>& outputs = program->outputs;
  require(std::count(outputs.begin(), outputs.end(), -1) == 0, "the program lacks an output");
  require(static_cast<size_t>(program->n_inputs) >= call.n + captured.size() && (effects || n_hidden(call) == 0),
          "the program takes another number of inputs");
  check_leaves(guards.sizes.leaves, call.values, call.n);
  for (const NumberGuard& g : numbers) require(g.input < call.n && !call.tensors[g.input], "a guard is on no number");
  if (effects) {
    check_effects(*effects, *program, call);
    for (TensorWrite& w : effects->writes) w.in_place = can_be_in_place(*program, w);
    plan_inspection(call);
  }
  for (Tensor* t : captured) captured_types.push_back(current(*t)->type());
  if (!asks_roles) return;
  for (size_t i = 0; i < call.n; ++i) roles.push_back(role_of(call.values[i]));
  for (Tensor* t : captured) roles.push_back(role_of(current(*t)));
}

// Losses and gradients are inspected, and parameters where their gradients are not kept.
void Trace::plan_inspection(const TraceArguments& call) {
  Inspection& seen = effects->inspection;
  if (effects->grads.empty() && effects->writes.empty()) return;
  const auto add = [&](uint32_t output, bool number) {
    seen.outputs.push_back({static_cast<int32_t>(output), number});
    seen.step = std::max(seen.step, steps_until(*program, output));
  };
  for (uint32_t i = 0; i < effects->n_results; ++i) add(i, true);
  std::vector<uint32_t> judged;
  for (const LeafGrad& g : effects->grads)
    if (g.has_output()) {
      add(g.output, false);
      judged.push_back(g.leaf);
    }
  for (const TensorWrite& w : effects->writes) {
    Tensor* t = tensor_of(call, w.input);
    const bool known = std::find(judged.begin(), judged.end(), w.input) != judged.end();
    if (t && !known && lasting_leaf(current(*t))) add(w.output, false);
  }
  for (TensorWrite& w : effects->writes) w.after_inspection = steps_until(*program, w.output) > seen.step;
}

bool Trace::holds(const TraceArguments& call) const {
  return guards.hold(call.values, nullptr) &&
         std::all_of(numbers.begin(), numbers.end(), [&](const NumberGuard& g) { return g.holds(call.values); }) &&
         captured_types_hold() && roles_hold(call) && grads_hold(call);
}

bool Trace::roles_hold(const TraceArguments& call) const {
  if (roles.empty()) return true;
  const Role* expected = roles.data();
  for (size_t i = 0; i < call.n; ++i)
    if (role_of(call.values[i]) != *expected++) return false;
  for (Tensor* t : captured)
    if (role_of(current(*t)) != *expected++) return false;
  return true;
}

bool Trace::captured_types_hold() const {
  const Type* expected = captured_types.data();
  for (Tensor* t : captured)
    if (!has_type(current(*t), *expected++)) return false;
  return true;
}

bool Trace::grads_hold(const TraceArguments& call) const {
  if (!effects) return true;
  for (const LeafGrad& g : effects->grads) {
    if (g.before == LeafGrad::Before::not_read) continue;
    Tensor* t = tensor_of(call, g.leaf);
    const Value* v = t ? current(*t) : nullptr;
    const bool present = v && v->node && v->node->grad;
    if (present != (g.before == LeafGrad::Before::present)) return false;
    if (present && v->node->grad->base->dtype != g.dtype) return false;
  }
  return true;
}

Tensor* Trace::tensor_of(const TraceArguments& call, size_t input) const {
  if (input < call.n) return call.tensors[input];
  const size_t first = call.n + n_hidden(call);
  return input < first ? nullptr : captured[input - first];
}

uint64_t Trace::active_mask(const TraceArguments& call) const {
  if (!thread_state.grad_enabled) return 0;
  uint64_t mask = tracked_mask(call.values, static_cast<int>(call.n)), active = 0;
  size_t i = call.n + n_hidden(call);
  for (Tensor* t : captured) mask |= uint64_t{tracked(current(*t))} << std::min<size_t>(i++, kLastBit);
  for (uint64_t s : effects->sources) active |= s;
  return mask & active;
}

void Trace::require_one_device(const TraceArguments& call) const {
  unsigned any = kCpu;
  for (size_t i = 0; i < call.n; ++i) any |= call.values[i]->device;
  for (Tensor* t : captured) any |= current(*t)->device;
  if (any == kCpu) [[likely]]
    return;
  std::vector<Value*> all(call.values, call.values + call.n);
  for (Tensor* t : captured) all.push_back(current(*t));
  common_device("compile", all.data(), static_cast<int>(all.size()));
}

const Derivative* Trace::derivative(uint64_t mask) const {
  for (auto& [known, d] : derivatives_)
    if (known == mask) return d.held;
  return nullptr;
}

void Trace::add_derivative(uint64_t mask, Handle<Derivative> made, GuardSet now) {
  const Derivative& d = *made.held;
  require(d.forward && d.n_outputs == static_cast<int>(program->outputs.size()) &&
              d.forward->n_inputs == program->n_inputs && std::none_of(d.sizes.begin(), d.sizes.end(), of_attribute) &&
              std::none_of(d.forward->sizes.leaves.begin(), d.forward->sizes.leaves.end(), of_attribute),
          "the derivative is that of another program");
  guards = std::move(now);
  derivatives_.emplace_back(mask, made);
}

void find_targets(const Effects& effects, Value* const* in, Tensor* const* tensors, size_t n, Tensor** targets) {
  if (effects.writes.empty()) return;
  InputBuffers buffers(in, n);
  for (size_t k = 0; k < effects.writes.size(); ++k) {
    const TensorWrite& w = effects.writes[k];
    targets[k] = tensors[w.input];
    if (!targets[k]) fail(ErrorKind::value, "compile", "a number is not changed in place");
    if (const Value* other = buffers.other(w.input))
      throw Error(ErrorKind::trace, w.op + ": the compiled function changes a tensor, " +
                                        to_string(in[w.input]->type()) +
                                        ", that shares memory with another that it reads, " + to_string(other->type()) +
                                        "; make views of it inside the function, or clone() one of the two");
    require_assignable(*targets[k], w.recorded, w.op.c_str());
  }
}

void find_places(const Effects& effects, Value* const* in, Tensor* const* targets, bool inspected, Value** into) {
  for (size_t k = 0; k < effects.writes.size(); ++k) {
    const TensorWrite& w = effects.writes[k];
    if (w.in_place && (w.after_inspection || !inspected) && writable(*targets[k])) into[w.output] = in[w.input];
  }
}

void store_writes(const Effects& effects, Tensor* const* targets, Value** out, Value* const* into) {
  for (size_t k = 0; k < effects.writes.size(); ++k) {
    const TensorWrite& w = effects.writes[k];
    if (into[w.output]) {
      before_write(out[w.output]->buffer);
      ++out[w.output]->buffer->version;
      release(out[w.output]);
    } else {
      assign(*targets[k], out[w.output], w.op.c_str(), w.recorded && thread_state.grad_enabled);
    }
  }
}

void drop_unrelated_edges(const Effects& effects, uint64_t mask, Value** out) {
  for (size_t i = 0; i < effects.sources.size(); ++i)
    if (out[i]->node && !(effects.sources[i] & mask)) {
      release(out[i]->node);
      out[i]->node = nullptr;
    }
}

}  // namespace wengert
