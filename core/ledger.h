// Memory use by source line of the user's program, and the errors for budgets that cannot be met.
#pragma once
#include "tape.h"

namespace wengert {

using LineBytes = std::vector<std::pair<std::string, int64_t>>;  // the largest first

// Bytes that recorded instructions keep, by the line that recorded them. A buffer counts once, for its first keeper.
LineBytes saved_by_line();
LineBytes saved_by_line_on(DeviceId device);  // most first

// While lines are noted: live buffers by the line that made them or last wrote to them.
struct LiveLine {
  std::string line;
  int64_t bytes, buffers;
};
void start_noting();
std::vector<LiveLine> live_by_line();
std::vector<LiveLine> peak_by_line();  // at the highest peak since noting began

// The lines that keep the most, as part of an error message; empty if there are none.
std::string describe_largest_lines(DeviceId device);

// Limits all live bytes; 0 means no limit. Throws if what cannot be dropped already exceeds the limit.
void set_budget(size_t bytes);
void set_budget_on(Device& device, size_t bytes);  // of a device's memory
// Called before a walk: throws if gradients of this size do not fit beside what cannot be dropped.
void require_room_for_gradients(size_t bytes);

void set_budget_hooks();  // once, at start

}  // namespace wengert
