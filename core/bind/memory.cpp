// Memory as Python sees it: statistics, budgets and policies.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../ledger.h"
#include "program.h"

namespace wengert {

namespace {

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

nb::list lines_to_python(const std::vector<LiveLine>& lines) {
  nb::list out;
  for (const LiveLine& l : lines) out.append(nb::make_tuple(l.line, l.bytes, l.buffers));
  return out;
}

}  // namespace

void init_memory(nb::module_& m) {
  set_replay_hooks();
  set_budget_hooks();
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
  m.def("set_memory_budget", [](size_t bytes) { guarded([&] { set_budget(bytes); }); });
}

}  // namespace wengert
