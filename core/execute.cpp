#include <algorithm>
#include <deque>
#include <optional>

#include "finite.h"
#include "generate/tier.h"
#include "profile.h"
#include "run.h"
#include "threads.h"

namespace wengert {

RunCounters run_counters = {};
NumberLog* number_log = nullptr;

// An operand of a program that runs on a device: numbers stay on the host, everything else is copied to the device.
Value* DeviceOperands::operand(Value* v) {
  if (v->device != kCpu || is_uniform(v)) return v;
  owned_.emplace_back(on_device(v, device_));
  return owned_.back().v;
}

namespace {

constexpr int kSmallSteps = 64;  // tiny steps between checks for signals

void resolve_attrs(const Attrs& from, const int64_t* sizes, Attrs& to) {
  to = from;
  for (int k = 0; k < to.n; ++k)
    if (to.v[k].kind == Attr::Kind::sizes) to.v[k].dims = resolve(from.v[k].dims, sizes);
}

// The steps of a run, one after the other.
struct Steps : Run {
  void step(const Step& s);
  void drop_unread(const Step& s);
  bool worked(const Step& s);
  void call(const Step& s);
  Value* spare_operand(const Step& s, DType dtype) const;
  void store_donated();
  void release_all();
};

// An operand that dies here and that nobody else sees, so the result can reuse its memory.
Value* Steps::spare_operand(const Step& s, DType dtype) const {
  auto fits = [&](const Value* v) { return v->dtype == dtype && v->device == device && reusable(v); };
  for (int32_t d : s.drop_input)
    if (d < given && fits(slots[d])) return slots[d];
  for (int32_t d : s.drop)
    if (slots[d] && fits(slots[d])) return slots[d];
  return nullptr;
}

// Ops on numbers run on the host, and their results stay there.
bool on_host(const Op& op, Value* const* in, int n) {
  if (op.on_host || (op.view && in[0]->device == kCpu)) return true;
  for (int i = 0; i < n; ++i)
    if (in[i]->device != kCpu || in[i]->ndim != 0) return false;
  return n > 0;
}

void Steps::call(const Step& s) {
  const int n = static_cast<int>(s.in.size());
  SmallArray<Value*, 8> operands(n);
  for (int i = 0; i < n; ++i) operands[i] = slots[s.in[i]];
  DeviceOperands moved(device);
  const bool number = device != kCpu && on_host(*s.op, operands.data(), n);
  if (device != kCpu && !number)
    for (int i = 0; i < n; ++i) operands[i] = moved.operand(operands[i]);
  if (s.op->elementwise) {
    Value* spare = spare_operand(s, s.op->map_result[static_cast<int>(operands[n - 1]->dtype)]);
    slots[s.out[0]] = run_elementwise(*s.op, operands.data(), n, spare);
    note(s.out[0]);
    return;
  }
  Value* results[kMaxOutputs];
  if (s.symbolic) {
    Attrs attrs;
    resolve_attrs(s.attrs, sizes, attrs);
    if (number_log && device != kCpu) number_log->set_step(&s);
    run_op(*s.op, operands.data(), n, attrs, results);
    if (number_log && device != kCpu) number_log->set_step(nullptr);
  } else {
    run_op(*s.op, operands.data(), n, s.attrs, results);
  }
  for (size_t i = 0; i < s.out.size(); ++i) {
    slots[s.out[i]] = results[i];
    note(s.out[i]);
  }
}

void Steps::step(const Step& s) {
  ++run_counters.steps;
  run_counters.gemms += s.gemm;
  run_counters.instructions += s.group ? static_cast<int64_t>(s.group->code.size()) : 1;
  if (s.group) {
    ++run_counters.groups;
    if (device == kCpu) [[likely]]
      run_group(*s.group, *this);
    else
      run_group_on_device(*s.group, *this);
  } else {
    call(s);
  }
}

void Steps::drop_unread(const Step& s) {
  for (int32_t d : s.drop) drop(d);
  for (int32_t d : s.drop_input)
    if (d < given) drop(d);
}

// Whether enough work was done since the last check for signals.
bool Steps::worked(const Step& s) {
  const Value* y = slots[s.out[0]];
  if (!(y && y->size >= kTileElements) && ++small_steps < kSmallSteps) return false;
  small_steps = 0;
  return true;
}

// Groups write into donated values themselves; the results of other steps are copied.
void Steps::store_donated() {
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    const int32_t slot = p.outputs[i];
    if (slot < 0 || !donated[i] || slots[slot] == donated[i]) continue;
    copy_into(slots[slot], donated[i]);
  }
}

// Releases what is still owned, after a failure.
void Steps::release_all() {
  for (int i = 0; i < given; ++i)
    if (slots[i]) drop(i);
  for (const Step& s : p.steps)
    for (int32_t o : s.out)
      if (slots[o]) drop(o);
}

// Copies constants with axes to a device, once. Numbers stay on the host.
[[gnu::noinline]] void bring_constants(const Program& p, DeviceId device, Value** slots) {
  if (p.constants.empty()) return;
  if (p.constants_on.size() < device) p.constants_on.resize(device);
  std::vector<Value*>& there = p.constants_on[device - 1];
  there.resize(p.constants.size(), nullptr);
  for (size_t i = 0; i < p.constants.size(); ++i) {
    const auto& [slot, value] = p.constants[i];
    if (value->device != kCpu || is_uniform(value)) continue;
    if (!there[i]) there[i] = on_device(value, device);
    slots[slot] = there[i];
  }
}

// A program that is being executed, with the memory of its values and sizes.
class Frame {
 public:
  Frame(DeviceId device, const ProgramCall& call, Value* const* donated, bool wrote, const Inspection* inspection)
      : call_(call),
        slots_(call.program->n_slots),
        sizes_(call.program->sizes.steps.size()),
        run_{{*call.program, slots_.data(), sizes_.data(), call.leaf_sizes, donated, call.given, device}},
        next_(call.program->steps.data()),
        inspection_(inspection) {
    run_.wrote = wrote;
    std::copy(call.in, call.in + run_.p.n_inputs, run_.slots);
    std::fill(run_.slots + run_.p.n_inputs, run_.slots + run_.p.n_slots, nullptr);
    for (auto& [slot, value] : run_.p.constants) run_.slots[slot] = value;
  }
  Frame(const Frame&) = delete;
  ~Frame() {
    if (!returned_) [[unlikely]]
      run_.release_all();
  }

