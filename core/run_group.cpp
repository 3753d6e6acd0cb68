// Fused groups block by block: a block of each register fits into the cache, and passes through the whole group there.
#include <algorithm>
#include <span>

#include "kernels/strided.h"
#include "per_thread.h"
#include "profile.h"
#include "run.h"
#include "threads.h"

namespace wengert {

namespace {

constexpr int64_t kTileWork = 65536;  // elements × instructions; less is not worth another thread

// It grows, and never shrinks below what a run needs.
struct BlockMemory {
  std::vector<CacheLine> lines;
};

char* block_memory(size_t bytes) {
  std::vector<CacheLine>& memory = per_thread<BlockMemory>().lines;
  if (memory.size() * sizeof(CacheLine) < bytes) memory.resize(bytes / sizeof(CacheLine) + 1);
  return memory.data()->bytes;
}

// Extra loads and stores around a block, for registers that are not plain contiguous memory.
struct BlockStaging {
  int32_t k;              // the register
  const Value* gathered;  // not null: gathered into the block memory first
  const Value* periodic;  // not null: the same for every block, so gathered once before the run
  const void* repeated;   // not null: one element; a block is filled with it before the run
  char* store_to;         // not null: written there at the end of each block
};

// The period of a value that is broadcast along its leading axes: its elements repeat after this many.
int64_t period_of(const Value* v) {
  int first = 0;
  while (first < v->ndim && (v->strides[first] == 0 || v->shape[first] == 1)) ++first;
  int64_t period = 1;
  for (int i = first; i < v->ndim; ++i) period *= v->shape[i];
  return std::max<int64_t>(1, period);  // also for an empty value
}

struct GroupRun {
  const FusedGroup& g;
  Run& run;
  char** base;                 // first row of each register; null: it lives in the block memory
  int64_t* row_bytes;          // stride from row to row; 0: every block uses the same memory
  int64_t rows = 1, cols = 1;  // in a group without rows, each element is a row
  int64_t block_rows = 1;
  int64_t scratch_bytes = 0;  // of one register
  BlockStaging* staging;      // n_staging of them
  int n_staging = 0;

  void plan_blocks();
  void align_blocks();
  void place_registers();
  void place_input(int32_t k, const FusedRegister& r);
  void place_output(int32_t k, const FusedRegister& r);
  void place_constant(int32_t k, const FusedRegister& r);
  Value* spare_for(const FusedRegister& output) const;
  bool overwritable(const Value* target, const FusedRegister& output) const;
  int64_t repeated_bytes() const;
  void fill_repeated(char* memory);
  void execute();
  void execute_profiled();
  int64_t moved_bytes() const;
  void tile(int64_t first_row, int64_t end) const;
  void run_code(char* const* at, int64_t n_rows) const;
  void gather(char* const* at, int64_t first_row, int64_t n_rows) const;
  void store(char* const* at, int64_t first_row, int64_t n_rows) const;

