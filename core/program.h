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
  Elementwise op = Elementwise::count;     // of a map
  Reduction reduction = Reduction::count;  // of a reduce
  // What the CPU calls:
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
  int32_t scratch = -1;             // position in the block memory, shared by registers that do not live together
  int32_t made = -1;                // the instruction that writes this register
  int32_t last_read = -1;
  int32_t filled = -1;  // of a constant: where its block lies in `filled`
};

struct alignas(64) CacheLine {
  char bytes[64];
};
constexpr int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// About half of the nearest cache for the registers of a block.
inline constexpr int64_t kBlockBytes = 16 * 1024;

// Elementwise instructions, row reductions and broadcasts of their results, run block by block: the block passes the
// whole chain while it is in the nearest cache.
struct FusedGroup {
  std::vector<FusedRegister> registers;
  std::vector<FusedInstruction> code;
  std::vector<std::pair<const Op*, FusedInstruction>> source;  // as given, before some are joined: what it computes
  std::vector<Dims> output_shapes;                             // size references
  Dims shape;                                                  // of the iteration space, as size references
  int32_t like = -1;  // a slot that has the shape of the iteration space: then any rank will do
  int row_axes = 0;   // how many trailing axes make a row; 0: no rows
  int n_scratch = 0;
  int64_t max_element = 1;        // bytes of the widest register
  int64_t block = 0;              // elements that pass the chain together
  std::vector<CacheLine> filled;  // a block of each constant
  std::vector<int32_t> dying;     // input registers whose slots are not read after this group
  mutable PreparedByDevice prepared;

  void finish();  // after the registers and the code are in; throws if they do not fit together

 private:
  void verify() const;
  void pair_up();
  void find_lifetimes();
  void assign_scratch();
  void fill_constants();
};

struct Program;

// A program inside another, on values of that one.
struct Region {
  std::shared_ptr<const Program> program;
  // Where its sizes lie among those of the program around it; ~k: the number in operand k of the step.
  std::vector<int32_t> leaves;
};

// A loop: its region runs once per element of a leading axis. Operands: values that are carried on from one turn to the
// next, values that stay the same, and values of which each turn reads one slice. Results: what was carried at the end,
// and what each turn made, stacked. With two regions, the first is a condition on what is carried and what stays the
// same, the second runs while it holds, and the last result is the number of turns.
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
  std::vector<Region> regions;      // one of them runs: the first operand says which, the others are its operands
  std::unique_ptr<Loop> loop;       // then the regions are those of a loop
  int n_sizes = 0;                  // then there is one region; so many operands are its sizes, the others its operands
  std::vector<int32_t> in, out;     // slots
  std::vector<int32_t> drop;        // results that are not read after this step
  std::vector<int32_t> drop_input;  // inputs of the program that are not read after this step
};

// A program that is one group without rows, laid out for the run in which one block holds all: what the derivatives of
// elementwise ops on small tensors are, of which a backward pass has many.
struct OneBlock {
  static constexpr size_t kMaxRegisters = 32;
  struct Input {
    int32_t slot;
    DType dtype;
    int16_t at;  // its register, here and below
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
    std::vector<int32_t> spares;  // inputs whose place it can take if nobody else sees them
  };
  std::vector<Input> inputs;
  std::vector<Constant> constants;
  std::vector<Temporary> temporaries;
  std::vector<Output> outputs;
};

struct GeneratedForms;  // generate/tier.cpp

struct Program {
  const uint64_t id;  // no other program has it, also when this one is gone
  std::string name;   // of the op or function that it is of, for whoever asks what ran
  int n_inputs = 0;
  int n_slots = 0;
  std::vector<std::pair<int32_t, Value*>> constants;
  std::vector<Step> steps;
  std::vector<int32_t> outputs;  // slots; -1 is a symbolic zero
  std::vector<uint8_t> moves;    // of each output: whether it is the last with its slot
  std::vector<int32_t> unread;   // inputs that no step and no output reads
  SizeProgram sizes;
  std::unique_ptr<OneBlock> one_block;  // null: it is not of that kind
  int depth = 0;                        // of regions in regions
  mutable PreparedByDevice prepared;
  mutable std::vector<std::vector<Value*>>
      constants_on;          // by device, from 1 on: those with axes, once they were needed
  bool may_be_hot = false;   // it has loops: worth code of its own
  mutable int64_t heat = 0;  // instructions that runs of it have dispatched
  mutable std::shared_ptr<GeneratedForms> generated;
  int n_products = 0;       // steps that combine arrays otherwise than element by element
  bool calls_back = false;  // a step calls a Python function
  Program();
  Program(const Program&) = delete;
  void finish();  // after the steps are in; throws if one reads what no earlier one makes
  ~Program();

 private:
  void verify();
  void verify_regions(const Step& s);
  void find_drops();
  void find_one_block();
  void find_heat();
};

// What runs did, counted for tests.
struct RunCounters {
  int64_t steps, groups, gemms, instructions;
};
extern RunCounters run_counters;

// Inputs are borrowed, but for the first `given` ones, whose references are taken and whose memory is reused where
// nobody else sees it. Outputs are new references (null for a symbolic zero). `leaf_sizes` has a number for every leaf
// of program.sizes. `donated[i]`, if given, is a value whose buffer output i is written into (of the same type).
// Runs on the device of its inputs, of which some may be on the host.
void run(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out, Value* const* donated = nullptr,
         int given = 0);
// A group by the CPU, on values of its memory: `slots` has the inputs, and gets the outputs as new references.
void run_group_on_cpu(const FusedGroup& g, Value** slots, const int64_t* sizes);

}  // namespace wengert
