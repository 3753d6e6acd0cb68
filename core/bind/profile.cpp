// Profiles for the Python side: starting, stopping, and the recorded events as columns.
#include "../profile.h"

#include <nanobind/stl/string.h>

#include <map>

#include "attributes.h"
#include "program.h"

namespace wengert {

namespace {

// Where a profile begins in the log, and the live bytes at that point.
struct ProfileMark {
  bool inside;
  size_t events, memory, spans;
  int64_t tick;
  uint64_t dropped;
  MemoryStats before;
};

// An event as Python reads it; the layout is repeated in src/wengert/profiling/events.py.
struct EventRow {
  int64_t start, end;  // nanoseconds
  uint64_t node;
  int64_t bytes, live;
  uint32_t signature, line, module;
  uint16_t thread;
  uint8_t phase, depth;
  int64_t on_device;  // nanoseconds that a device took whose work is not waited for
};
static_assert(sizeof(EventRow) == 64);

struct MemoryRow {
  int64_t time, bytes;
  int64_t buffer;  // the row that allocated it; -1 if it was live before
  uint32_t line;
  uint8_t category;
  uint8_t unused[3];
};
static_assert(sizeof(MemoryRow) == 32);

// Numbers the distinct lines. Number 0 means unknown.
class Lines {
 public:
  uint32_t number(SourceLine line) {
    if (!line.code) return 0;
    auto [found, fresh] = known_.try_emplace({line.code, line.instruction}, 0);
    if (fresh) found->second = by_place(static_cast<PyCodeObject*>(line.code), line.instruction);
    return found->second;
  }
  nb::list found() const { return found_; }

 private:
  uint32_t by_place(PyCodeObject* code, int instruction) {
    const int line = PyCode_Addr2Line(code, instruction);
    auto [place, fresh] = places_.try_emplace({code, line}, static_cast<uint32_t>(found_.size() + 1));
    if (fresh) found_.append(nb::make_tuple(nb::borrow(code->co_filename), line, nb::borrow(code->co_qualname)));
    return place->second;
  }