  std::span<const BlockStaging> staged() const { return {staging, static_cast<size_t>(n_staging)}; }
  // Elements per block of the widest register; an empty row still holds its one reduction result.
  int64_t block_elements() const { return block_rows * std::max<int64_t>(1, cols); }
  int64_t extent(const FusedRegister& r, int64_t n_rows) const { return r.row ? n_rows : n_rows * cols; }
  void place(int32_t k, const FusedRegister& r, char* data) {
    base[k] = data;
    row_bytes[k] = extent(r, 1) * size_of(r.dtype);
  }
};

void GroupRun::plan_blocks() {
  if (g.like >= 0) {
    rows = run.slots[g.like]->size;
  } else {
    const int outer = g.shape.n - g.row_axes;
    for (int i = 0; i < g.shape.n; ++i) (i < outer ? rows : cols) *= SizeProgram::resolve(g.shape[i], run.sizes);
  }
  block_rows = g.row_axes ? std::max<int64_t>(1, g.block / std::max<int64_t>(1, cols)) : g.block;
  if (!g.row_axes && rows > block_rows) align_blocks();
  block_rows = std::min(block_rows, std::max<int64_t>(1, rows));
  // One extra cache line, so that registers do not map to the same cache sets.
  scratch_bytes = whole_lines(block_elements() * g.max_element) + 64;
}

// In a group without rows, blocks are aligned to the period of periodic inputs.
void GroupRun::align_blocks() {
  for (const FusedRegister& r : g.registers) {
    if (r.input < 0 || run.slots[r.input]->contiguous) continue;
    const int64_t period = period_of(run.slots[r.input]);
    if (period > block_rows) continue;
    block_rows = block_rows / period * period;
    return;
  }
}

[[noreturn, gnu::noinline]] void refuse(const Value* v, DType dtype, int64_t elements) {
  throw Error(v->dtype != dtype ? ErrorKind::dtype : ErrorKind::shape,
              "fused instructions: got " + to_string(v->type()) + ", expected " + std::to_string(elements) +
                  " elements of " + name_of(dtype));
}

void GroupRun::place_input(int32_t k, const FusedRegister& r) {
  const Value* v = run.slots[r.input];
  const int64_t elements = extent(r, rows);
  if ((v->size != elements && v->ndim != 0) || v->dtype != r.dtype) [[unlikely]]
    refuse(v, r.dtype, elements);
  if (v->contiguous && v->size == elements) [[likely]]
    place(k, r, v->data);
  else if (is_uniform(v))  // also a value without axes
    staging[n_staging++] = {.k = k, .repeated = v->data};
  else if (!r.row && block_rows * cols % period_of(v) == 0)
    staging[n_staging++] = {.k = k, .periodic = v};
  else
    staging[n_staging++] = {.k = k, .gathered = v};
}

void GroupRun::place_constant(int32_t k, const FusedRegister& r) {
  // If rows are very long, a block is longer than the constants that were filled in advance.
  if (block_elements() <= g.block)
    base[k] = const_cast<char*>(g.filled[r.filled].bytes);
  else
    staging[n_staging++] = {.k = k, .repeated = r.bytes};
}

// A dying input whose memory this output can reuse: it has the same type and is not read after the output is written.
Value* GroupRun::spare_for(const FusedRegister& output) const {
  if (g.like < 0) return nullptr;
  for (int32_t k : g.dying) {
    const FusedRegister& r = g.registers[k];
    Value* v = run.slots[r.input];
    if (run.owns(r.input) && r.dtype == output.dtype && r.last_read <= output.made && reusable(v) &&
        same_shape(v, run.slots[g.like]))
      return v;
  }
  return nullptr;
}

// Whether nothing reads this buffer after the output is written, element by element.
bool GroupRun::overwritable(const Value* target, const FusedRegister& output) const {
  for (const FusedRegister& r : g.registers) {
    if (r.input < 0 || run.slots[r.input]->buffer != target->buffer) continue;
    const Value* v = run.slots[r.input];
    if (r.last_read > output.made || v->data != target->data || !v->contiguous || r.dtype != output.dtype) return false;
  }
  return true;
}

void GroupRun::place_output(int32_t k, const FusedRegister& r) {
  Value* target = run.donated ? run.donated_for(r.output) : nullptr;
  run.wrote |= target != nullptr;
  // A donated buffer that is read later, or an input that is passed through, is stored at the end of the block.
  const bool store = (target && !overwritable(target, r)) || r.input >= 0;
  if (!store && !target) target = spare_for(r);
  if (target)
    retain(target);
  else if (g.like >= 0)
    target = empty_like(run.slots[g.like], r.dtype);
  else
    target = empty(r.dtype, resolve(g.output_shapes[r.output_shape], run.sizes));
  run.slots[r.output] = target;
  if (store)
    staging[n_staging++] = {.k = k, .store_to = target->data};
  else
    place(k, r, target->data);
}

void GroupRun::place_registers() {
  const int32_t n = static_cast<int32_t>(g.registers.size());
  for (int32_t k = 0; k < n; ++k) {
    const FusedRegister& r = g.registers[k];
    base[k] = nullptr;
    row_bytes[k] = 0;
    if (r.input >= 0)
      place_input(k, r);
    else if (r.constant)
      place_constant(k, r);
    if (r.output >= 0) place_output(k, r);
  }
}

// Scalars, periodic values, and constants of very long rows.
int64_t GroupRun::repeated_bytes() const {
  int64_t n = 0;
  for (const BlockStaging& a : staged()) n += a.repeated || a.periodic;
  return n * scratch_bytes;
}

void GroupRun::fill_repeated(char* at) {
  for (const BlockStaging& a : staged()) {
    if (!a.repeated && !a.periodic) continue;
    const int64_t size = size_of(g.registers[a.k].dtype);
    if (const Value* v = a.periodic)
      gather_block(at, v->data, v->strides, v->ndim, v->shape, size, 0, block_rows * cols);
    else
      fill(at, a.repeated, size, block_elements());
    base[a.k] = at;
    at += scratch_bytes;
  }
}

void GroupRun::gather(char* const* at, int64_t first_row, int64_t n_rows) const {
  for (const BlockStaging& a : staged())
    if (a.gathered) {
      const FusedRegister& r = g.registers[a.k];
      gather_block(at[a.k], a.gathered->data, a.gathered->strides, a.gathered->ndim, a.gathered->shape,
                   size_of(r.dtype), extent(r, first_row), extent(r, n_rows));
    }
}

void GroupRun::store(char* const* at, int64_t first_row, int64_t n_rows) const {
  for (const BlockStaging& a : staged())
    if (a.store_to) {
      const int64_t row = extent(g.registers[a.k], 1) * size_of(g.registers[a.k].dtype);
      std::memcpy(a.store_to + first_row * row, at[a.k], static_cast<size_t>(n_rows * row));
    }
}

void GroupRun::run_code(char* const* at, int64_t n_rows) const {
  for (const FusedInstruction& i : g.code) {
    const int64_t n = i.row ? n_rows : n_rows * cols;
    switch (i.kind) {
      case FusedInstruction::Kind::map: {
        const void* in[3] = {at[i.in[0]], at[i.in[1]], at[i.in[2]]};  // unused operands alias register 0
        i.map(at[i.out], in, n);
        break;
      }
      case FusedInstruction::Kind::cast: i.cast(at[i.out], at[i.in[0]], n); break;
      case FusedInstruction::Kind::reduce: i.reduce(at[i.out], at[i.in[0]], n_rows, cols, cols); break;
      case FusedInstruction::Kind::expand: {
        const int64_t strides[] = {1, 0}, shape[] = {n_rows, cols};
        gather_block(at[i.out], at[i.in[0]], strides, 2, shape, size_of(g.registers[i.out].dtype), 0, n);
        break;
      }
    }
  }
}

void GroupRun::tile(int64_t first_row, int64_t end) const {
  constexpr size_t kNear = 2 * kBlockBytes;
  CacheLine near[kNear / sizeof(CacheLine)];
  const size_t bytes = static_cast<size_t>(g.n_scratch * scratch_bytes), n = g.registers.size();
  char* scratch = bytes <= kNear ? near[0].bytes : block_memory(bytes);
  SmallArray<char*, kFew> at(n);
  for (size_t k = 0; k < n; ++k)
    at[k] = base[k] ? base[k] + first_row * row_bytes[k] : scratch + g.registers[k].scratch * scratch_bytes;
  for (int64_t r = first_row;;) {
    const int64_t n_rows = std::min(block_rows, end - r);
    if (n_staging) gather(at.data(), r, n_rows);
    run_code(at.data(), n_rows);
    if (n_staging) store(at.data(), r, n_rows);
    r += n_rows;
    if (r == end) return;
    for (size_t k = 0; k < n; ++k) at[k] += n_rows * row_bytes[k];
  }
}

void GroupRun::execute() {
  if (rows == 0) return;
  SmallArray<CacheLine, kBlockBytes / sizeof(CacheLine)> repeated(static_cast<size_t>(repeated_bytes()) /
                                                                  sizeof(CacheLine));
  fill_repeated(repeated[0].bytes);
  if (rows <= block_rows) return tile(0, rows);
  const int64_t elements = std::max(kTileElements, kTileWork / static_cast<int64_t>(g.code.size()));
  const int64_t tile_rows = std::max<int64_t>(1, elements / std::max<int64_t>(1, cols) / block_rows) * block_rows;
  parallel_for((rows + tile_rows - 1) / tile_rows,
               [&](int64_t t) { tile(t * tile_rows, std::min(rows, (t + 1) * tile_rows)); });
}

// Bytes read and written, not counting broadcast operands.
int64_t GroupRun::moved_bytes() const {
  int64_t bytes = 0;
  for (const FusedRegister& r : g.registers)
    bytes += extent(r, rows) * size_of(r.dtype) * ((r.input >= 0 && run.slots[r.input]->contiguous) + (r.output >= 0));
  return bytes;
}

[[gnu::noinline, gnu::cold]] void GroupRun::execute_profiled() {
  ProfiledRun event(g, rows, cols, moved_bytes());
  execute();
  event.done(nullptr, 0);
}

}  // namespace

void run_group(const FusedGroup& g, Run& run) {
  SmallArray<char*, kFew> base(g.registers.size());
  SmallArray<int64_t, kFew> row_bytes(g.registers.size());
  SmallArray<BlockStaging, 2 * kFew> staging(2 * g.registers.size());  // an input that is also an output has two
  GroupRun r{.g = g, .run = run, .base = base.data(), .row_bytes = row_bytes.data(), .staging = staging.data()};
  r.plan_blocks();
  r.place_registers();
  auto execute = [&] { profiling ? r.execute_profiled() : r.execute(); };
  if (run.wrote) return execute();
  Interruptible results_are_new;
  execute();
}

namespace {

// The inputs and outputs of a group by register, as a device wants them.
struct DeviceGroup {
  const FusedGroup& g;
  Run& run;
  DeviceOperands moved;
  Dims shape;
  SmallArray<Value*, kFew> in, out;