  void prepare() {
    if (run_.device != kCpu) bring_constants(run_.p, run_.device, run_.slots);
    if (!run_.p.sizes.steps.empty()) run_.p.sizes.evaluate(call_.leaf_sizes, sizes_.data());
  }
  // Executes all steps that are left. Not null: first, this region must run, which holds regions itself.
  const ProgramCall* advance();
  void return_outputs();

  DeviceId device() const { return run_.device; }
  bool wrote() const { return run_.wrote; }

 private:
  const ProgramCall* advance_regions(const Step& s);

  const ProgramCall& call_;
  SmallArray<Value*, kFew> slots_;
  SmallArray<int64_t, kFew> sizes_;
  Steps run_;
  const Step* next_;
  const Inspection* inspection_;
  RegionsInProgress regions_;  // of the next step
  bool returned_ = false;
};

const ProgramCall* Frame::advance() {
  const std::vector<Step>& steps = run_.p.steps;
  const Step* const looks = inspection_ ? steps.data() + inspection_->step : nullptr;
  for (const Step* const end = steps.data() + steps.size(); next_ != end; ++next_) {
    const Step& s = *next_;
    if (&s == looks && !regions_.any() && !inspection_->passes(run_.slots, run_.p.outputs.data())) [[unlikely]]
      throw NotFinite();
    if (s.regions.empty()) [[likely]]
      run_.step(s);
    else if (const ProgramCall* deeper = advance_regions(s))
      return deeper;
    run_.drop_unread(s);
    if (!run_.wrote && run_.worked(s)) check_interrupt();
  }
  if (run_.donated) run_.store_donated();
  return nullptr;
}

[[gnu::noinline]] const ProgramCall* Frame::advance_regions(const Step& s) {
  if (!regions_.any()) {
    ++run_counters.steps;
    ++run_counters.instructions;
    regions_.begin(s, {run_.device, run_.slots, run_.sizes, run_.leaf_sizes, run_.wrote});
  }
  while (const ProgramCall* call = regions_.next()) {
    if (call->program->depth > 0) return call;
    run_steps(run_.device, *call->program, call->in, call->leaf_sizes, call->out, nullptr, call->given, run_.wrote);
  }
  return nullptr;
}

void Frame::return_outputs() {
  returned_ = true;
  for (int32_t u : run_.p.unread)
    if (u < run_.given) run_.drop(u);
  for (size_t i = 0; i < run_.p.outputs.size(); ++i) {
    const int32_t slot = run_.p.outputs[i];
    Value*& y = call_.out[i];
    y = slot < 0 ? nullptr : run_.slots[slot];
    if (y && !(run_.p.moves[i] && run_.owns(slot))) retain(y);
  }
}

// Regions that hold regions have frames on the heap, so only memory limits how deeply programs are nested.
[[gnu::noinline]] void run_deeper(Frame& bottom, const ProgramCall* call) {
  std::deque<std::optional<Frame>> above;  // a frame that has returned leaves its memory to the next one
  size_t n = 0;
  for (Frame* top = &bottom;; call = top->advance()) {
    if (call) {
      if (n == above.size()) above.emplace_back();
      top = &above[n++].emplace(top->device(), *call, nullptr, top->wrote(), nullptr);
      top->prepare();
    } else if (n) {
      top->return_outputs();
      above[--n].reset();
      top = n ? &*above[n - 1] : &bottom;
    } else {
      return;
    }
  }
}

// Apart from `run_steps`, whose stack a program of one block does without.
[[gnu::noinline]] void run_frame(DeviceId device, const ProgramCall& call, Value* const* donated, bool wrote,
                                 const Inspection* inspection) {
  Frame frame(device, call, donated, wrote, inspection);
  frame.prepare();
  if (const ProgramCall* deeper = frame.advance()) [[unlikely]]
    run_deeper(frame, deeper);
  frame.return_outputs();
}

}  // namespace

