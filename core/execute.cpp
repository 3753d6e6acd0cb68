#include <algorithm>

#include "kernels/strided.h"
#include "program.h"
#include "threads.h"

namespace wengert {

RunCounters run_counters = {};

namespace {

// About half of the nearest cache for the registers of a block.
constexpr int64_t kBlockBytes = 16 * 1024;
constexpr int64_t kMinBlock = 128, kMaxBlock = 1024;
constexpr int64_t kTileElements = 32768;

Dims resolve(const Dims& d, const int64_t* sizes) {
  Dims r;
  r.n = d.n;
  for (int i = 0; i < d.n; ++i) r[i] = SizeProgram::resolve(d[i], sizes);
  return r;
}

void resolve_attrs(const Attrs& from, const int64_t* sizes, Attrs& to) {
  to = from;
  for (int k = 0; k < to.n; ++k)
    if (to.v[k].kind == Attr::Kind::sizes) to.v[k].dims = resolve(from.v[k].dims, sizes);
}

// Where a register's data is during a run of a group.
struct Place {
  enum Mode : uint8_t { scratch, memory, gathered, filled } mode;
  char* base;            // memory: element 0; filled: the filled block
  const Value* strided;  // gathered
  bool store;            // memory of an output that is written back at the end of the block (donated)
  char* store_to;
  int64_t element;
};

struct GroupRun {
  const FusedGroup& g;
  std::vector<Place> places;
  int64_t rows = 1, cols = 1, total = 1;  // total = rows * cols; without rows, cols = 1 and rows = total
  int64_t block_rows = 1;                 // rows (or elements) per block
  int64_t scratch_bytes = 0;              // of one register

  explicit GroupRun(const FusedGroup& group) : g(group), places(group.registers.size()) {}

  int64_t extent(const FusedRegister& r, int64_t n_rows) const { return r.row ? n_rows : n_rows * cols; }

  void block(int64_t first_row, int64_t n_rows, char* scratch) {
    constexpr int kInlineRegisters = 48;
    char* inline_at[kInlineRegisters];
    std::vector<char*> many;
    char** at = inline_at;
    if (places.size() > kInlineRegisters) {
      many.resize(places.size());
      at = many.data();
    }
    locate(first_row, n_rows, scratch, at);
    for (const FusedInstruction& i : g.code) {
      int64_t n = i.row ? n_rows : n_rows * cols;
      switch (i.kind) {
        case FusedInstruction::Kind::map: {
          const void* in[3] = {};
          for (int k = 0; k < i.n_in; ++k) in[k] = at[i.in[k]];
          i.map(at[i.out], in, n);
          break;
        }
        case FusedInstruction::Kind::cast: i.cast(at[i.out], at[i.in[0]], n); break;
        case FusedInstruction::Kind::reduce: i.reduce(at[i.out], at[i.in[0]], n_rows, cols, cols); break;
        case FusedInstruction::Kind::expand: {
          int64_t size = places[i.out].element;
          for (int64_t r = 0; r < n_rows; ++r)
            fill(at[i.out] + r * cols * size, at[i.in[0]] + r * size, size, cols);
          break;
        }
      }
    }
    for (size_t k = 0; k < places.size(); ++k)
      if (places[k].store) {
        int64_t per_row = places[k].element * (g.registers[k].row ? 1 : cols);
        std::memcpy(places[k].store_to + first_row * per_row, at[k], static_cast<size_t>(n_rows * per_row));
      }
  }

