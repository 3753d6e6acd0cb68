#include "device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "../ops/undefined.h"
#include "../out_of_memory.h"
#include "../small_array.h"
#include "graph.h"
#include "host_memory.h"
#include "library_kernels.h"
#include "tasks.h"
#include "timing.h"

namespace wengert::cuda {

namespace {

constexpr int kAttributeMajor = 75, kAttributeMinor = 76;

std::vector<Kernel>& kernel_table() {
  static auto* table = new std::vector<Kernel>(all_ops().size(), nullptr);
  return *table;
}

}  // namespace

LibraryKernels library_kernels;
int waits_for_ops = 0;

void add_kernel(const char* op, Kernel kernel) { kernel_table()[static_cast<size_t>(find_op(op)->id)] = kernel; }

Kernel find_kernel(const Op& op) {
  static const bool registered = [] {
    register_memory_kernels();
    register_reduce_kernels();
    register_index_kernels();
    register_product_kernels();
    register_random_kernels();
    register_row_kernels();
    register_scan_kernels();
    register_sort_kernels();
    register_pool_kernels();
    register_resample_kernels();
    register_conv_kernels();
    register_recurrent_kernels();
    register_attention_kernels();
    register_series_kernels();
    return true;
  }();
  const auto id = static_cast<size_t>(op.id);
  return registered && id < kernel_table().size() ? kernel_table()[id] : nullptr;
}

namespace {

// For the message of an allocation that failed.
std::string room_on(uint8_t device) {
  auto* gpu = dynamic_cast<CudaDevice*>(&device_at(device));
  if (!gpu) return "";
  const auto [available, total] = gpu->free_memory();
  const size_t live = gpu->live_bytes, cached = gpu->pool_stats().reserved_bytes;
  const auto mb = [](size_t bytes) { return std::to_string(bytes >> 20) + " MB"; };
  return ", and " + gpu->name + " has " + mb(available) + " free of " + mb(total) + "; tensors use " + mb(live) +
         " there, and the pool has " + mb(cached);
}

}  // namespace

CudaDevice::CudaDevice(int number) : ordinal(number) {
  describe_room = room_on;
  name = "cuda:" + std::to_string(number);
  int device = 0, major = 0, minor = 0;
  WENGERT_CALL(cuDeviceGet, &device, number);
  WENGERT_CALL(cuDeviceGetAttribute, &major, kAttributeMajor, device);
  WENGERT_CALL(cuDeviceGetAttribute, &minor, kAttributeMinor, device);
  architecture = 10 * major + minor;
  constexpr int kWaitingKernels = 90, kInGraphs = 12030;
  overlaps = architecture >= kWaitingKernels && driver().version >= kInGraphs;
  WENGERT_CALL(cuDevicePrimaryCtxRetain, &context_, device);
  enter();
  WENGERT_CALL(cuStreamCreate, &stream_, kNonBlocking);
  void* note = nullptr;
  WENGERT_CALL(cuMemAllocHost_v2, &note, 64);
  note_ = static_cast<int64_t*>(note);
  std::memset(note_, 0, 64);
}

void CudaDevice::enter() const {
  if (in_forked_child()) [[unlikely]]
    fail(ErrorKind::device, name.c_str(),
         "this process was forked from one that used the GPU, and cannot use it; start workers by spawn, not by fork "
         "(multiprocessing.get_context('spawn')), or move tensors to the GPU in the parent");
  WENGERT_CALL(cuCtxSetCurrent, context_);
}

std::string CudaDevice::description() const {
  int device = 0;
  char text[128] = {};
  WENGERT_CALL(cuDeviceGet, &device, ordinal);
  WENGERT_CALL(cuDeviceGetName, text, sizeof(text), device);
  return text;
}

int CudaDevice::attribute(int which) const {
  int device = 0, value = 0;
  WENGERT_CALL(cuDeviceGet, &device, ordinal);
  WENGERT_CALL(cuDeviceGetAttribute, &value, which, device);
  return value;
}

void CudaDevice::reset_peak() {
  peak_bytes = live_bytes;
  pool_.stats.peak_bytes = pool_.stats.live_bytes;
  pool_.stats.peak_reserved_bytes = pool_.stats.reserved_bytes;
}

std::pair<size_t, size_t> CudaDevice::free_memory() {
  enter();
  size_t available = 0, total = 0;
  WENGERT_CALL(cuMemGetInfo_v2, &available, &total);
  return {available, total};
}

char* CudaDevice::allocate(size_t bytes) {
  enter();
  char* p = pool_.allocate(bytes, chosen());
  if (recording_) recording_->add_block(p, bytes);
  return p;
}

void CudaDevice::free(char* data, size_t bytes) noexcept {
  if (in_forked_child()) return;
  if (others_.empty()) return pool_.free(data, bytes);
  const InContext here(context_);
  pool_.free(data, bytes);
}

void CudaDevice::empty_pool() {
  enter();
  pool_.empty();
  empty_host_memory();
}

// A number of the host as one element of the GPU's memory, written by a kernel: nothing is copied, and a graph can
// write another one the next time.
Ref CudaDevice::filled(const Value* number) {
  static constexpr int64_t kRepeated[kMaxRank] = {};
  const Ref one(empty(number->dtype, {}, Category::workspace, id));
  fill(one.v, number->data);
  if (recording_) recording_->tasks.back().numbers.push_back({2, number->data, size_of(number->dtype)});
  return Ref(view(one.v, number->dims(), kRepeated, 0));
}

void CudaDevice::run_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  for (int i = 0; i < n_in; ++i) note_use(in[i]);
  if (op.elementwise) {
    run_map(op.kernel, in[n_in - 1]->dtype, in, n_in, out[0]);
    return settle(op.name.c_str());
  }
  const Kernel kernel = find_kernel(op);
  const bool by_library = !kernel && library_kernels.serve && library_kernels.serve(op);
  if (!kernel && !by_library)
    fail(ErrorKind::device, op.name.c_str(), "has no CUDA kernel; move the operands with cpu() and the result back");
  if (by_library && recording_) throw Uncapturable();
  // Numbers of the host: kernels other than elementwise ones read memory of the GPU.
  SmallArray<Value*, 8> operands(static_cast<size_t>(n_in));
  std::vector<Ref> moved;
  for (int i = 0; i < n_in; ++i) {
    operands[static_cast<size_t>(i)] = in[i];
    if (in[i]->device != kCpu) continue;
    moved.push_back(filled(in[i]));
    operands[static_cast<size_t>(i)] = moved.back().v;
  }
  (by_library ? library_kernels.run(op, operands.data(), n_in, attrs, out)
              : kernel(*this, op, operands.data(), n_in, attrs, out));
  settle(op.name.c_str());
}

