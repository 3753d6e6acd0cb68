// Chooses the vector kernels for the machine that we run on.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "vector.h"

namespace wengert {

#ifdef WENGERT_X86_64_LEVELS  // by the build, which then compiles vector.cpp once per level

namespace isa_v2 {
const VectorKernels& table();
}
namespace isa_v3 {
const VectorKernels& table();
}
namespace isa_v4 {
const VectorKernels& table();
}

namespace {

struct InstructionSet {
  const char* name;
  bool available;
  const VectorKernels& (*table)();
};

const VectorKernels& choose() {
  __builtin_cpu_init();
  const InstructionSet sets[] = {
      {"v4", __builtin_cpu_supports("x86-64-v4") != 0, isa_v4::table},
      {"v3", __builtin_cpu_supports("x86-64-v3") != 0, isa_v3::table},
      {"v2", __builtin_cpu_supports("x86-64-v2") != 0, isa_v2::table},
  };
  const char* wanted = std::getenv("WENGERT_ISA");
  if (wanted != nullptr && *wanted != '\0') {
    for (const auto& set : sets) {
      if (std::string(wanted) != set.name) continue;
      if (!set.available) {
        throw std::runtime_error(std::string("WENGERT_ISA=") + wanted + ": this machine does not have x86-64-" +
                                 wanted);
      }
      return set.table();
    }
    throw std::runtime_error(std::string("WENGERT_ISA=") + wanted + ": expected v2, v3 or v4");
  }
  for (const auto& set : sets) {
    if (set.available) return set.table();
  }
  throw std::runtime_error("wengert needs a processor with x86-64-v2 (SSE4.2)");
}

}  // namespace

#else

namespace isa_base {
const VectorKernels& table();
}

namespace {

const VectorKernels& choose() {
  const char* wanted = std::getenv("WENGERT_ISA");
  if (wanted != nullptr && *wanted != '\0') {
    throw std::runtime_error(std::string("WENGERT_ISA=") + wanted + ": there is one instruction set on this machine");
  }
  return isa_base::table();
}

}  // namespace

#endif

const VectorKernels& kernels() {
  static const VectorKernels& chosen = choose();
  return chosen;
}

}  // namespace wengert