  void locate(int64_t first_row, int64_t n_rows, char* scratch, char** at) const {
    for (size_t k = 0; k < places.size(); ++k) {
      const Place& p = places[k];
      const FusedRegister& r = g.registers[k];
      switch (p.mode) {
        case Place::memory: at[k] = p.base + extent(r, first_row) * p.element; break;
        case Place::filled: at[k] = p.base; break;
        case Place::scratch: at[k] = scratch + r.scratch * scratch_bytes; break;
        case Place::gathered:
          at[k] = scratch + r.scratch * scratch_bytes;
          gather_block(at[k], p.strided->data, p.strided->strides, p.strided->ndim, p.strided->shape, p.element,
                       extent(r, first_row), extent(r, n_rows));
      }
    }
  }
};

bool uniform(const Value* v) {
  for (int i = 0; i < v->ndim; ++i)
    if (v->strides[i] != 0 && v->shape[i] != 1) return false;
  return true;
}

void plan_blocks(GroupRun& run, const int64_t* sizes, Value* const* slots) {
  const FusedGroup& g = run.g;
  Dims shape = g.like >= 0 ? slots[g.like]->dims() : resolve(g.shape, sizes);
  for (int i = 0; i < shape.n; ++i) {
    run.total *= shape[i].raw;
    (i < shape.n - g.row_axes ? run.rows : run.cols) *= shape[i].raw;
  }
  int64_t block = std::clamp(kBlockBytes / (4 * std::max(1, g.n_scratch)) / 64 * 64, kMinBlock, kMaxBlock);
  run.block_rows = g.row_axes ? std::max<int64_t>(1, block / std::max<int64_t>(1, run.cols)) : block;
  run.block_rows = std::min(run.block_rows, std::max<int64_t>(1, run.rows));
  // One line more than needed, so that registers do not fall on the same cache sets.
  run.scratch_bytes = (run.block_rows * run.cols * g.max_element + 63) / 64 * 64 + 64;
}

// Per-thread block memory: grows, never shrinks below what a run needs.
char* block_memory(size_t bytes) {
  thread_local std::vector<char> memory;
  if (memory.size() < bytes + 64) memory.resize(bytes + 64);
  return memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
}

void run_group(const FusedGroup& g, const int64_t* sizes, Value** slots, const Step& step, Value* const* out_into) {
  GroupRun run(g);
  plan_blocks(run, sizes, slots);
  std::vector<Ref> packed;
  size_t filled_registers = 0;
  for (size_t k = 0; k < g.registers.size(); ++k) {
    const FusedRegister& r = g.registers[k];
    Place& p = run.places[k];
    p = {Place::scratch, nullptr, nullptr, false, nullptr, size_of(r.dtype)};
    if (r.constant) {
      p.mode = Place::filled;
      ++filled_registers;
    } else if (r.input >= 0) {
      const Value* v = slots[r.input];
      if (uniform(v) && v->size > 0) {
        p.mode = Place::filled;
        p.strided = v;
        ++filled_registers;
      } else if (v->contiguous) {
        p.mode = Place::memory;
        p.base = v->data;
      } else {
        p.mode = Place::gathered;
        p.strided = v;
      }
    }
  }
  for (size_t o = 0, k = 0; k < g.registers.size(); ++k) {
    const FusedRegister& r = g.registers[k];
    if (r.output < 0) continue;
    Value* target = out_into ? out_into[o] : nullptr;
    ++o;
    Place& p = run.places[k];
    if (target) {
      retain(target);
      p.store = true;
      p.store_to = target->data;
    } else {
      target = g.like >= 0 ? empty_like(slots[g.like], r.dtype) : empty(r.dtype, resolve(r.output_shape, sizes));
      if (p.mode == Place::scratch) {
        p.mode = Place::memory;
        p.base = target->data;
      } else {  // an input passed through
        p.store = true;
        p.store_to = target->data;
      }
    }
    slots[r.output] = target;
  }
  (void)step;
  if (run.total == 0 && !(g.row_axes && run.rows > 0)) return;
  const int64_t block_elements = run.block_rows * run.cols;
  std::vector<char> fills(filled_registers * (block_elements * 16 + 64) + 64);
  char* fill_at = fills.data() + (64 - reinterpret_cast<uintptr_t>(fills.data()) % 64) % 64;
  for (size_t k = 0; k < g.registers.size(); ++k) {
    Place& p = run.places[k];
    if (p.mode != Place::filled) continue;
    const void* one = g.registers[k].constant ? g.registers[k].bytes : p.strided->data;
    p.base = fill_at;
    fill(fill_at, one, p.element, std::min(block_elements, run.rows * run.cols));
    fill_at += block_elements * p.element;
    fill_at += (64 - reinterpret_cast<uintptr_t>(fill_at) % 64) % 64;
  }
  const int64_t scratch = g.n_scratch * run.scratch_bytes;
  const int64_t tile_rows =
      std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, run.cols) / run.block_rows) * run.block_rows;
  parallel_for((run.rows + tile_rows - 1) / tile_rows, [&](int64_t tile) {
    char* memory = block_memory(static_cast<size_t>(scratch));
    int64_t end = std::min(run.rows, (tile + 1) * tile_rows);
    for (int64_t r = tile * tile_rows; r < end; r += run.block_rows)
      run.block(r, std::min(run.block_rows, end - r), memory);
  });
}

void count(const Step& s, Value* const* slots) {
  ++run_counters.steps;
  if (s.group) ++run_counters.groups;
  if (s.op && s.op->name == "matmul") ++run_counters.gemms;
  (void)slots;
}

}  // namespace

