// Kernels from source: compiled by NVRTC for an architecture, kept in memory and, by content, on disk.
#pragma once
#include <string>

#include "libraries.h"

namespace wengert::cuda {

// The machine code of a source for an architecture such as 90, from the cache or compiled now. Throws a device error
// with the compiler's messages. Needs no GPU.
std::string machine_code(const std::string& source, int architecture);

// How often code was compiled, and read from disk, in this process.
struct CodeCounters {
  int64_t compiled = 0, read = 0;
};
extern CodeCounters code_counters;

}  // namespace wengert::cuda
