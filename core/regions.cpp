#include "regions.h"

#include <algorithm>
#include <utility>

#include "threads.h"

namespace wengert {

namespace {

constexpr int64_t kTurnsBetweenSignals = 64;

int64_t integer_in(const Value* number) {
  const Ref v(on_device(number, kCpu));
  return v->dtype == DType::Bool ? *reinterpret_cast<const bool*>(v->data) : *reinterpret_cast<const int64_t*>(v->data);
}

// Reads the sizes that a region needs.
void read_leaves(const Region& region, const Step& s, const StepView& view, int64_t* leaves) {
  for (size_t i = 0; i < region.leaves.size(); ++i) {
    const int32_t at = region.leaves[i];
    leaves[i] = at >= 0 ? view.leaf_sizes[at] : std::max<int64_t>(0, integer_in(view.slots[s.in[~at]]));
  }
}

// The region that runs; an index out of range chooses the nearest.
const Region& chosen(const Step& s, const StepView& view) {
  if (s.n_sizes) return s.regions[0];
  const auto last = static_cast<int64_t>(s.regions.size()) - 1;
  return s.regions[static_cast<size_t>(std::clamp<int64_t>(integer_in(view.slots[s.in[0]]), 0, last))];
}

// A loop without turns returns its operands, so they are copied into separate values.
void make_own(std::vector<Ref>& carried) {
  for (Ref& r : carried) {
    Dims shape;
    shape.n = r.v->ndim;
    for (int i = 0; i < shape.n; ++i) shape[i] = r.v->shape[i];
    Ref copy(empty(r.v->dtype, shape));
    copy_into(r.v, copy.v);
    r = std::move(copy);
  }
}

// The slice of a value along its first axis that one turn reads.
Value* slice(const Value* x, int64_t turn) {
  Dims shape;
  shape.n = x->ndim - 1;
  for (int i = 0; i < shape.n; ++i) shape[i] = x->shape[i + 1];
  return view(x, shape, x->strides + 1, turn * x->strides[0]);
}

}  // namespace

SingleRun::SingleRun(const Step& s, const StepView& view)
    : step_(s),
      view_(view),
      region_(chosen(s, view)),
      operands_(s.in.size()),
      results_(s.out.size()),
      leaves_(region_.leaves.size()),
      call_{region_.program.get(), operands_.data(), leaves_.data(), results_.data()} {
  const size_t first = s.n_sizes ? static_cast<size_t>(s.n_sizes) : 1;
  for (size_t i = first; i < s.in.size(); ++i) operands_[i - first] = view.slots[s.in[i]];
  read_leaves(region_, s, view, leaves_.data());
}

const ProgramCall* SingleRun::next() {
  if (!std::exchange(begun_, true)) return &call_;
  for (size_t i = 0; i < step_.out.size(); ++i) view_.slots[step_.out[i]] = results_[i];
  return nullptr;
}

Turns::Turns(const Step& s, const StepView& view)
    : step_(s),
      view_(view),
      loop_(*s.loop),
      n_fixed_(s.in.size() - static_cast<size_t>(loop_.n_carried + loop_.n_sliced)),
      length_(SizeProgram::resolve(loop_.length, view.sizes)),
      operands_(s.in.size()),
      results_(s.out.size()),
      leaves_(s.regions[0].leaves.size()),
      call_{s.regions[0].program.get(), operands_.data(), leaves_.data(), results_.data(), loop_.n_carried} {
  read_leaves(s.regions[0], s, view, leaves_.data());
  for (size_t i = 0; i < s.in.size(); ++i) {
    if (i < n_carried())
      carried_.push_back(Ref::share(view.slots[s.in[i]]));
    else if (i < n_carried() + n_fixed_)
      operands_[i] = view.slots[s.in[i]];
    else
      sliced_.push_back(view.slots[s.in[i]]);
  }
  slices_.resize(sliced_.size());
  for (size_t i = 0; i < loop_.stacked_shapes.size(); ++i)
    stacked_.emplace_back(empty(loop_.stacked_dtypes[i], resolve(loop_.stacked_shapes[i], view.sizes),
                                Category::activation, view.device));
  for (const Value* x : sliced_)
    if (x->ndim == 0 || x->shape[0] != length_)
      fail(ErrorKind::shape, "scan", "a value of which each turn reads a slice has another length than the loop");
}

const ProgramCall* Turns::next() {
  if (in_turn_) end_turn();
  if (count_ == length_) {
    finish();
    return nullptr;
  }
  begin_turn();
  return &call_;
}

void Turns::begin_turn() {
  in_turn_ = true;
  for (size_t i = 0; i < sliced_.size(); ++i) {
    slices_[i] = Ref(slice(sliced_[i], turn()));
    operands_[n_carried() + n_fixed_ + i] = slices_[i].v;
  }
  // The run takes these references, so the next carried values can reuse their memory if nobody else sees it.
  for (size_t i = 0; i < n_carried(); ++i) operands_[i] = carried_[i].take();
}

void Turns::end_turn() {
  in_turn_ = false;
  for (size_t i = 0; i < n_carried(); ++i) carried_[i] = Ref(results_[i]);
  for (size_t i = 0; i < stacked_.size(); ++i) {
    const Ref made(results_[n_carried() + i]), place(slice(stacked_[i].v, turn()));
    copy_into(made.v, place.v);
  }
  if (!view_.wrote && count_ % kTurnsBetweenSignals == kTurnsBetweenSignals - 1) check_interrupt();
  ++count_;
}

void Turns::finish() {
  if (length_ == 0) make_own(carried_);
  for (size_t i = 0; i < step_.out.size(); ++i)
    view_.slots[step_.out[i]] = (i < n_carried() ? carried_[i] : stacked_[i - n_carried()]).take();
}

ConditionalTurns::ConditionalTurns(const Step& s, const StepView& view)
    : step_(s), view_(view), operands_(s.in.size()), results_(s.out.size()) {
  for (int k = 0; k < 2; ++k) {
    leaves_[k].resize(s.regions[k].leaves.size());
    read_leaves(s.regions[k], s, view, leaves_[k].data());
    calls_[k] = {s.regions[k].program.get(), operands_.data(), leaves_[k].data(), k ? results_.data() : &condition_,
                 k ? s.loop->n_carried : 0};
  }
  for (size_t i = 0; i < s.in.size(); ++i) operands_[i] = view.slots[s.in[i]];
  for (size_t i = 0; i < n_carried(); ++i) carried_.push_back(Ref::share(operands_[i]));
}

const ProgramCall* ConditionalTurns::next() {
  if (running_ == Running::condition) {
    if (holds()) return begin_turn();
    finish();
    return nullptr;
  }
  if (running_ == Running::body) end_turn();
  return begin_condition();
}

const ProgramCall* ConditionalTurns::begin_condition() {
  running_ = Running::condition;
  for (size_t i = 0; i < n_carried(); ++i) operands_[i] = carried_[i].v;
  return &calls_[0];
}

bool ConditionalTurns::holds() {
  const Ref condition(condition_);
  return integer_in(condition.v) != 0;
}

const ProgramCall* ConditionalTurns::begin_turn() {
  running_ = Running::body;
  for (size_t i = 0; i < n_carried(); ++i) operands_[i] = carried_[i].take();
  return &calls_[1];
}

void ConditionalTurns::end_turn() {
  for (size_t i = 0; i < n_carried(); ++i) carried_[i] = Ref(results_[i]);
  ++count_;
  if (!view_.wrote && count_ % kTurnsBetweenSignals == 0) check_interrupt();
}

void ConditionalTurns::finish() {
  if (count_ == 0) make_own(carried_);
  Value* turns = empty(DType::Int64, Dims{});
  *reinterpret_cast<int64_t*>(turns->data) = count_;
  for (size_t i = 0; i < n_carried(); ++i) view_.slots[step_.out[i]] = carried_[i].take();
  view_.slots[step_.out[n_carried()]] = turns;
}

void RegionsInProgress::begin(const Step& s, const StepView& view) {
  if (!s.loop)
    state_.emplace<SingleRun>(s, view);
  else if (s.regions.size() == 2)
    state_.emplace<ConditionalTurns>(s, view);
  else
    state_.emplace<Turns>(s, view);
}

const ProgramCall* RegionsInProgress::next() {
  const ProgramCall* call = nullptr;
  if (auto* single = std::get_if<SingleRun>(&state_))
    call = single->next();
  else if (auto* turns = std::get_if<Turns>(&state_))
    call = turns->next();
  else
    call = std::get<ConditionalTurns>(state_).next();
  if (!call) state_.emplace<std::monostate>();
  return call;
}

}  // namespace wengert
