#include "ledger.h"

#include <algorithm>
#include <utility>

namespace wengert {

namespace {

constexpr size_t kLinesShown = 5;
constexpr double kNoticed = 1.01;  // record the peak's contents again when it has grown by this factor

struct Line {
  void* code;
  int32_t instruction;
  bool operator==(const Line&) const = default;
};
struct HashLine {
  size_t operator()(const Line& l) const {
    return std::hash<void*>()(l.code) * 31 + static_cast<size_t>(l.instruction);
  }
};
struct Count {
  SourceLine line;  // owned by the table
  int64_t bytes = 0, buffers = 0;
};
using Table = std::unordered_map<Line, Count, HashLine>;
Table live;
std::vector<LiveLine> at_peak;
size_t noticed_peak = 0;

std::vector<LiveLine> listed(const Table& table) {
  std::vector<LiveLine> lines;
  for (const auto& [key, c] : table)
    if (c.buffers) lines.push_back({tape_hooks.describe_line(c.line), c.bytes, c.buffers});
  std::sort(lines.begin(), lines.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
  return lines;
}

void note_made(Buffer* b) {
  b->written = tape_hooks.source_line();
  if (!b->written.code) return;
  Count& c = live[{b->written.code, b->written.instruction}];
  if (!c.line.code) c.line = tape_hooks.source_line();  // the table's own reference
  b->written.counted = 1;
  c.bytes += static_cast<int64_t>(b->bytes);
  ++c.buffers;
  const size_t now = memory_pool.stats.live_bytes;
  if (static_cast<double>(now) <= kNoticed * static_cast<double>(noticed_peak)) return;
  noticed_peak = now;
  at_peak = listed(live);
}

void uncount(Buffer* b) {
  Count& c = live[{b->written.code, b->written.instruction}];
  c.bytes -= static_cast<int64_t>(b->bytes);
  --c.buffers;
}

std::string in_mb(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f MB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

std::string by_category() {
  const MemoryStats s = memory_stats();
  std::string text;
  for (int c = 0; c < kNumCategories; ++c)
    if (s.live_by_category[c])
      text += (text.empty() ? "" : ", ") + std::string(name_of(static_cast<Category>(c))) + " " +
              in_mb(s.live_by_category[c]);
  return text;
}

// `fixed`: live bytes that cannot be dropped; `more`: what is requested on top.
[[noreturn]] void fail_budget(size_t fixed, size_t more, const char* what) {
  const std::string held = by_category();
  throw Error(
      ErrorKind::budget,
      "the memory budget of " + in_mb(memory_pool.limit) + " cannot be met: at least " + in_mb(fixed + more) +
          " are needed here, " + (fixed ? in_mb(fixed) + " that cannot be dropped (" + held + ") and " : "") +
          in_mb(more) + " for " + what + describe_largest_lines(kCpu) +
          ". Tensors that variables refer to, memory shared with NumPy and results of custom operations are kept; "
          "raise the budget, delete what is not needed, or use a smaller batch");
}

[[noreturn]] void fail_on(const Device& device, size_t bytes) {
  const size_t fixed = fixed_bytes(&device);
  throw Error(ErrorKind::budget,
              "the memory budget of " + in_mb(device.limit) + " on " + device.name + " cannot be met: at least " +
                  in_mb(fixed + bytes) + " are needed here, " + in_mb(fixed) + " that cannot be dropped and " +
                  in_mb(bytes) + " for a new tensor" + describe_largest_lines(device.id) +
                  ". Tensors that variables refer to, memory shared with other libraries and results of custom "
                  "operations are kept; raise the budget, delete what is not needed, or use a smaller batch");
}

[[noreturn]] void fail_allocation(size_t bytes) {
  fail_budget(fixed_bytes(), bytes, bytes ? "a new tensor" : "tensors that are being computed");
}

}  // namespace

std::vector<LiveLine> live_by_line() { return listed(live); }
std::vector<LiveLine> peak_by_line() { return at_peak; }

void start_noting() {
  noticed_peak = 0;
  at_peak.clear();
  note_lines(true);
}

LineBytes saved_by_line_on(DeviceId device) {
  std::unordered_map<std::string, int64_t> bytes;
  std::unordered_map<const Buffer*, bool> seen;
  for (const Node* n = latest_recorded(); n; n = n->previous)
    for (int i = 0; i < n->n_saved; ++i) {
      const Value* v = n->saved[i].value;
      const Buffer* b = v->buffer;
      const bool dropped = device == kCpu ? b->size_class >= kManagedOnDevice : !b->data;
      if (v->device != device || b->category == Category::parameter || dropped) continue;  // parameters live anyway
      if (seen.emplace(b, true).second) bytes[tape_hooks.describe_line(n->line)] += static_cast<int64_t>(b->bytes);
    }
  LineBytes lines(bytes.begin(), bytes.end());
  std::sort(lines.begin(), lines.end(), [](auto& a, auto& b) { return a.second > b.second; });
  return lines;
}

LineBytes saved_by_line() { return saved_by_line_on(kCpu); }

std::string describe_largest_lines(DeviceId device) {
  std::string text;
  const LineBytes lines = saved_by_line_on(device);
  for (size_t i = 0; i < std::min(lines.size(), kLinesShown); ++i)
    text +=
        (i ? ", " : "; saved for backward: ") + in_mb(static_cast<size_t>(lines[i].second)) + " at " + lines[i].first;
  return text;
}

void set_budget(size_t bytes) {
  const size_t before = memory_pool.limit, live = memory_pool.stats.live_bytes;
  set_limit(bytes);
  if (!bytes || live <= bytes) return;
  memory_hooks.make_room(live - bytes);
  if (memory_pool.stats.live_bytes <= bytes) return;
  try {
    fail_budget(fixed_bytes(), 0, "anything else");
  } catch (...) {
    set_limit(before);
    throw;
  }
}

void set_budget_on(Device& device, size_t bytes) {
  const size_t before = std::exchange(device.limit, bytes);
  if (!bytes || device.live_bytes <= bytes) return;
  memory_hooks.make_room_on(device, device.live_bytes - bytes);
  if (device.live_bytes <= bytes) return;
  try {
    fail_on(device, 0);
  } catch (...) {
    device.limit = before;
    throw;
  }
}

void require_room_for_gradients(size_t bytes) {
  if (!memory_pool.limit) return;
  const size_t fixed = fixed_bytes();
  if (fixed + bytes > memory_pool.limit) fail_budget(fixed, bytes, "the gradients");
}

void set_budget_hooks() {
  memory_hooks.fail = fail_allocation;
  memory_hooks.fail_on = fail_on;
  memory_hooks.note_made = note_made;
  memory_hooks.uncount = uncount;
}

}  // namespace wengert
