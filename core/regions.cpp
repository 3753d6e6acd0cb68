#include "regions.h"

#include <algorithm>

#include "small_array.h"
#include "threads.h"

namespace wengert {

namespace {

constexpr int64_t kTurnsBetweenSignals = 64;
constexpr size_t kFew = 32;  // stack space for operands, results and sizes

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

// Runs a region on the operands from index `first` on.
void run_region(const Region& region, const Step& s, size_t first, const StepView& view) {
  SmallArray<Value*, kFew> operands(s.in.size()), results(s.out.size());
  for (size_t i = first; i < s.in.size(); ++i) operands[i - first] = view.slots[s.in[i]];
  SmallArray<int64_t, kFew> leaves(region.leaves.size());
  read_leaves(region, s, view, leaves.data());
  run_steps(view.device, *region.program, operands.data(), leaves.data(), results.data(), nullptr, 0, view.wrote);
  for (size_t i = 0; i < s.out.size(); ++i) view.slots[s.out[i]] = results[i];
}

// An index out of range chooses the nearest region.
void choose(const Step& s, const StepView& view) {
  const auto last = static_cast<int64_t>(s.regions.size()) - 1;
  run_region(s.regions[std::clamp<int64_t>(integer_in(view.slots[s.in[0]]), 0, last)], s, 1, view);
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

// The state of a loop: the carried values, the slices of the current turn, and the stacked results so far.
class Turns {
 public:
  Turns(const Step& s, const StepView& view)
      : step_(s),
        view_(view),
        loop_(*s.loop),
        body_(*s.regions[0].program),
        n_fixed_(s.in.size() - loop_.n_carried - loop_.n_sliced),
        length_(SizeProgram::resolve(loop_.length, view.sizes)),
        operands_(s.in.size()),
        results_(s.out.size()),
        leaves_(s.regions[0].leaves.size()) {
    read_leaves(s.regions[0], s, view, leaves_.data());
    for (size_t i = 0; i < s.in.size(); ++i) {
      if (i < n_carried())
        carried_.push_back(Ref::share(view.slots[s.in[i]]));
      else if (i < n_carried() + n_fixed_)
        operands_[i] = view.slots[s.in[i]];
      else
        sliced_.push_back(view.slots[s.in[i]]);
    }
    for (size_t i = 0; i < loop_.stacked_shapes.size(); ++i)
      stacked_.emplace_back(empty(loop_.stacked_dtypes[i], resolve(loop_.stacked_shapes[i], view.sizes),
                                  Category::activation, view.device));
    for (const Value* x : sliced_)
      if (x->ndim == 0 || x->shape[0] != length_)
        fail(ErrorKind::shape, "scan", "a value of which each turn reads a slice has another length than the loop");
  }

  int64_t length() const { return length_; }

  void run(int64_t count) {
    const int64_t turn = loop_.reverse ? length_ - 1 - count : count;
    std::vector<Ref> slices;
    for (size_t i = 0; i < sliced_.size(); ++i) {
      slices.emplace_back(slice(sliced_[i], turn));
      operands_[n_carried() + n_fixed_ + i] = slices.back().v;
    }
    // The run takes these references, so the next carried values can reuse their memory if nobody else sees it.
    for (size_t i = 0; i < n_carried(); ++i) operands_[i] = carried_[i].take();
    run_steps(view_.device, body_, operands_.data(), leaves_.data(), results_.data(), nullptr, loop_.n_carried,
              view_.wrote);
    std::vector<Ref> made;
    for (size_t i = 0; i < results_.size(); ++i) made.emplace_back(results_[i]);
    for (size_t i = 0; i < n_carried(); ++i) carried_[i] = std::move(made[i]);
    for (size_t i = 0; i < stacked_.size(); ++i) {
      Ref place(slice(stacked_[i].v, turn));
      copy_into(made[n_carried() + i].v, place.v);
    }
  }

  void finish() {
    if (length_ == 0) make_own(carried_);
    for (size_t i = 0; i < step_.out.size(); ++i)
      view_.slots[step_.out[i]] = (i < n_carried() ? carried_[i] : stacked_[i - n_carried()]).take();
  }

 private:
  size_t n_carried() const { return static_cast<size_t>(loop_.n_carried); }

  const Step& step_;
  const StepView& view_;
  const Loop& loop_;
  const Program& body_;
  size_t n_fixed_;
  int64_t length_;
  std::vector<Value*> operands_, results_;
  std::vector<int64_t> leaves_;
  std::vector<Ref> carried_, stacked_;
  std::vector<const Value*> sliced_;
};

void repeat(const Step& s, const StepView& view) {
  Turns turns(s, view);
  for (int64_t count = 0; count < turns.length(); ++count) {
    turns.run(count);
    if (!view.wrote && count % kTurnsBetweenSignals == kTurnsBetweenSignals - 1) check_interrupt();
  }
  turns.finish();
}

// A loop that goes on while its condition holds.
class ConditionalTurns {
 public:
  ConditionalTurns(const Step& s, const StepView& view)
      : step_(s), view_(view), operands_(s.in.size()), results_(s.out.size()) {
    for (int k = 0; k < 2; ++k) {
      leaves_[k].resize(s.regions[k].leaves.size());
      read_leaves(s.regions[k], s, view, leaves_[k].data());
    }
    for (size_t i = 0; i < s.in.size(); ++i) operands_[i] = view.slots[s.in[i]];
    for (size_t i = 0; i < n_carried(); ++i) carried_.push_back(Ref::share(operands_[i]));
  }

  bool holds() {
    for (size_t i = 0; i < n_carried(); ++i) operands_[i] = carried_[i].v;
    Value* condition;
    run_steps(view_.device, *step_.regions[0].program, operands_.data(), leaves_[0].data(), &condition, nullptr, 0,
              view_.wrote);
    Ref owned(condition);
    return integer_in(condition) != 0;
  }

  void turn() {
    for (size_t i = 0; i < n_carried(); ++i) operands_[i] = carried_[i].take();
    run_steps(view_.device, *step_.regions[1].program, operands_.data(), leaves_[1].data(), results_.data(), nullptr,
              step_.loop->n_carried, view_.wrote);
    for (size_t i = 0; i < n_carried(); ++i) carried_[i] = Ref(results_[i]);
  }

  void finish(int64_t count) {
    if (count == 0) make_own(carried_);
    Value* turns = empty(DType::Int64, Dims{});
    *reinterpret_cast<int64_t*>(turns->data) = count;
    for (size_t i = 0; i < n_carried(); ++i) view_.slots[step_.out[i]] = carried_[i].take();
    view_.slots[step_.out[n_carried()]] = turns;
  }

 private:
  size_t n_carried() const { return static_cast<size_t>(step_.loop->n_carried); }

  const Step& step_;
  const StepView& view_;
  std::vector<int64_t> leaves_[2];  // of the condition and of the body
  std::vector<Value*> operands_, results_;
  std::vector<Ref> carried_;
};

void repeat_while(const Step& s, const StepView& view) {
  ConditionalTurns turns(s, view);
  int64_t count = 0;
  while (turns.holds()) {
    turns.turn();
    ++count;
    if (!view.wrote && count % kTurnsBetweenSignals == 0) check_interrupt();
  }
  turns.finish(count);
}

}  // namespace

void run_regions(const Step& s, StepView view) {
  if (s.n_sizes)
    run_region(s.regions[0], s, static_cast<size_t>(s.n_sizes), view);
  else if (!s.loop)
    choose(s, view);
  else if (s.regions.size() == 2)
    repeat_while(s, view);
  else
    repeat(s, view);
}

}  // namespace wengert
