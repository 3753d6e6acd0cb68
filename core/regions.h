// Steps that hold programs: branches, loops, and programs with sizes of their own.
#pragma once
#include "inspection.h"
#include "program.h"

namespace wengert {

// Receives the numbers that the host computes for a program running on a device, by slot. Null if not wanted.
struct NumberLog {
  virtual ~NumberLog() = default;
  virtual void add_number(int32_t slot, Value* number) = 0;
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

// Runs the regions of a step and stores the results in its slots.
void run_regions(const Step& s, StepView view);

// As `run`, nested in a run that may have written into donated values; inspects the values before one of the steps.
void run_steps(DeviceId device, const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out,
               Value* const* donated, int given, bool wrote, const Inspection* inspection = nullptr);

}  // namespace wengert
