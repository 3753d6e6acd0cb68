// What the memory is used for, by the lines of the user's program; and what is said when a budget cannot be met.
#pragma once
#include "tape.h"

namespace wengert {

using LineBytes = std::vector<std::pair<std::string, int64_t>>;  // the largest first

// Bytes that recorded instructions keep, by the line that recorded them; a buffer counts at its first keeper.
LineBytes saved_by_line();

// While lines are noted: live buffers by the line that made them, or that wrote to them last.
struct LiveLine {
  std::string line;
  int64_t bytes, buffers;
};
void start_noting();
std::vector<LiveLine> live_by_line();
std::vector<LiveLine> peak_by_line();  // when most was live since noting began

// The lines that keep most, as a clause of an error message; empty if there are none.
std::string describe_largest_lines();

// A limit for all live bytes; 0: none. Throws if what cannot be dropped takes more already.
void set_budget(size_t bytes);
// Before a walk: throws if the gradients of these leaves cannot be held beside what cannot be dropped.
void require_room_for_gradients(size_t bytes);

void set_budget_hooks();  // once, at start

}  // namespace wengert
