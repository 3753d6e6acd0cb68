#include <algorithm>
#include <deque>
#include <optional>
#include <span>

#include "finite.h"
#include "generate/tier.h"
#include "kernels/strided.h"
#include "profile.h"
#include "regions.h"
#include "threads.h"

namespace wengert {

RunCounters run_counters = {};
NumberLog* number_log = nullptr;

namespace {

constexpr int64_t kTileWork = 65536;     // elements × instructions; less is not worth another thread
constexpr int64_t kTileElements = 4096;  // minimum elements per tile
constexpr int kSmallSteps = 64;          // tiny steps between checks for signals
constexpr size_t kFew = 32;              // stack space for registers, slots and sizes

void resolve_attrs(const Attrs& from, const int64_t* sizes, Attrs& to) {
  to = from;
  for (int k = 0; k < to.n; ++k)
    if (to.v[k].kind == Attr::Kind::sizes) to.v[k].dims = resolve(from.v[k].dims, sizes);
}

// Per-thread block memory: grows, never shrinks below what a run needs.
char* block_memory(size_t bytes) {
  thread_local std::vector<CacheLine> memory;
  if (memory.size() * sizeof(CacheLine) < bytes) memory.resize(bytes / sizeof(CacheLine) + 1);
  return memory.data()->bytes;
}

// Whether nobody else can see this value, so that a result may take its place.
bool reusable(const Value* v) {
  return v->refs == 1 && v->buffer->refs == 1 && v->contiguous && !v->node && !v->buffer->pinned &&
         v->buffer->size_class != kManaged;
}

// One execution of a program. It owns the results of steps and the first `given` inputs, and releases each after its
// last use unless it becomes an output.
struct Run {
  const Program& p;
  Value** slots;
  const int64_t* sizes;
  const int64_t* leaf_sizes;
  Value* const* donated;
  int given;
  DeviceId device = kCpu;
  int small_steps = 0;
  bool wrote = false;  // wrote into a donated value; from then on a failure cannot be undone

  bool owns(int32_t slot) const { return slot < given || slot >= p.n_inputs; }

  void step(const Step& s);
  void drop_unread(const Step& s);
  bool worked(const Step& s);
  void call(const Step& s);
  void run_group_on_device(const FusedGroup& g);
  Value* spare_operand(const Step& s, DType dtype) const;
  Value* donated_for(int32_t slot) const;
  // Remembers what the host computed for a program that runs on another device.
  void note(int32_t slot) const {
    if (number_log && device != kCpu && slots[slot]->device == kCpu) number_log->add_number(slot, slots[slot]);
  }
  void drop(int32_t slot) {
    release(slots[slot]);
    slots[slot] = nullptr;
  }
  void store_donated();
  void release_all();
};

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

// Operands copied to a device for one step.
class DeviceOperands {
 public:
  explicit DeviceOperands(DeviceId device) : device_(device) {}
  Value* operand(Value* v);

