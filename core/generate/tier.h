// The tier that generates code for programs that stay hot: which program, when, and running what was made.
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

// Runs the program by generated code, if there is some for these operands. Arguments as of `run`.
bool run_generated(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out, Value* const* donated,
                   int given);

// What runs the program now, in words: "executor", "generated code", or the executor and why.
std::string tier_of(const Program& p);

struct TierCounters {
  int64_t runs = 0;                        // by generated code
  int64_t programs = 0;                    // for which there is some
  int64_t compiled = 0, read = 0;          // by the compiler, from disk
  std::map<std::string, int64_t> refused;  // programs that are left to the executor, by reason
};
TierCounters tier_counters();

// Said once per process: why there will be no generated code. Set by the bindings; runs under the GIL.
extern void (*warn_without_compiler)(const char* why);

// Waits until nothing is being compiled (for tests and benchmarks), and ends the thread that compiles (at exit).
void wait_for_compiler();
void end_compiler();

}  // namespace wengert