  DeviceGroup(const FusedGroup& group, Run& r)
      : g(group), run(r), moved(r.device), in(group.registers.size()), out(group.registers.size()) {
    shape = g.like >= 0 ? run.slots[g.like]->dims() : resolve(g.shape, run.sizes);
    for (size_t k = 0; k < g.registers.size(); ++k) {
      const int32_t slot = g.registers[k].input;
      in[k] = slot < 0 ? nullptr : run.slots[slot];
      out[k] = nullptr;
    }
  }

  bool is_number() {
    bool any = false;
    for (size_t k = 0; k < g.registers.size(); ++k) {
      if (!in[k]) continue;
      any = true;
      if (in[k]->device != kCpu || in[k]->ndim != 0) return false;
    }
    return any && shape.n == 0;
  }

  // A kernel loads its operands before it writes an element, so writing over them is safe.
  Value* donated(const FusedRegister& r) const {
    Value* target = run.donated ? run.donated_for(r.output) : nullptr;
    if (!target || target->device != run.device || !target->contiguous || r.input >= 0 || g.row_axes) return nullptr;
    for (const FusedRegister& other : g.registers) {
      if (other.input < 0 || run.slots[other.input]->buffer != target->buffer) continue;
      const Value* v = run.slots[other.input];
      if (v->data != target->data || !v->contiguous || v->size != target->size || other.dtype != r.dtype)
        return nullptr;
    }
    return target;
  }

