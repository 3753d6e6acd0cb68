// Chooses the vector kernels for the machine that we run on.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "vector.h"

namespace wengert {

#ifdef WENGERT_X86_64_LEVELS  // by the build, which compiles vector.cpp once per level, and says for which

#define DECLARE(level)               \
  namespace isa_##level {            \
    const VectorKernels& table();    \
    const PairKernel* pairs(int* n); \
  }
#ifdef WENGERT_LEVEL_v2
DECLARE(v2)
#endif
#ifdef WENGERT_LEVEL_v3
DECLARE(v3)
#endif
#ifdef WENGERT_LEVEL_v4
DECLARE(v4)
#endif
#undef DECLARE

namespace {

struct InstructionSet {
  const char* name;
  bool available;
  const VectorKernels& (*table)();
  const PairKernel* (*pairs)(int* n);
};

InstructionSet choose() {
  __builtin_cpu_init();
  const InstructionSet sets[] = {
#ifdef WENGERT_LEVEL_v4
      {"v4", __builtin_cpu_supports("x86-64-v4") != 0, isa_v4::table, isa_v4::pairs},
#endif
#ifdef WENGERT_LEVEL_v3
      {"v3", __builtin_cpu_supports("x86-64-v3") != 0, isa_v3::table, isa_v3::pairs},
#endif
#ifdef WENGERT_LEVEL_v2
      {"v2", __builtin_cpu_supports("x86-64-v2") != 0, isa_v2::table, isa_v2::pairs},
#endif
  };
  const char* wanted = std::getenv("WENGERT_ISA");
  if (wanted != nullptr && *wanted != '\0') {
    for (const auto& set : sets) {
      if (std::string(wanted) != set.name) continue;
      if (!set.available) {
        throw std::runtime_error(std::string("WENGERT_ISA=") + wanted + ": this machine does not have x86-64-" +
                                 wanted);
      }
      return set;
    }
    throw std::runtime_error(std::string("WENGERT_ISA=") + wanted + ": not among the instruction sets of this build");
  }
  for (const auto& set : sets) {
    if (set.available) return set;
  }
  throw std::runtime_error(
      "this build of wengert has no kernels for this processor (it needs x86-64-v2, SSE4.2, or what it was built for)");
}

}  // namespace

#else

namespace isa_base {
const VectorKernels& table();
const PairKernel* pairs(int* n);
}  // namespace isa_base

namespace {

struct InstructionSet {
  const VectorKernels& (*table)();
  const PairKernel* (*pairs)(int* n);
};

InstructionSet choose() {
  const char* wanted = std::getenv("WENGERT_ISA");
  if (wanted != nullptr && *wanted != '\0') {
    throw std::runtime_error(std::string("WENGERT_ISA=") + wanted + ": there is one instruction set on this machine");
  }
  return {isa_base::table, isa_base::pairs};
}

}  // namespace

#endif

namespace {

const InstructionSet& chosen() {
  static const InstructionSet set = choose();
  return set;
}

}  // namespace

const VectorKernels& kernels() {
  static const VectorKernels& table = chosen().table();
  return table;
}

MapFn find_pair(MapFn first, MapFn second, bool left) {
  int n;
  const PairKernel* pairs = chosen().pairs(&n);
  for (int i = 0; i < n; ++i) {
    const PairKernel& p = pairs[i];
    const auto map = [&](Elementwise op) { return kernels().map[static_cast<int>(op)][static_cast<int>(p.dtype)]; };
    if (p.left == left && map(p.first) == first && map(p.second) == second) return p.map;
  }
  return nullptr;
}

}  // namespace wengert
