#include "timing.h"

#include "../profile.h"
#include "device.h"

namespace wengert::cuda {

namespace {

using Marks = std::vector<std::unique_ptr<OwnEvent>>;

Marks& marks_on(DeviceId device) {
  static auto* all = new std::unordered_map<DeviceId, Marks>;
  return (*all)[device];
}

// While a program is noted, nothing runs.
int64_t mark(DeviceId device) {
  auto* gpu = dynamic_cast<CudaDevice*>(&device_at(device));
  if (!gpu || gpu->recording()) return -1;
  Marks& marks = marks_on(device);
  marks.push_back(gpu->make_event(true));
  gpu->record(*marks.back(), gpu->stream());
  return static_cast<int64_t>(marks.size()) - 1;
}

int64_t nanoseconds_between(DeviceId device, int64_t first, int64_t last) {
  const Marks& marks = marks_on(device);
  const OwnEvent& end = *marks[static_cast<size_t>(last)];
  checked(end.wait(), "cuEventSynchronize");
  return static_cast<int64_t>(1e6 * static_cast<double>(marks[static_cast<size_t>(first)]->milliseconds_until(end)));
}

void forget(DeviceId device) { marks_on(device).clear(); }

}  // namespace

void time_profiles() { profile_hooks.device_times = {mark, nanoseconds_between, forget}; }

}  // namespace wengert::cuda
