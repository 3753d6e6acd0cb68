// Devices, for Python.
#include "../device.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>

#include "../test_device.h"
#include "dual.h"
#include "program.h"

namespace wengert {

namespace {

TestDevice& test_device() {
  static auto* made = [] {
    auto device = std::make_unique<TestDevice>();
    auto* kept = device.get();
    add_device(std::move(device));
    return kept;
  }();
  return *made;
}

void require_device(int id) {
  if (id < 0 || (id != kCpu && !has_device(id))) throw nb::value_error("there is no such device");
}

// Sets the device on which ops without operands allocate; returns the previous one.
int set_placement(int id) {
  require_device(id);
  return std::exchange(placement, static_cast<DeviceId>(id));
}

nb::tuple device_memory(int id) {
  require_device(id);
  if (id == kCpu) {
    const MemoryStats stats = memory_stats();
    return nb::make_tuple(stats.live_bytes, stats.peak_bytes);
  }
  const Device& device = device_at(static_cast<DeviceId>(id));
  return nb::make_tuple(device.live_bytes, device.peak_bytes);
}

}  // namespace

void init_device(nb::module_& m) {
  // The device of a plain or dual tensor; -1 for one without data.
  m.def("device_of", [](nb::handle tensor) -> int {
    const Value* v = bottom_value(tensor.ptr());
    return v ? v->device : -1;
  });
  m.def("device_name", [](int id) {
    require_device(id);
    return device_name(static_cast<DeviceId>(id));
  });
  m.def("device_memory", &device_memory);
  m.def("reset_device_peak", [](int id) {
    require_device(id);
    if (id == kCpu) return reset_peak();
    Device& device = device_at(static_cast<DeviceId>(id));
    device.peak_bytes = device.live_bytes;
  });
  m.def("synchronise", [](int id) {
    require_device(id);
    if (id != kCpu) guarded([&] { device_at(static_cast<DeviceId>(id)).synchronise(); });
  });
  m.def("placement", []() -> int { return placement; });
  m.def("set_placement", &set_placement);
  // Whether copies between the host and devices may return before they are done; returns what was set before.
  m.def("set_copies_in_background", [](bool on) { return std::exchange(copies_in_background, on); });
  // The test device: its number, its counters (reset on reading), the ops it refuses, and the size of its memory.
  m.def("test_device", []() -> int { return test_device().id; });
  m.def("test_device_calls", [] { return std::exchange(test_device().calls, {}); });
  m.def("test_device_refuse", [](std::set<std::string> ops) { test_device().refused = std::move(ops); });
  m.def("test_device_limit", [](size_t bytes) { test_device().most_bytes = bytes; });
}

}  // namespace wengert
