// Steps that hold programs: branches, loops, and programs with sizes of their own.
#pragma once
#include "program.h"

namespace wengert {

// Told of numbers that the host computes for a program that runs on a device, by their slots. Null: nobody asks.
struct NumberLog {
  virtual ~NumberLog() = default;
  virtual void add_number(int32_t slot, Value* number) = 0;
};
extern NumberLog* number_log;

// What a step sees of the run of its program.
struct StepView {
  DeviceId device;
  Value** slots;
  const int64_t* sizes;
  const int64_t* leaf_sizes;
  bool wrote;  // into a donated value: from there on nothing is interrupted
};

inline Dims resolve(const Dims& d, const int64_t* sizes) {
  Dims r;
  r.n = d.n;
  for (int i = 0; i < d.n; ++i) r[i] = SizeProgram::resolve(d[i], sizes);
  return r;
}

// Runs the regions of a step, and puts the results into its slots.
void run_regions(const Step& s, StepView view);

// As `run`, inside of a run that has written into donated values or not.
void run_steps(DeviceId device, const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out,
               Value* const* donated, int given, bool wrote);

}  // namespace wengert