  void place() {
    for (size_t k = 0; k < g.registers.size(); ++k) {
      const FusedRegister& r = g.registers[k];
      if (in[k]) in[k] = moved.operand(in[k]);
      if (r.output < 0) continue;
      Value* target = donated(r);
      if (target) {
        run.wrote = true;
        retain(target);
      } else {
        const Dims dims = g.like >= 0 ? shape : resolve(g.output_shapes[r.output_shape], run.sizes);
        target = empty(r.dtype, dims, Category::activation, run.device);
      }
      run.slots[r.output] = out[k] = target;
    }
  }
};

}  // namespace

void run_group_on_device(const FusedGroup& g, Run& run) {
  DeviceGroup call(g, run);
  if (call.is_number()) {
    run_group(g, run);
    for (const FusedRegister& r : g.registers)
      if (r.output >= 0) run.note(r.output);
    return;
  }
  call.place();
  int64_t shape[kMaxRank];
  for (int i = 0; i < call.shape.n; ++i) shape[i] = call.shape[i].raw;
  device_at(run.device).run_group({g, call.shape.n, shape, call.in.data(), call.out.data()});
}

void run_group_on_cpu(const FusedGroup& g, Value** slots, const int64_t* sizes) {
  static const Program none;
  Run run{none, slots, sizes, nullptr, nullptr, 0};
  run_group(g, run);
}

}  // namespace wengert