void run_steps(DeviceId device, const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out,
               Value* const* donated, int given, bool wrote, const Inspection* inspection) {
  if (p.one_block && !donated && device == kCpu && run_one_block(p, in, out, given)) return;
  run_frame(device, {&p, in, leaf_sizes, out, given}, donated, wrote, inspection);
}

namespace {

[[gnu::noinline]] void run_anywhere(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out,
                                    Value* const* donated, int given) {
  DeviceId device = p.n_inputs ? kCpu : placement;
  for (int i = 0; i < p.n_inputs && device == kCpu; ++i) device = in[i]->device;
  const Placement here(device);
  if (device == kCpu) return run_steps(kCpu, p, in, leaf_sizes, out, donated, given, false);
  if (!device_at(device).run_program(p, in, leaf_sizes, out, donated, given))
    run_steps(device, p, in, leaf_sizes, out, donated, given, false);
}

[[gnu::noinline, gnu::cold]] void run_profiled(const Program& p, Value* const* in, const int64_t* leaf_sizes,
                                               Value** out, Value* const* donated, int given) {
  ProfiledRun event(p, in, leaf_sizes);
  run_anywhere(p, in, leaf_sizes, out, donated, given);
  event.done(out, static_cast<int>(p.outputs.size()));
}

}  // namespace

void run(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out, Value* const* donated, int given) {
  if (profiling) [[unlikely]]
    return run_profiled(p, in, leaf_sizes, out, donated, given);
  unsigned device = placement;
  for (int i = 0; i < p.n_inputs; ++i) device |= in[i]->device;
  if (device != kCpu) [[unlikely]]
    return run_anywhere(p, in, leaf_sizes, out, donated, given);
  if (tier_mode() == TierMode::generated || p.may_be_hot) [[unlikely]] {
    if (run_generated(p, in, leaf_sizes, out, donated, given)) return;
    const int64_t before = run_counters.instructions;
    run_steps(kCpu, p, in, leaf_sizes, out, donated, given, false);
    p.heat += run_counters.instructions - before;
    return;
  }
  run_steps(kCpu, p, in, leaf_sizes, out, donated, given, false);
}

bool Inspection::passes(Value* const* values, const int32_t* slots) const {
  for (const Output& o : outputs) {
    const Value* v = values[slots ? slots[o.which] : o.which];
    if ((!o.number || v->size == 1) && !all_finite(v)) return false;
  }
  return true;
}

bool run_inspected(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out, Value* const* donated,
                   const Inspection& inspection) {
  const bool on_host = std::all_of(in, in + p.n_inputs, [](const Value* v) { return v->device == kCpu; });
  if (profiling || tier_mode() == TierMode::generated || p.may_be_hot || !on_host ||
      inspection.step >= p.steps.size()) {
    run(p, in, leaf_sizes, out);
    return false;
  }
  run_steps(kCpu, p, in, leaf_sizes, out, donated, 0, false, &inspection);
  return true;
}

}  // namespace wengert
