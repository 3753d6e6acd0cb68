// A program that is being run: what its steps and its fused groups share.
#pragma once
#include "program.h"
#include "regions.h"

namespace wengert {

inline constexpr int64_t kTileElements = 4096;  // fewer elements are not worth another thread
inline constexpr size_t kFew = 32;              // stack space for registers, slots and sizes

// Whether nobody else can see this value, so that a result may take its place.
inline bool reusable(const Value* v) {
  return v->refs == 1 && v->buffer->refs == 1 && v->contiguous && !v->node && !v->buffer->pinned &&
         !is_managed(v->buffer);
}

// One run of a program. It owns the results of steps and the first `given` inputs, and releases each after its
// last use unless it becomes an output.
struct Run {
  const Program& p;
  Value** slots;
  const int64_t* sizes;
  const int64_t* leaf_sizes;
  Value* const* donated;
  int given;
  DeviceId device = kCpu;
  int small_steps = 0;
  bool wrote = false;  // wrote into a donated value; from then on a failure cannot be undone

  bool owns(int32_t slot) const { return slot < given || slot >= p.n_inputs; }

  Value* donated_for(int32_t slot) const {
    for (size_t i = 0; i < p.outputs.size(); ++i)
      if (p.outputs[i] == slot && donated[i]) return donated[i];
    return nullptr;
  }
  // Remembers what the host computed for a program that runs on another device.
  void note(int32_t slot) const {
    if (number_log && device != kCpu && slots[slot]->device == kCpu) number_log->add_number(slot, slots[slot]);
  }
  void drop(int32_t slot) {
    release(slots[slot]);
    slots[slot] = nullptr;
  }
};

// Operands copied to a device for one step.
class DeviceOperands {
 public:
  explicit DeviceOperands(DeviceId device) : device_(device) {}
  Value* operand(Value* v);

 private:
  DeviceId device_;
  std::vector<Ref> owned_;
};

// Not inlined: their buffers would otherwise take stack space in every run.
void run_group(const FusedGroup& g, Run& run);
void run_group_on_device(const FusedGroup& g, Run& run);
// Runs a program of one group if all operands are packed or numbers and fit one block. Otherwise returns false and does
// nothing.
bool run_one_block(const Program& p, Value* const* in, Value** out, int given);

}  // namespace wengert