 private:
  DeviceId device_;
  std::vector<Ref> owned_;
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

// Not inlined, like `run_one_block`: their buffers would otherwise take stack space in every run.
[[gnu::noinline]] void run_group(const FusedGroup& g, Run& run) {
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

void Run::run_group_on_device(const FusedGroup& g) {
  DeviceGroup call(g, *this);
  if (call.is_number()) {
    run_group(g, *this);
    for (const FusedRegister& r : g.registers)
      if (r.output >= 0) note(r.output);
    return;
  }
  call.place();
  int64_t shape[kMaxRank];
  for (int i = 0; i < call.shape.n; ++i) shape[i] = call.shape[i].raw;
  device_at(device).run_group({g, call.shape.n, shape, call.in.data(), call.out.data()});
}

Value* Run::donated_for(int32_t slot) const {
  for (size_t i = 0; i < p.outputs.size(); ++i)
    if (p.outputs[i] == slot && donated[i]) return donated[i];
  return nullptr;
}

// An operand that dies here and that nobody else sees, so the result can reuse its memory.
Value* Run::spare_operand(const Step& s, DType dtype) const {
  auto fits = [&](const Value* v) { return v->dtype == dtype && v->device == device && reusable(v); };
  for (int32_t d : s.drop_input)
    if (d < given && fits(slots[d])) return slots[d];
  for (int32_t d : s.drop)
    if (slots[d] && fits(slots[d])) return slots[d];
  return nullptr;
}

// An operand of a program that runs on a device: numbers stay on the host, everything else is copied to the device.
Value* DeviceOperands::operand(Value* v) {
  if (v->device != kCpu || is_uniform(v)) return v;
  owned_.emplace_back(on_device(v, device_));
  return owned_.back().v;
}

// Ops on numbers run on the host, and their results stay there.
bool on_host(const Op& op, Value* const* in, int n) {
  if (op.on_host || (op.view && in[0]->device == kCpu)) return true;
  for (int i = 0; i < n; ++i)
    if (in[i]->device != kCpu || in[i]->ndim != 0) return false;
  return n > 0;
}

void Run::call(const Step& s) {
  const int n = static_cast<int>(s.in.size());
  SmallArray<Value*, 8> operands(n);
  for (int i = 0; i < n; ++i) operands[i] = slots[s.in[i]];
  DeviceOperands moved(device);
  const bool number = device != kCpu && on_host(*s.op, operands.data(), n);
  if (device != kCpu && !number)
    for (int i = 0; i < n; ++i) operands[i] = moved.operand(operands[i]);
  if (s.op->elementwise) {
    Value* spare = spare_operand(s, s.op->map_result[static_cast<int>(operands[n - 1]->dtype)]);
    slots[s.out[0]] = run_elementwise(*s.op, operands.data(), n, spare);
    note(s.out[0]);
    return;
  }
  Value* results[kMaxOutputs];
  if (s.symbolic) {
    Attrs attrs;
    resolve_attrs(s.attrs, sizes, attrs);
    if (number_log && device != kCpu) number_log->set_step(&s);
    run_op(*s.op, operands.data(), n, attrs, results);
    if (number_log && device != kCpu) number_log->set_step(nullptr);
  } else {
    run_op(*s.op, operands.data(), n, s.attrs, results);
  }
  for (size_t i = 0; i < s.out.size(); ++i) {
    slots[s.out[i]] = results[i];
    note(s.out[i]);
  }
}

void Run::step(const Step& s) {
  ++run_counters.steps;
  run_counters.gemms += s.gemm;
  run_counters.instructions += s.group ? static_cast<int64_t>(s.group->code.size()) : 1;
  if (s.group) {
    ++run_counters.groups;
    if (device == kCpu) [[likely]]
      run_group(*s.group, *this);
    else
      run_group_on_device(*s.group);
  } else {
    call(s);
  }
}

void Run::drop_unread(const Step& s) {
  for (int32_t d : s.drop) drop(d);
  for (int32_t d : s.drop_input)
    if (d < given) drop(d);
}

// Whether enough work was done since the last check for signals.
bool Run::worked(const Step& s) {
  const Value* y = slots[s.out[0]];
  if (!(y && y->size >= kTileElements) && ++small_steps < kSmallSteps) return false;
  small_steps = 0;
  return true;
}

// Groups write into donated values themselves; the results of other steps are copied.
void Run::store_donated() {
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    const int32_t slot = p.outputs[i];
    if (slot < 0 || !donated[i] || slots[slot] == donated[i]) continue;
    copy_into(slots[slot], donated[i]);
  }
}

// Releases what is still owned, after a failure.
void Run::release_all() {
  for (int i = 0; i < given; ++i)
    if (slots[i]) drop(i);
  for (const Step& s : p.steps)
    for (int32_t o : s.out)
      if (slots[o]) drop(o);
}

// An owned input that nobody else sees, whose memory a result of the same shape can reuse.
Value* spare_input(const OneBlock::Output& o, Value* const* in, int given, const Value* like) {
  for (int32_t slot : o.spares)
    if (slot < given && reusable(in[slot]) && same_shape(in[slot], like)) return in[slot];
  return nullptr;
}

void run_code(const FusedGroup& g, char* const* at, int64_t n) {
  for (const FusedInstruction& i : g.code) {
    const void* in[3] = {at[i.in[0]], at[i.in[1]], at[i.in[2]]};  // unused operands alias register 0
    if (i.kind == FusedInstruction::Kind::map)
      i.map(at[i.out], in, n);
    else
      i.cast(at[i.out], in[0], n);
  }
}

[[gnu::noinline, gnu::cold]] void run_code_profiled(const Program& p, Value* const* in, char* const* at, int64_t n) {
  int64_t bytes = 0;
  for (const OneBlock::Input& i : p.one_block->inputs) bytes += in[i.slot]->bytes();
  for (const OneBlock::Output& o : p.one_block->outputs) bytes += n * size_of(o.dtype);
  ProfiledRun event(*p.steps[0].group, n, 1, bytes);
  run_code(*p.steps[0].group, at, n);
  event.done(nullptr, 0);
}

// Runs the program if all operands are packed or numbers and fit one block. Otherwise returns false and does nothing.
[[gnu::noinline]] bool run_one_block(const Program& p, Value* const* in, Value** out, int given) {
  const OneBlock& b = *p.one_block;
  const FusedGroup& g = *p.steps[0].group;
  const Value* like = in[g.like];
  const int64_t n = like->size, scratch_bytes = whole_lines(n * g.max_element) + 64;
  CacheLine memory[2 * kBlockBytes / sizeof(CacheLine)];
  if (n > g.block || n == 0 || g.n_scratch * scratch_bytes > static_cast<int64_t>(sizeof memory)) return false;
  char* at[OneBlock::kMaxRegisters];
  at[0] = nullptr;
  int64_t used = g.n_scratch * scratch_bytes;
  const auto repeated = [&](const Value* number) -> char* {  // null: it does not fit
    char* block = memory[0].bytes + used;
    if ((used += scratch_bytes) > static_cast<int64_t>(sizeof memory)) return nullptr;
    fill(block, number->data, size_of(number->dtype), n);
    return block;
  };
  for (const OneBlock::Input& i : b.inputs) {
    const Value* v = in[i.slot];
    if (v->size != n || v->dtype != i.dtype) return false;
    at[i.at] = v->contiguous ? v->data : is_uniform(v) ? repeated(v) : nullptr;
    if (!at[i.at]) return false;
  }
  for (const OneBlock::Constant& c : b.constants) at[c.at] = const_cast<char*>(c.data);
  for (const OneBlock::Temporary& t : b.temporaries) at[t.at] = memory[0].bytes + t.position * scratch_bytes;
  std::fill_n(out, p.outputs.size(), nullptr);
  try {
    for (const OneBlock::Output& o : b.outputs) {
      Value* y = spare_input(o, in, given, like);
      if (y)
        retain(y);
      else
        y = empty_like(like, o.dtype);
      out[o.index] = y;
      at[o.at] = y->data;
    }
  } catch (...) {
    for (size_t i = 0; i < p.outputs.size(); ++i)
      if (out[i]) release(out[i]);
    for (int i = 0; i < given; ++i) release(in[i]);
    throw;
  }
  ++run_counters.steps;
  ++run_counters.groups;
  run_counters.instructions += static_cast<int64_t>(g.code.size());
  if (profiling) [[unlikely]]
    run_code_profiled(p, in, at, n);
  else
    run_code(g, at, n);
  for (int i = 0; i < given; ++i) release(in[i]);
  return true;
}

// Copies constants with axes to a device, once. Numbers stay on the host.
[[gnu::noinline]] void bring_constants(const Program& p, DeviceId device, Value** slots) {
  if (p.constants.empty()) return;
  if (p.constants_on.size() < device) p.constants_on.resize(device);
  std::vector<Value*>& there = p.constants_on[device - 1];
  there.resize(p.constants.size(), nullptr);
  for (size_t i = 0; i < p.constants.size(); ++i) {
    const auto& [slot, value] = p.constants[i];
    if (value->device != kCpu || is_uniform(value)) continue;
    if (!there[i]) there[i] = on_device(value, device);
    slots[slot] = there[i];
  }
}

// A program that is being executed, with the memory of its values and sizes.
class Frame {
 public:
  Frame(DeviceId device, const ProgramCall& call, Value* const* donated, bool wrote, const Inspection* inspection)
      : call_(call),
        slots_(call.program->n_slots),
        sizes_(call.program->sizes.steps.size()),
        run_{*call.program, slots_.data(), sizes_.data(), call.leaf_sizes, donated, call.given, device},
        next_(call.program->steps.data()),
        inspection_(inspection) {
    run_.wrote = wrote;
    std::copy(call.in, call.in + run_.p.n_inputs, run_.slots);
    std::fill(run_.slots + run_.p.n_inputs, run_.slots + run_.p.n_slots, nullptr);
    for (auto& [slot, value] : run_.p.constants) run_.slots[slot] = value;
  }
  Frame(const Frame&) = delete;
  ~Frame() {
    if (!returned_) [[unlikely]]
      run_.release_all();
  }

