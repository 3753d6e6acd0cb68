// Fusion: which instructions pass memory together, and in which order. Groups consist of elementwise instructions, row
// reductions among them, and broadcasts and reshapes of their results.
#pragma once
#include "shape.h"

namespace wengert {

// How an instruction can take part in a group.
enum class FusionRole : uint8_t {
  none,
  map,     // elementwise, casts
  reduce,  // over axes
  expand,  // broadcasts, of what a row has one of
  alias,   // reshapes, of what a row has one of
};

struct FusionInstruction {
  FusionRole role;
  std::vector<int32_t> in, out;  // values
  int32_t reduced = 0;           // of a reduction: how many trailing axes; 0: it is over others
};

// A program as fusion sees it. Instructions are in an order in which values are made before they are read.
struct FusionProgram {
  std::vector<Dims> shapes;       // each once
  std::vector<int32_t> shape_of;  // by value
  std::vector<FusionInstruction> instructions;
  int64_t longest_row;  // longer ones do not fit the nearest caches
};

struct FusionUnit {
  std::vector<int32_t> members;  // instructions
  bool group = false;            // otherwise it is one instruction alone
  int32_t shape = -1;            // of the iteration space of a group
  int32_t row_axes = 0;          // how many trailing axes make a row; 0: no rows
};

struct Fusion {
  std::vector<FusionUnit> units;  // each behind those that it needs
  std::vector<bool> row;          // by value: made in a group, one element for each row
  int64_t visits = 0;             // how many units were looked at
};

// Takes time linear in the program.
Fusion fuse(const FusionProgram& program);

}  // namespace wengert
