// Chooses the vector kernels for the machine that we run on.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "attention_rows.h"
#include "conv_tiles.h"
#include "pool_rows.h"
#include "recurrent_rows.h"
#include "vector.h"

namespace wengert {

#ifdef WENGERT_X86_64_LEVELS  // by the build, which compiles vector.cpp once per level, and says for which

#define DECLARE(level)                                 \
  namespace isa_##level {                              \
    const VectorKernels& table();                      \
    const PairKernel* pairs(int* n);                   \
    const ConvTiles<float>& conv_tiles_f32();          \
    const ConvTiles<double>& conv_tiles_f64();         \
    const PoolRows<float>& pool_rows_f32();            \
    const PoolRows<double>& pool_rows_f64();           \
    const AttentionRows<float>& attention_rows_f32();  \
    const AttentionRows<double>& attention_rows_f64(); \
    const RecurrentRows<float>& recurrent_rows_f32();  \
    const RecurrentRows<double>& recurrent_rows_f64(); \
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
  const ConvTiles<float>& (*conv_f32)();
  const ConvTiles<double>& (*conv_f64)();
  const PoolRows<float>& (*pool_f32)();
  const PoolRows<double>& (*pool_f64)();
  const AttentionRows<float>& (*attention_f32)();
  const AttentionRows<double>& (*attention_f64)();
  const RecurrentRows<float>& (*recurrent_f32)();
  const RecurrentRows<double>& (*recurrent_f64)();
};

#define SET(level)                                \
  {#level,                                        \
   __builtin_cpu_supports("x86-64-" #level) != 0, \
   isa_##level::table,                            \
   isa_##level::pairs,                            \
   isa_##level::conv_tiles_f32,                   \
   isa_##level::conv_tiles_f64,                   \
   isa_##level::pool_rows_f32,                    \
   isa_##level::pool_rows_f64,                    \
   isa_##level::attention_rows_f32,               \
   isa_##level::attention_rows_f64,               \
   isa_##level::recurrent_rows_f32,               \
   isa_##level::recurrent_rows_f64}
InstructionSet choose() {
  __builtin_cpu_init();
  const InstructionSet sets[] = {
#ifdef WENGERT_LEVEL_v4
      SET(v4),
#endif
#ifdef WENGERT_LEVEL_v3
      SET(v3),
#endif
#ifdef WENGERT_LEVEL_v2
      SET(v2),
#endif
  };
#undef SET
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
const ConvTiles<float>& conv_tiles_f32();
const ConvTiles<double>& conv_tiles_f64();
const PoolRows<float>& pool_rows_f32();
const PoolRows<double>& pool_rows_f64();
const AttentionRows<float>& attention_rows_f32();
const AttentionRows<double>& attention_rows_f64();
const RecurrentRows<float>& recurrent_rows_f32();
const RecurrentRows<double>& recurrent_rows_f64();
}  // namespace isa_base

namespace {

struct InstructionSet {
  const VectorKernels& (*table)();
  const PairKernel* (*pairs)(int* n);
  const ConvTiles<float>& (*conv_f32)();
  const ConvTiles<double>& (*conv_f64)();
  const PoolRows<float>& (*pool_f32)();
  const PoolRows<double>& (*pool_f64)();
  const AttentionRows<float>& (*attention_f32)();
  const AttentionRows<double>& (*attention_f64)();
  const RecurrentRows<float>& (*recurrent_f32)();
  const RecurrentRows<double>& (*recurrent_f64)();
};

InstructionSet choose() {
  const char* wanted = std::getenv("WENGERT_ISA");
  if (wanted != nullptr && *wanted != '\0') {
    throw std::runtime_error(std::string("WENGERT_ISA=") + wanted + ": there is one instruction set on this machine");
  }
  return {isa_base::table,
          isa_base::pairs,
          isa_base::conv_tiles_f32,
          isa_base::conv_tiles_f64,
          isa_base::pool_rows_f32,
          isa_base::pool_rows_f64,
          isa_base::attention_rows_f32,
          isa_base::attention_rows_f64,
          isa_base::recurrent_rows_f32,
          isa_base::recurrent_rows_f64};
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

const ConvTiles<float>& conv_tiles(float) {
  static const ConvTiles<float>& tiles = chosen().conv_f32();
  return tiles;
}

const ConvTiles<double>& conv_tiles(double) {
  static const ConvTiles<double>& tiles = chosen().conv_f64();
  return tiles;
}

const PoolRows<float>& pool_rows(float) {
  static const PoolRows<float>& rows = chosen().pool_f32();
  return rows;
}

const PoolRows<double>& pool_rows(double) {
  static const PoolRows<double>& rows = chosen().pool_f64();
  return rows;
}

const AttentionRows<float>& attention_rows(float) {
  static const AttentionRows<float>& rows = chosen().attention_f32();
  return rows;
}

const AttentionRows<double>& attention_rows(double) {
  static const AttentionRows<double>& rows = chosen().attention_f64();
  return rows;
}

const RecurrentRows<float>& recurrent_rows(float) {
  static const RecurrentRows<float>& rows = chosen().recurrent_f32();
  return rows;
}

const RecurrentRows<double>& recurrent_rows(double) {
  static const RecurrentRows<double>& rows = chosen().recurrent_f64();
  return rows;
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
