// Memory as Python sees it: statistics, budgets and policies.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../ledger.h"
#include "program.h"

namespace wengert {

namespace {

// By category, each buffer once. Buffers kept for backward count as `saved`, except parameters, which are live anyway.
nb::dict memory_stats_dict() {
  const MemoryStats s = memory_stats();
  nb::dict d, by;
  size_t saved = 0;
  for (int c = 0; c < kNumCategories; ++c) {
    const bool counts = static_cast<Category>(c) != Category::parameter;
    if (counts) saved += s.saved_by_category[c];
    by[name_of(static_cast<Category>(c))] = s.live_by_category[c] - (counts ? s.saved_by_category[c] : 0);
  }
  by["saved"] = saved;
  d["live_bytes"] = s.live_bytes;
  d["peak_bytes"] = s.peak_bytes;
  d["saved_bytes"] = saved;
  d["pooled_bytes"] = s.pooled_bytes;
  d["allocations"] = s.allocations;
  d["pool_hits"] = s.pool_hits;
  d["by_category"] = by;
  return d;
}

nb::dict replay_stats() {
  nb::dict d;
  d["dropped"] = replay_counters.dropped;
  d["dropped_bytes"] = replay_counters.dropped_bytes;
  d["stored"] = replay_counters.stored;
  d["loaded"] = replay_counters.loaded;
  d["recomputed"] = replay_counters.recomputed;
  d["kept_bytes"] = replay_counters.kept_bytes;
  d["seconds_made"] = replay_counters.seconds_made;
  d["seconds_again"] = replay_counters.seconds_again;
  return d;
}

// Makes this thread remember its calls, so that their results can be dropped and recomputed.
void set_replays(const ReplayPolicy& p) {
  set_policy(p);
  thread_state.replays = p.kind != ReplayPolicy::Kind::none;
  thread_state.update();
}

ReplayPolicy make_policy(int kind, int64_t every, double flops_per_byte, const nb::object& folder, int codec) {
  return guarded([&] {
    ReplayPolicy p{static_cast<ReplayPolicy::Kind>(kind), every, flops_per_byte};
    if (!folder.is_none()) p.store = open_store(nb::cast<std::string>(folder));
    p.codec = static_cast<Codec>(codec);
    return p;
  });
}

Device& device_of_number(int number) {
  if (number <= kCpu || !has_device(number))
    fail(ErrorKind::device, "memory", "there is no device with the number " + std::to_string(number));
  return device_at(static_cast<DeviceId>(number));
}

nb::list lines_to_python(const std::vector<LiveLine>& lines) {
  nb::list out;
  for (const LiveLine& l : lines) out.append(nb::make_tuple(l.line, l.bytes, l.buffers));
  return out;
}

}  // namespace

void init_memory(nb::module_& m) {
  set_replay_hooks();
  set_budget_hooks();
  m.def("memory_stats", &memory_stats_dict);
  m.def("clear_recorded", &clear_recorded);
  m.def("reset_peak", &reset_peak);
  m.def("empty_pool", [] {
    empty_pool();
    drop_free_objects();
  });
  m.def("saved_by_line", &saved_by_line);
  m.def("note_lines", [](bool on) { on ? start_noting() : note_lines(false); });
  m.def("live_by_line", [] { return lines_to_python(live_by_line()); });
  m.def("peak_by_line", [] { return lines_to_python(peak_by_line()); });
  m.def("replay_stats", &replay_stats);
  m.def("set_replays", &set_replays);
  nb::class_<ReplayPolicy>(m, "ReplayPolicy", "Which results of recorded operations are dropped, and how.");
  m.def("replay_policy", &make_policy, nb::arg("kind"), nb::arg("every"), nb::arg("flops_per_byte"),
        nb::arg("folder").none(), nb::arg("codec"));
  m.def("replays", [] { return current_policy(); });
  m.def("memory_limit", [] { return memory_pool.limit; });
  m.def("set_memory_limit", [](size_t bytes) { set_limit(bytes); });
  // Of devices, by their numbers; 0 is the host.
  m.def("device_memory_limit", [](int number) { return guarded([&] { return device_of_number(number).limit; }); });
  m.def("set_device_memory_limit",
        [](int number, size_t bytes) { guarded([&] { device_of_number(number).limit = bytes; }); });
  m.def("set_device_memory_budget",
        [](int number, size_t bytes) { guarded([&] { set_budget_on(device_of_number(number), bytes); }); });
  m.def("clear_memory_limits", [] {
    set_limit(0);
    for (int number = 1; has_device(number); ++number) device_at(static_cast<DeviceId>(number)).limit = 0;
  });
  m.def("saved_by_line_on",
        [](int number) { return guarded([&] { return saved_by_line_on(device_of_number(number).id); }); });
  m.def("set_memory_budget", [](size_t bytes) { guarded([&] { set_budget(bytes); }); });
}

}  // namespace wengert
