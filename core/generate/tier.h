// The tier that generates code for hot programs: chooses programs, has them compiled, and runs the code.
#pragma once
#include <map>
#include <string>

#include "../program.h"

namespace wengert {

// WENGERT_TIER: `automatic` (hot programs, compiled in the background), `executor` (none), `generated` (every program,
// at once).
enum class TierMode : uint8_t { automatic, executor, generated };
TierMode tier_mode();
void set_tier_mode(TierMode mode);  // for tests

// Runs the program by generated code if there is code for these operands. The arguments are those of `run`.
bool run_generated(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out, Value* const* donated,
                   int given);

// What currently runs the program, in words: "executor", "generated code", or the executor and the reason.
std::string tier_of(const Program& p);

struct TierCounters {
  int64_t runs = 0;                        // by generated code
  int64_t programs = 0;                    // programs that have generated code
  int64_t compiled = 0, read = 0;          // compiled, and read from disk
  std::map<std::string, int64_t> refused;  // programs that are left to the executor, by reason
};
TierCounters tier_counters();

// Warns once per process why there is no generated code. Set by the bindings; called under the GIL.
extern void (*warn_without_compiler)(const char* why);

// Waits until nothing is being compiled (for tests and benchmarks), and ends the thread that compiles (at exit).
void wait_for_compiler();
void end_compiler();

}  // namespace wengert
