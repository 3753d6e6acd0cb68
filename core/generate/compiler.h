// Compiles source with the machine's C++ compiler and loads the functions.
#pragma once
#include <string>

#include "source.h"

namespace wengert::generate {

struct CompilerFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The function for a source text, loaded from the cache or compiled now. Does not need the GIL. Throws CompilerFailed.
Function compile(const std::string& text);

// Stops a running compiler and prevents later ones; called at exit.
void stop_compiler();
void forget_compiler();  // called in a child process, which does not own the compiler

// How often code was compiled, and read from disk, in this process.
struct CompilerCounters {
  int64_t compiled = 0, read = 0;
};
CompilerCounters compiler_counters();

}  // namespace wengert::generate