void FusedGroup::assign_scratch() {
  for (const FusedRegister& r : registers) max_element = std::max(max_element, size_of(r.dtype));
  // Linear scan: a register takes the first position whose last reader is behind it.
  std::vector<int> last(registers.size(), -1), first(registers.size(), -1);
  for (size_t t = 0; t < code.size(); ++t) {
    for (int k = 0; k < code[t].n_in; ++k) last[code[t].in[k]] = static_cast<int>(t);
    if (first[code[t].out] < 0) first[code[t].out] = static_cast<int>(t);
    last[code[t].out] = std::max(last[code[t].out], static_cast<int>(t));
  }
  const int end = static_cast<int>(code.size());
  std::vector<int> free_at;  // position → the time from which it is free
  auto place = [&](size_t k, int from, int to) {
    for (size_t p = 0; p < free_at.size(); ++p)
      if (free_at[p] <= from) {
        free_at[p] = to + 1;
        registers[k].scratch = static_cast<int32_t>(p);
        return;
      }
    registers[k].scratch = static_cast<int32_t>(free_at.size());
    free_at.push_back(to + 1);
  };
  // Inputs are loaded before the first instruction, outputs may be stored after the last.
  for (size_t k = 0; k < registers.size(); ++k)
    if (registers[k].input >= 0) place(k, 0, registers[k].output >= 0 ? end : std::max(0, last[k]));
  for (const FusedInstruction& i : code) {
    size_t k = static_cast<size_t>(i.out);
    if (registers[k].scratch < 0) place(k, first[k], registers[k].output >= 0 ? end : last[k]);
  }
  n_scratch = static_cast<int>(free_at.size());
}

void Program::finish() {
  std::vector<int> last(n_slots, -1);
  for (size_t t = 0; t < steps.size(); ++t)
    for (int32_t s : steps[t].in) last[s] = static_cast<int>(t);
  for (size_t t = 0; t < steps.size(); ++t)
    for (int32_t s : steps[t].out) last[s] = std::max(last[s], static_cast<int>(t));
  std::vector<bool> keep(n_slots, false);
  for (int i = 0; i < n_inputs; ++i) keep[i] = true;
  for (auto& [slot, value] : constants) keep[slot] = true;
  for (int32_t o : outputs)
    if (o >= 0) keep[o] = true;
  for (int s = 0; s < n_slots; ++s)
    if (!keep[s] && last[s] >= 0) steps[last[s]].drop.push_back(s);
}

Program::~Program() {
  for (auto& [slot, value] : constants) release(value);
}

void run(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out, Value* const* donated) {
  constexpr int kInline = 32;
  Value* inline_slots[kInline];
  int64_t inline_sizes[kInline];
  std::vector<Value*> many_slots;
  std::vector<int64_t> many_sizes;
  Value** slots = inline_slots;
  int64_t* sizes = inline_sizes;
  if (p.n_slots > kInline) slots = (many_slots.resize(p.n_slots), many_slots.data());
  if (p.sizes.steps.size() > kInline) sizes = (many_sizes.resize(p.sizes.steps.size()), many_sizes.data());
  std::fill(slots, slots + p.n_slots, nullptr);
  std::copy(in, in + p.n_inputs, slots);
  for (auto& [slot, value] : p.constants) slots[slot] = value;
  p.sizes.evaluate(leaf_sizes, sizes);

  // Slots that steps fill are owned by this run; they are released on every way out.
  struct Owner {
    const Program& p;
    Value** slots;
    ~Owner() {
      for (const Step& s : p.steps)
        for (int32_t o : s.out)
          if (slots[o]) release(slots[o]);
    }
  } owner{p, slots};

  auto donated_for = [&](int32_t slot) -> Value* {
    for (size_t i = 0; i < p.outputs.size(); ++i)
      if (p.outputs[i] == slot) return donated[i];
    return nullptr;
  };
  for (const Step& s : p.steps) {
    count(s, slots);
    if (s.group) {
      Value* into[32] = {};
      if (donated)
        for (size_t o = 0; o < s.out.size() && o < 32; ++o) into[o] = donated_for(s.out[o]);
      run_group(*s.group, sizes, slots, s, donated ? into : nullptr);
    } else {
      constexpr int kOperands = 8;
      Value* operands[kOperands];
      std::vector<Value*> many;
      Value** at = operands;
      if (s.in.size() > kOperands) at = (many.resize(s.in.size()), many.data());
      for (size_t i = 0; i < s.in.size(); ++i) at[i] = slots[s.in[i]];
      Value* results[kMaxOutputs];
      if (s.symbolic) {
        Attrs attrs;
        resolve_attrs(s.attrs, sizes, attrs);
        run_op(*s.op, at, static_cast<int>(s.in.size()), attrs, results);
      } else {
        run_op(*s.op, at, static_cast<int>(s.in.size()), s.attrs, results);
      }
      for (size_t i = 0; i < s.out.size(); ++i) slots[s.out[i]] = results[i];
    }
    for (int32_t d : s.drop) {
      release(slots[d]);
      slots[d] = nullptr;
    }
  }
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    out[i] = p.outputs[i] < 0 ? nullptr : slots[p.outputs[i]];
    if (out[i]) retain(out[i]);
  }
}

}  // namespace wengert