void CudaDevice::settle(const char* op) {
  if (!waits_for_ops || recording_ || capturing_) [[likely]]
    return;
  ++counters.waits;
  const Status status = driver().cuStreamSynchronize(stream());
  if (status) {
    std::string what;
    try {
      checked(status, "cuStreamSynchronize");
    } catch (const Error& e) {
      what = e.what();
    }
    fail(ErrorKind::device, op, "its kernel failed on " + name + ": " + what);
  }
  check_note();
}

namespace {

Chain chain_of(const FusedGroup& g) {
  Chain c;
  c.rows = g.row_axes != 0;
  for (const FusedRegister& r : g.registers) {
    Chain::Register made{r.dtype, r.row, r.input >= 0, r.output >= 0, r.constant};
    std::memcpy(made.bytes, r.bytes, sizeof(made.bytes));
    c.registers.push_back(made);
  }
  for (const auto& [named, i] : g.source) {
    Chain::Instruction made{static_cast<Chain::Instruction::Kind>(i.kind), i.op, i.reduction, i.n_in};
    std::copy_n(i.in, 3, made.in);
    made.out = i.out;
    c.code.push_back(made);
  }
  return c;
}

}  // namespace

void CudaDevice::run_group(const GroupCall& call) {
  const FusedGroup& g = call.group;
  auto& prepared = static_cast<PreparedChain&>(g.prepared.find(id, [&] {
    auto made = std::make_unique<PreparedChain>();
    made->chain = chain_of(g);
    return std::unique_ptr<Prepared>(std::move(made));
  }));
  const int outer = call.ndim - g.row_axes;
  int64_t packed_all[kMaxRank], packed_rows[kMaxRank], size = 1;
  for (int a = call.ndim - 1; a >= 0; --a) {
    packed_all[a] = size;
    size *= call.shape[a];
  }
  size = 1;
  for (int a = outer - 1; a >= 0; --a) {
    packed_rows[a] = size;
    size *= call.shape[a];
  }
  static constexpr int64_t kRepeated[kMaxRank] = {};
  std::vector<Operand> in(g.registers.size());
  SmallArray<void*, 32> out(g.registers.size());
  std::vector<Ref> packed;
  size_t n_in = 0, n_out = 0;
  for (size_t k = 0; k < g.registers.size(); ++k) {
    if (call.out[k]) out[n_out++] = call.out[k]->data;
    Value* v = call.in[k];
    if (call.out[k]) note_use(call.out[k]);
    if (!v) continue;
    note_use(v);
    const int axes = g.registers[k].row ? outer : call.ndim;
    const bool fits = v->ndim == axes && std::equal(v->shape, v->shape + axes, call.shape);
    const int64_t* strides = v->strides;
    if (!fits && is_uniform(v)) {
      strides = kRepeated;
    } else if (!fits) {
      packed.emplace_back(contiguous(v));
      v = packed.back().v;
      strides = g.registers[k].row ? packed_rows : packed_all;
    }
    in[n_in++] = {v->data, strides, v->device == kCpu};
  }
  run_chain(prepared, {call.ndim, call.shape, g.row_axes}, in.data(), out.data());
  if (!waits_for_ops) [[likely]]
    return;
  std::string names;
  for (const auto& [named, i] : g.source)
    if (named) names += (names.empty() ? "" : ", ") + named->name;
  settle(names.c_str());
}

