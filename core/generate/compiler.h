// The machine's C++ compiler, and the functions that it makes of source.
#pragma once
#include <string>

#include "source.h"

namespace wengert::generate {

struct CompilerFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A function from the text of a program: loaded from the cache, or compiled now. Needs no GIL. Throws CompilerFailed.
Function compile(const std::string& text);

// Ends the compiler that runs now, if one does, and every later one: at exit.
void stop_compiler();
void forget_compiler();  // in a child process: it is not ours

// How often code was compiled, and read from disk, in this process.
struct CompilerCounters {
  int64_t compiled = 0, read = 0;
};
CompilerCounters compiler_counters();

}  // namespace wengert::generate