  std::map<std::pair<void*, int32_t>, uint32_t> known_;
  std::map<std::pair<void*, int>, uint32_t> places_;
  nb::list found_;
};

template <class Row>
nb::bytes as_bytes(const std::vector<Row>& rows) {
  return nb::bytes(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(Row));
}

int64_t time_on_device(const ProfileEvent& e) {
  if (e.began < 0 || e.finished < 0) return 0;
  return profile_hooks.device_times.nanoseconds_between(e.device, e.began, e.finished);
}

nb::bytes event_rows(const ProfileMark& mark, Lines& lines) {
  std::vector<EventRow> rows;
  rows.reserve(profile_log.events.size() - mark.events);
  for (size_t i = mark.events; i < profile_log.events.size(); ++i) {
    const ProfileEvent& e = profile_log.events[i];
    rows.push_back({profile_nanoseconds(e.start), profile_nanoseconds(e.end), e.node, e.bytes, e.live, e.signature,
                    lines.number(e.line), e.module, e.thread, static_cast<uint8_t>(e.phase), e.depth,
                    time_on_device(e)});
  }
  return as_bytes(rows);
}

// Uses the final category of each buffer: optimizer state, for instance, gets its category only after allocation.
nb::bytes memory_rows(const ProfileMark& mark, Lines& lines) {
  std::vector<MemoryRow> rows;
  std::unordered_map<const Buffer*, int64_t> living;
  rows.reserve(profile_log.memory.size() - mark.memory);
  for (size_t i = mark.memory; i < profile_log.memory.size(); ++i) {
    const MemoryEvent& e = profile_log.memory[i];
    const auto row = static_cast<int64_t>(rows.size());
    rows.push_back(
        {profile_nanoseconds(e.time), e.bytes, row, lines.number(e.line), static_cast<uint8_t>(e.category), {}});
    if (e.bytes >= 0) {
      living[e.buffer] = row;
      continue;
    }
    auto allocated = living.find(e.buffer);
    rows[row].buffer = allocated == living.end() ? -1 : allocated->second;
    if (allocated == living.end()) continue;
    rows[allocated->second].category = static_cast<uint8_t>(e.category);
    living.erase(allocated);
  }
  for (auto [buffer, row] : living) rows[row].category = static_cast<uint8_t>(buffer->category);
  return as_bytes(rows);
}

nb::tuple type_row(const Type& t) {
  return nb::make_tuple(static_cast<int>(t.dtype), nb::steal(dims_to_python(t.shape)));
}

// (kind, name, [(op, types of operands, attributes, types of results)], {what ran inside, by signature: how often})
nb::list signature_rows() {
  static constexpr const char* kinds[] = {"op", "group", "program"};
  nb::list out;
  for (const Signature& s : profile_log.signatures) {
    nb::list parts;
    for (const Signature::Part& p : s.parts) {
      nb::list in, attrs, made;
      for (const Type& t : p.in) in.append(type_row(t));
      for (const Type& t : p.out) made.append(type_row(t));
      for (const Attr& a : p.attrs) attrs.append(nb::steal(attr_to_python(a)));
      parts.append(nb::make_tuple(p.op, in, attrs, made));
    }
    nb::dict inner;
    for (auto [signature, times] : s.inner) inner[nb::cast(signature)] = times;
    out.append(nb::make_tuple(kinds[static_cast<int>(s.kind)], s.name, parts, inner));
  }
  return out;
}

// (number, id of the leaf or 0, name, line, module, (dtype, shape), saved bytes, numbers of its operands)
nb::list tape_rows(Lines& lines) {
  nb::list out;
  for (const TapeNode& n : profile_log.tape) {
    nb::list sources;
    for (uint64_t s : n.sources) sources.append(s);
    out.append(nb::make_tuple(n.seq, n.leaf_id, n.name, lines.number(n.line), n.module, type_row(n.type), n.saved_bytes,
                              sources));
  }
  return out;
}

// (kind, thread, start, end)
nb::list span_rows(const ProfileMark& mark) {
  nb::list out;
  for (size_t i = mark.spans; i < profile_log.spans.size(); ++i) {
    const ProfileSpan& s = profile_log.spans[i];
    out.append(
        nb::make_tuple(static_cast<int>(s.kind), s.thread, profile_nanoseconds(s.start), profile_nanoseconds(s.end)));
  }
  return out;
}

nb::dict by_category(const size_t* bytes) {
  nb::dict d;
  for (int c = 0; c < kNumCategories; ++c) d[name_of(static_cast<Category>(c))] = bytes[c];
  return d;
}

ProfileMark begin(bool inside, size_t most_events) {
  start_profile(inside, most_events);
  return {inside,
          profile_log.events.size(),
          profile_log.memory.size(),
          profile_log.spans.size(),
          profile_ticks(),
          profile_log.dropped,
          memory_stats()};
}

nb::dict finish(const ProfileMark& mark) {
  const int64_t end = profile_ticks();
  stop_profile(mark.inside);
  Lines lines;
  nb::dict d;
  d["start"] = profile_nanoseconds(mark.tick);
  d["end"] = profile_nanoseconds(end);
  d["events"] = event_rows(mark, lines);
  d["memory"] = memory_rows(mark, lines);
  d["spans"] = span_rows(mark);
  d["signatures"] = signature_rows();
  d["tape"] = tape_rows(lines);
  d["lines"] = lines.found();
  d["dropped"] = profile_log.dropped - mark.dropped;
  d["live_before"] = mark.before.live_bytes;
  d["live_before_by_category"] = by_category(mark.before.live_by_category);
  return d;
}

}  // namespace

void init_profile(nb::module_& m) {
  nb::class_<ProfileMark>(m, "ProfileMark", "Where a profile begins.");
  m.def("profile_start", &begin, nb::arg("inside"), nb::arg("most_events"));
  m.def("profile_stop", &finish, nb::arg("mark"));
  m.def("profile_module", [](uint32_t module) { return set_profiled_module(module, last_recorded(), &thread_state); });
  m.def("profile_paused", &set_profile_paused, nb::arg("paused"));
  m.def("profile_preparing", &set_profile_preparing, nb::arg("preparing"));
  m.def("profiling", [] { return profiling; });
  profile_hooks.source_line = current_line;
  profile_hooks.last_recorded = last_recorded;
  profile_hooks.share_line = [](SourceLine line) {
    Py_INCREF(static_cast<PyObject*>(line.code));
    return line;
  };
}

}  // namespace wengert
