// Steps that hold programs: branches, loops, and programs with sizes of their own.
#pragma once
#include <variant>

#include "inspection.h"
#include "program.h"
#include "small_array.h"

namespace wengert {

// Receives the numbers that the host computes for a program running on a device, by slot, and is told which step with
// computed attributes runs (null: it has ended). Null if not wanted.
struct NumberLog {
  virtual ~NumberLog() = default;
  virtual void add_number(int32_t slot, Value* number) = 0;
  virtual void set_step(const Step* s) = 0;
};
extern NumberLog* number_log;

// The part of a run that a step can access.
struct StepView {
  DeviceId device;
  Value** slots;
  const int64_t* sizes;
  const int64_t* leaf_sizes;
  bool wrote;  // wrote into a donated value; from then on nothing may be interrupted
};

inline Dims resolve(const Dims& d, const int64_t* sizes) {
  Dims r;
  r.n = d.n;
  for (int i = 0; i < d.n; ++i) r[i] = SizeProgram::resolve(d[i], sizes);
  return r;
}

// What a program runs on, as the arguments of `run`.
struct ProgramCall {
  const Program* program;
  Value* const* in;
  const int64_t* leaf_sizes;
  Value** out;
  int given = 0;
};

// A step that runs one of its regions, once.
class SingleRun {
 public:
  SingleRun(const Step& s, const StepView& view);
  const ProgramCall* next();

 private:
  static constexpr size_t kFew = 32;

  const Step& step_;
  const StepView view_;
  const Region& region_;
  SmallArray<Value*, kFew> operands_, results_;
  SmallArray<int64_t, kFew> leaves_;
  ProgramCall call_;
  bool begun_ = false;
};

// A loop: the carried values, the slices that the current turn reads, and the stacked results so far.
class Turns {
 public:
  Turns(const Step& s, const StepView& view);
  const ProgramCall* next();

 private:
  size_t n_carried() const { return static_cast<size_t>(loop_.n_carried); }
  int64_t turn() const { return loop_.reverse ? length_ - 1 - count_ : count_; }
  void begin_turn();
  void end_turn();
  void finish();

  const Step& step_;
  const StepView view_;
  const Loop& loop_;
  size_t n_fixed_;
  int64_t length_, count_ = 0;
  std::vector<Value*> operands_, results_;
  std::vector<int64_t> leaves_;
  std::vector<Ref> carried_, stacked_, slices_;
  std::vector<const Value*> sliced_;
  ProgramCall call_;
  bool in_turn_ = false;
};

// A loop that goes on while its condition holds.
class ConditionalTurns {
 public:
  ConditionalTurns(const Step& s, const StepView& view);
  const ProgramCall* next();

 private:
  size_t n_carried() const { return static_cast<size_t>(step_.loop->n_carried); }
  const ProgramCall* begin_condition();
  const ProgramCall* begin_turn();
  bool holds();
  void end_turn();
  void finish();

  const Step& step_;
  const StepView view_;
  std::vector<int64_t> leaves_[2];  // of the condition and of the body
  std::vector<Value*> operands_, results_;
  std::vector<Ref> carried_;
  Value* condition_ = nullptr;
  ProgramCall calls_[2];
  int64_t count_ = 0;
  enum class Running : uint8_t { nothing, condition, body } running_ = Running::nothing;
};

// A step that holds programs, while it is executed: it says which of them runs next, and whoever asks runs it.
class RegionsInProgress {
 public:
  bool any() const { return state_.index() != 0; }
  void begin(const Step& s, const StepView& view);
  // The next run; the results of the one before are where it wanted them. Null: those of the step are in its slots.
  const ProgramCall* next();

 private:
  std::variant<std::monostate, SingleRun, Turns, ConditionalTurns> state_;
};

// As `run`, nested in a run that may have written into donated values; inspects the values before one of the steps.
void run_steps(DeviceId device, const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out,
               Value* const* donated, int given, bool wrote, const Inspection* inspection = nullptr);

}  // namespace wengert
