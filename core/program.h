// A program in executable form: pure instructions over numbered slots, with sizes as expressions. The executor runs it
// without entering Python.
#pragma once
#include <memory>

#include "ops/op.h"

namespace wengert {

// One instruction of a fused group. Registers hold a block: either `full` (an element per point of the iteration space)
// or `row` (an element per row of it).
struct FusedInstruction {
  enum class Kind : uint8_t { map, cast, reduce, expand } kind;
  bool row;  // for map and cast: operates on row registers
  uint8_t n_in;
  int16_t in[3] = {};
  int16_t out;
  Elementwise op = Elementwise::count;     // if it is a map
  Reduction reduction = Reduction::count;  // if it is a reduction
  // The functions that the CPU calls:
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
  int32_t output_shape = -1;        // in `output_shapes`; -1: that of the iteration space
  int32_t scratch = -1;  // position in the block memory, shared by registers that are not live at the same time
  int32_t made = -1;     // the instruction that writes this register
  int32_t last_read = -1;
  int32_t filled = -1;  // of a constant: the position of its block in `filled`
};

struct alignas(64) CacheLine {
  char bytes[64];
};
constexpr int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The registers of a block may fill about half of the L1 cache.
inline constexpr int64_t kBlockBytes = 16 * 1024;

// Elementwise instructions, row reductions and broadcasts of their results, run block by block: each block goes through
// the whole chain while it is in L1.
struct FusedGroup {
  std::vector<FusedRegister> registers;
  std::vector<FusedInstruction> code;
  std::vector<std::pair<const Op*, FusedInstruction>> source;  // the instructions before some became pairs
  std::vector<Dims> output_shapes;                             // size references
  Dims shape;                                                  // of the iteration space, as size references
  int32_t like = -1;  // a slot that has the shape of the iteration space; then the group works for any rank
  int row_axes = 0;   // how many trailing axes make a row; 0: no rows
  int n_scratch = 0;
  int64_t max_element = 1;        // bytes of the widest register
  int64_t block = 0;              // elements per block
  std::vector<CacheLine> filled;  // one filled block per constant
  std::vector<int32_t> dying;     // input registers whose slots are not read after this group
  mutable PreparedByDevice prepared;

  void finish();  // call after setting registers and code; throws if they are inconsistent

 private:
  void verify() const;
  void pair_up();
  void find_lifetimes();
  void assign_scratch();
  void fill_constants();
};

struct Program;

// A program inside another one, running on that one's values.
struct Region {
  std::shared_ptr<const Program> program;
  // The indices of its sizes among those of the enclosing program; ~k: the number in operand k of the step.
  std::vector<int32_t> leaves;
};

// A loop runs its region once per element of a leading axis. Operands: values carried from turn to turn, values that
// stay the same, and values of which each turn reads one slice. Results: the carried values at the end, then the values
// that the turns made, stacked. With two regions, the first is a condition on the carried and the constant values, the
// second runs while it holds, and the last result is the number of turns.
struct Loop {
  Dim length = 0;  // a size reference
  int n_carried = 0, n_sliced = 0;
  bool reverse = false;
  std::vector<DType> stacked_dtypes;
  std::vector<Dims> stacked_shapes;  // size references
};

struct Step {
  const Op* op = nullptr;
  std::shared_ptr<const Op> owned;  // the op, if it was made at run time
  Attrs attrs;                      // sizes are references into the program's SizeProgram
  bool symbolic = false;
  bool gemm = false;
  std::unique_ptr<FusedGroup> group;
  std::vector<Region> regions;  // one of them runs: the first operand selects it, the others are its operands
  std::unique_ptr<Loop> loop;   // if set, the regions are those of a loop
  int n_sizes = 0;  // if positive, there is one region; this many operands are its sizes, the others its operands
  std::vector<int32_t> in, out;     // slots
  std::vector<int32_t> drop;        // results that are not read after this step
  std::vector<int32_t> drop_input;  // inputs of the program that are not read after this step
};

// A program that is a single group without rows, laid out for the case in which one block holds everything. Derivatives
// of elementwise ops on small tensors are of this kind, and a backward pass runs many of them.
struct OneBlock {
  static constexpr size_t kMaxRegisters = 32;
  struct Input {
    int32_t slot;
    DType dtype;
    int16_t at;  // the register, here and below
  };
  struct Constant {
    const char* data;
    int16_t at;
  };
  struct Temporary {
    int32_t position;  // in the block memory
    int16_t at;
  };
  struct Output {
    int32_t index;  // among the program's outputs
    DType dtype;
    int16_t at;
    std::vector<int32_t> spares;  // inputs whose memory it can reuse if nobody else sees them
  };
  std::vector<Input> inputs;
  std::vector<Constant> constants;
  std::vector<Temporary> temporaries;
  std::vector<Output> outputs;
};

struct GeneratedForms;  // generate/tier.cpp

struct Program {
  const uint64_t id;  // unique, and never reused
  std::string name;   // of its op or function, for profiles and messages
  int n_inputs = 0;
  int n_slots = 0;
  std::vector<std::pair<int32_t, Value*>> constants;
  std::vector<Step> steps;
  std::vector<int32_t> outputs;  // slots; -1 is a symbolic zero
  std::vector<uint8_t> moves;    // per output: whether it is the last one to read its slot
  std::vector<int32_t> unread;   // inputs that no step and no output reads
  SizeProgram sizes;
  std::unique_ptr<OneBlock> one_block;  // null: does not apply
  int depth = 0;                        // nesting depth of regions
  bool has_loops = false;               // here or in a region
  mutable PreparedByDevice prepared;
  mutable std::vector<std::vector<Value*>>
      constants_on;          // by device, from 1 on: copies of the constants with axes, made when first needed
  bool may_be_hot = false;   // generating code may pay
  mutable int64_t heat = 0;  // counts the instructions that runs dispatch; from 0 on the program is hot
  mutable std::shared_ptr<GeneratedForms> generated;
  int n_products = 0;       // steps that are not elementwise
  bool calls_back = false;  // a step calls a Python function
  Program();
  Program(const Program&) = delete;
  void finish();  // call after adding the steps; throws if a step reads a slot that no earlier step makes
  ~Program();

 private:
  void verify();
  void verify_regions(const Step& s);
  void find_drops();
  void find_one_block();
  void find_heat();
};

// Counters for tests.
struct RunCounters {
  int64_t steps, groups, gemms, instructions;
};
extern RunCounters run_counters;

// Inputs are borrowed, except for the first `given` ones, whose references are taken and whose memory is reused if
// nobody else sees it. Outputs are new references (null for a symbolic zero). `leaf_sizes` has a number for every leaf
// of program.sizes. `donated[i]`, if given, is a value whose buffer output i is written into (of the same type).
// Runs on the device of its inputs, of which some may be on the host.
void run(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out, Value* const* donated = nullptr,
         int given = 0);
// Runs a group on the CPU, on values in its memory. `slots` has the inputs and receives the outputs as new references.
void run_group_on_cpu(const FusedGroup& g, Value** slots, const int64_t* sizes);

}  // namespace wengert