void CudaDevice::describe_draw(int word, int key, int counter) {
  if (recording_) recording_->describe_draw(word, key, counter);
}

void CudaDevice::note_index(const Op& op, std::vector<int64_t>& words) {
  words.push_back(reinterpret_cast<int64_t>(note_));
  words.push_back(op.id + 1);
}

void CudaDevice::check_note() {
  const int64_t op = std::exchange(note_[0], 0);
  if (op == 0) return;
  const std::string where = "; it was met on " + name + " and is raised where the host waits for it";
  if (note_[2] < -1) throw Error(ErrorKind::gradient, why_undefined(-2 - note_[2]) + where);
  if (note_[2] < 0)
    fail(ErrorKind::value, all_ops()[static_cast<size_t>(op - 1)]->name.c_str(),
         "the operand holds NaN, which has no place in an order; replace it first, e.g. where(isnan(x), inf, x)" +
             where);
  fail(ErrorKind::index, all_ops()[static_cast<size_t>(op - 1)]->name.c_str(),
       "the index " + std::to_string(note_[1]) + " is out of range for an axis with size " + std::to_string(note_[2]) +
           where);
}

DeviceId open_device(int ordinal) {
  static auto* opened = new std::unordered_map<int, DeviceId>;
  if (auto found = opened->find(ordinal); found != opened->end()) return found->second;
  driver();  // throws where there is none
  if (ordinal < 0 || ordinal >= std::min(device_count(), kMostGpus))
    throw Error(ErrorKind::device,
                "cuda:" + std::to_string(ordinal) + ": this machine has " + std::to_string(device_count()) + " GPU(s)");
  time_profiles();
  return opened->emplace(ordinal, add_device(std::make_unique<CudaDevice>(ordinal))).first->second;
}

}  // namespace wengert::cuda