  void prepare() {
    if (run_.device != kCpu) bring_constants(run_.p, run_.device, run_.slots);
    if (!run_.p.sizes.steps.empty()) run_.p.sizes.evaluate(call_.leaf_sizes, sizes_.data());
  }
  // Executes all steps that are left. Not null: first, this region must run, which holds regions itself.
  const ProgramCall* advance();
  void return_outputs();

  DeviceId device() const { return run_.device; }
  bool wrote() const { return run_.wrote; }

 private:
  const ProgramCall* advance_regions(const Step& s);

  const ProgramCall& call_;
  SmallArray<Value*, kFew> slots_;
  SmallArray<int64_t, kFew> sizes_;
  Run run_;
  const Step* next_;
  const Inspection* inspection_;
  RegionsInProgress regions_;  // of the next step
  bool returned_ = false;
};

const ProgramCall* Frame::advance() {
  const std::vector<Step>& steps = run_.p.steps;
  const Step* const looks = inspection_ ? steps.data() + inspection_->step : nullptr;
  for (const Step* const end = steps.data() + steps.size(); next_ != end; ++next_) {
    const Step& s = *next_;
    if (&s == looks && !regions_.any() && !inspection_->passes(run_.slots, run_.p.outputs.data())) [[unlikely]]
      throw NotFinite();
    if (s.regions.empty()) [[likely]]
      run_.step(s);
    else if (const ProgramCall* deeper = advance_regions(s))
      return deeper;
    run_.drop_unread(s);
    if (!run_.wrote && run_.worked(s)) check_interrupt();
  }
  if (run_.donated) run_.store_donated();
  return nullptr;
}

[[gnu::noinline]] const ProgramCall* Frame::advance_regions(const Step& s) {
  if (!regions_.any()) {
    ++run_counters.steps;
    ++run_counters.instructions;
    regions_.begin(s, {run_.device, run_.slots, run_.sizes, run_.leaf_sizes, run_.wrote});
  }
  while (const ProgramCall* call = regions_.next()) {
    if (call->program->depth > 0) return call;
    run_steps(run_.device, *call->program, call->in, call->leaf_sizes, call->out, nullptr, call->given, run_.wrote);
  }
  return nullptr;
}

void Frame::return_outputs() {
  returned_ = true;
  for (int32_t u : run_.p.unread)
    if (u < run_.given) run_.drop(u);
  for (size_t i = 0; i < run_.p.outputs.size(); ++i) {
    const int32_t slot = run_.p.outputs[i];
    Value*& y = call_.out[i];
    y = slot < 0 ? nullptr : run_.slots[slot];
    if (y && !(run_.p.moves[i] && run_.owns(slot))) retain(y);
  }
}

// Regions that hold regions have frames on the heap, so only memory limits how deeply programs are nested.
[[gnu::noinline]] void run_deeper(Frame& bottom, const ProgramCall* call) {
  std::deque<std::optional<Frame>> above;  // a frame that has returned leaves its memory to the next one
  size_t n = 0;
  for (Frame* top = &bottom;; call = top->advance()) {
    if (call) {
      if (n == above.size()) above.emplace_back();
      top = &above[n++].emplace(top->device(), *call, nullptr, top->wrote(), nullptr);
      top->prepare();
    } else if (n) {
      top->return_outputs();
      above[--n].reset();
      top = n ? &*above[n - 1] : &bottom;
    } else {
      return;
    }
  }
}

// Apart from `run_steps`, whose stack a program of one block does without.
[[gnu::noinline]] void run_frame(DeviceId device, const ProgramCall& call, Value* const* donated, bool wrote,
                                 const Inspection* inspection) {
  Frame frame(device, call, donated, wrote, inspection);
  frame.prepare();
  if (const ProgramCall* deeper = frame.advance()) [[unlikely]]
    run_deeper(frame, deeper);
  frame.return_outputs();
}

}  // namespace

void run_steps(DeviceId device, const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out,
               Value* const* donated, int given, bool wrote, const Inspection* inspection) {
  if (p.one_block && !donated && device == kCpu && run_one_block(p, in, out, given)) return;
  run_frame(device, {&p, in, leaf_sizes, out, given}, donated, wrote, inspection);
}

namespace {

[[gnu::noinline]] void run_anywhere(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out,
                                    Value* const* donated, int given) {
  DeviceId device = p.n_inputs ? kCpu : placement;
  for (int i = 0; i < p.n_inputs && device == kCpu; ++i) device = in[i]->device;
  const Placement here(device);
  if (device == kCpu) return run_steps(kCpu, p, in, leaf_sizes, out, donated, given, false);
  if (!device_at(device).run_program(p, in, leaf_sizes, out, donated, given))
    run_steps(device, p, in, leaf_sizes, out, donated, given, false);
}

[[gnu::noinline, gnu::cold]] void run_profiled(const Program& p, Value* const* in, const int64_t* leaf_sizes,
                                               Value** out, Value* const* donated, int given) {
  ProfiledRun event(p, in, leaf_sizes);
  run_anywhere(p, in, leaf_sizes, out, donated, given);
  event.done(out, static_cast<int>(p.outputs.size()));
}

}  // namespace

void run(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out, Value* const* donated, int given) {
  if (profiling) [[unlikely]]
    return run_profiled(p, in, leaf_sizes, out, donated, given);
  unsigned device = placement;
  for (int i = 0; i < p.n_inputs; ++i) device |= in[i]->device;
  if (device != kCpu) [[unlikely]]
    return run_anywhere(p, in, leaf_sizes, out, donated, given);
  if (tier_mode() == TierMode::generated || p.may_be_hot) [[unlikely]] {
    if (run_generated(p, in, leaf_sizes, out, donated, given)) return;
    const int64_t before = run_counters.instructions;
    run_steps(kCpu, p, in, leaf_sizes, out, donated, given, false);
    p.heat += run_counters.instructions - before;
    return;
  }
  run_steps(kCpu, p, in, leaf_sizes, out, donated, given, false);
}

bool Inspection::passes(Value* const* values, const int32_t* slots) const {
  for (const Output& o : outputs) {
    const Value* v = values[slots ? slots[o.which] : o.which];
    if ((!o.number || v->size == 1) && !all_finite(v)) return false;
  }
  return true;
}

bool run_inspected(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out, Value* const* donated,
                   const Inspection& inspection) {
  const bool on_host = std::all_of(in, in + p.n_inputs, [](const Value* v) { return v->device == kCpu; });
  if (profiling || tier_mode() == TierMode::generated || p.may_be_hot || !on_host ||
      inspection.step >= p.steps.size()) {
    run(p, in, leaf_sizes, out);
    return false;
  }
  run_steps(kCpu, p, in, leaf_sizes, out, donated, 0, false, &inspection);
  return true;
}

void run_group_on_cpu(const FusedGroup& g, Value** slots, const int64_t* sizes) {
  static const Program none;
  Run run{none, slots, sizes, nullptr, nullptr, 0};
  run_group(g, run);
}

}  // namespace wengert
