// A program in executable form: pure instructions over numbered slots, with sizes as expressions. The executor runs
// one without entering Python.
#pragma once
#include <memory>

#include "ops/op.h"

namespace wengert {

// One instruction of a fused group. Registers hold a block: either `full` (an element per point of the iteration space)
// or `row` (an element per row of it).
struct FusedInstruction {
  enum class Kind : uint8_t { map, cast, reduce, expand } kind;
  bool row;  // map and cast: over row registers
  uint8_t n_in;
  int16_t in[3] = {};
  int16_t out;
  MapFn map = nullptr;
  CastFn cast = nullptr;
  RowReduceFn reduce = nullptr;
};

struct FusedRegister {
  DType dtype;
  bool row;
  bool constant = false;            // filled once per run
  alignas(16) char bytes[16] = {};  // the constant's value
  int32_t input = -1;               // slot this register is loaded from
  int32_t output = -1;              // slot this register is stored to
  Dims output_shape;                // size references
  int32_t scratch = -1;             // position in the block memory, shared by registers that do not live together
  int32_t made = -1;                // the instruction that writes this register
  int32_t last_read = -1;
  int32_t filled = -1;  // of a constant: where its block lies in `filled`
};

struct alignas(64) CacheLine {
  char bytes[64];
};

// Elementwise instructions, row reductions and broadcasts of their results, run block by block: the block passes the
// whole chain while it is in the nearest cache.
struct FusedGroup {
  std::vector<FusedRegister> registers;
  std::vector<FusedInstruction> code;
  Dims shape;         // of the iteration space, as size references
  int32_t like = -1;  // a slot that has the shape of the iteration space: then any rank will do
  int row_axes = 0;   // how many trailing axes make a row; 0: no rows
  int n_scratch = 0;
  int64_t max_element = 1;        // bytes of the widest register
  int64_t block = 0;              // elements that pass the chain together
  std::vector<CacheLine> filled;  // a block of each constant
  std::vector<int32_t> dying;     // input registers whose slots are not read after this group

  void finish();  // after the registers and the code are in

 private:
  void pair_up();
  void find_lifetimes();
  void assign_scratch();
  void fill_constants();
};

struct Step {
  const Op* op = nullptr;
  Attrs attrs;  // sizes are references into the program's SizeProgram
  bool symbolic = false;
  bool gemm = false;
  std::unique_ptr<FusedGroup> group;
  std::vector<int32_t> in, out;     // slots
  std::vector<int32_t> drop;        // results that are not read after this step
  std::vector<int32_t> drop_input;  // inputs of the program that are not read after this step
};

struct Program {
  int n_inputs = 0;
  int n_slots = 0;
  std::vector<std::pair<int32_t, Value*>> constants;
  std::vector<Step> steps;
  std::vector<int32_t> outputs;  // slots; -1 is a symbolic zero
  std::vector<uint8_t> moves;    // of each output: whether it is the last with its slot
  std::vector<int32_t> unread;   // inputs that no step and no output reads
  SizeProgram sizes;
  // What a run did, counted for reports and tests.
  int64_t runs = 0;
  Program() = default;
  Program(const Program&) = delete;
  void finish();  // after the steps are in: computes what is dropped where
  ~Program();
};

struct RunCounters {
  int64_t steps, groups, gemms, bytes_read_written;
};
extern RunCounters run_counters;

// Inputs are borrowed, but for the first `given` ones, whose references are taken and whose memory is reused where
// nobody else sees it. Outputs are new references (null for a symbolic zero). `leaf_sizes` has a number for every leaf
// of program.sizes. `donated[i]`, if given, is a value whose buffer output i is written into (of the same type).
void run(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out, Value* const* donated = nullptr,
         int given = 0);

}  // namespace wengert
