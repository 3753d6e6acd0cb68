// Chooses the vector kernels for the machine that we run on.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "attention_rows.h"
#include "conv_tiles.h"
#include "cross_entropy_rows.h"
#include "finite_rows.h"
#include "pool_rows.h"
#include "random_rows.h"
#include "recurrent_rows.h"
#include "rows.h"
#include "softmax_rows.h"
#include "symmetric_rows.h"
#include "vector.h"

namespace wengert {

// The tables that every instruction set has for float and for double: type, and the function that gives it.
#define WENGERT_TABLES(X)                 \
  X(ConvTiles, conv_tiles)                \
  X(CrossEntropyRows, cross_entropy_rows) \
  X(PoolRows, pool_rows)                  \
  X(AttentionRows, attention_rows)        \
  X(FiniteRows, finite_rows)              \
  X(RandomRows, random_rows)              \
  X(RecurrentRows, recurrent_rows)        \
  X(RowKernels, row_kernels)              \
  X(SoftmaxRows, softmax_rows)            \
  X(SymmetricRows, symmetric_rows)

namespace {

struct InstructionSet {
  const char* name;
  bool available;
  const VectorKernels& (*table)();
  const PairKernel* (*pairs)(int* n);
#define FIELDS(type, name)            \
  const type<float>& (*name##_f32)(); \
  const type<double>& (*name##_f64)();
  WENGERT_TABLES(FIELDS)
#undef FIELDS
};

}  // namespace

// Declares what the build compiles in the namespace of an instruction set, and gathers it.
#define DECLARE_TABLE(type, name)  \
  const type<float>& name##_f32(); \
  const type<double>& name##_f64();
#define GATHER_TABLE(type, name) .name##_f32 = name##_f32, .name##_f64 = name##_f64,
#define INSTRUCTION_SET(space)                                                                                   \
  namespace space {                                                                                              \
  const VectorKernels& table();                                                                                  \
  const PairKernel* pairs(int* n);                                                                               \
  WENGERT_TABLES(DECLARE_TABLE)                                                                                  \
  static InstructionSet instruction_set(const char* name, bool available) {                                      \
    return {.name = name, .available = available, .table = table, .pairs = pairs, WENGERT_TABLES(GATHER_TABLE)}; \
  }                                                                                                              \
  }

#ifdef WENGERT_X86_64_LEVELS  // by the build, which compiles vector.cpp once per level, and says for which

#ifdef WENGERT_LEVEL_v2
INSTRUCTION_SET(isa_v2)
#endif
#ifdef WENGERT_LEVEL_v3
INSTRUCTION_SET(isa_v3)
#endif
#ifdef WENGERT_LEVEL_v4
INSTRUCTION_SET(isa_v4)
#endif

namespace {

InstructionSet choose() {
  __builtin_cpu_init();
  const InstructionSet sets[] = {
#ifdef WENGERT_LEVEL_v4
      isa_v4::instruction_set("v4", __builtin_cpu_supports("x86-64-v4")),
#endif
#ifdef WENGERT_LEVEL_v3
      isa_v3::instruction_set("v3", __builtin_cpu_supports("x86-64-v3")),
#endif
#ifdef WENGERT_LEVEL_v2
      isa_v2::instruction_set("v2", __builtin_cpu_supports("x86-64-v2")),
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

INSTRUCTION_SET(isa_base)

namespace {

InstructionSet choose() {
  const char* wanted = std::getenv("WENGERT_ISA");
  if (wanted != nullptr && *wanted != '\0') {
    throw std::runtime_error(std::string("WENGERT_ISA=") + wanted + ": there is one instruction set on this machine");
  }
  return isa_base::instruction_set("base", true);
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
  static const VectorKernels table = [] {
    VectorKernels whole = chosen().table();
    fill_scalar_maps(whole);
    return whole;
  }();
  return table;
}

#define GIVE(type, name)                                      \
  const type<float>& name(float) {                            \
    static const type<float>& table = chosen().name##_f32();  \
    return table;                                             \
  }                                                           \
  const type<double>& name(double) {                          \
    static const type<double>& table = chosen().name##_f64(); \
    return table;                                             \
  }
WENGERT_TABLES(GIVE)
#undef GIVE

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
