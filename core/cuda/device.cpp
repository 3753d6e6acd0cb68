#include "device.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "../out_of_memory.h"
#include "../program.h"
#include "../small_array.h"
#include "../threads.h"
#include "graph.h"
#include "host_memory.h"
#include "library_kernels.h"
#include "modules.h"
#include "tasks.h"
#include "timing.h"

namespace wengert::cuda {

namespace {

constexpr int kAttributeMajor = 75, kAttributeMinor = 76;
constexpr unsigned kNonBlocking = 1;
constexpr int kMostGpus = 64;
constexpr Status kNotReady = 600;

// The streams that this thread has chosen, by the number of the GPU; null: the GPU's own.
constinit thread_local Stream chosen[kMostGpus] = {};

std::vector<Kernel>& kernel_table() {
  static auto* table = [] {
    auto* made = new std::vector<Kernel>(all_ops().size(), nullptr);
    return made;
  }();
  return *table;
}

#define WENGERT_CALL(name, ...) checked(driver().name(__VA_ARGS__), #name)

// Memory is given up in the middle of other work, perhaps of another GPU, which finds its context as it was.
struct InContext {
  explicit InContext(Context context) { driver().cuCtxPushCurrent_v2(context); }
  InContext(const InContext&) = delete;
  ~InContext() {
    Context mine = nullptr;
    driver().cuCtxPopCurrent_v2(&mine);
  }
};

Address address_of(const void* p) { return reinterpret_cast<Address>(p); }

}  // namespace

LibraryKernels library_kernels;

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

std::pair<size_t, size_t> CudaDevice::free_memory() {
  enter();
  size_t available = 0, total = 0;
  WENGERT_CALL(cuMemGetInfo_v2, &available, &total);
  return {available, total};
}

char* CudaDevice::allocate(size_t bytes) {
  enter();
  char* p = pool_.allocate(bytes, chosen[ordinal]);
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

// ------------------------------------------------------------------------------------------------------------- streams

Stream CudaDevice::stream() const {
  Stream const own = chosen[ordinal];
  return own ? own : stream_;
}

Stream CudaDevice::choose_stream(Stream stream) {
  enter();
  Stream const before = this->stream();
  chosen[ordinal] = stream == stream_ ? nullptr : stream;
  if (stream != stream_ && std::find(others_.begin(), others_.end(), stream) == others_.end())
    others_.push_back(stream);
  return before;
}

Stream CudaDevice::make_stream(int priority) {
  enter();
  std::vector<Stream>& spare = spare_streams_[priority];
  Stream made = nullptr;
  if (spare.empty()) {
    WENGERT_CALL(cuStreamCreateWithPriority, &made, kNonBlocking, priority);
    priorities_[made] = priority;
  } else {
    made = spare.back();
    spare.pop_back();
  }
  return made;
}

void CudaDevice::give_back_stream(Stream stream) { spare_streams_[priorities_.at(stream)].push_back(stream); }

void CudaDevice::order(Stream other, Stream waiting) {
  enter();
  if (other != waiting) events_.order(other, waiting);
}

bool CudaDevice::is_done(Stream stream) {
  enter();
  const Status status = driver().cuStreamQuery(stream);
  if (status != kNotReady) checked(status, "cuStreamQuery");
  return status != kNotReady;
}

std::unique_ptr<OwnEvent> CudaDevice::make_event(bool timed) {
  enter();
  return std::make_unique<OwnEvent>(timed);
}

void CudaDevice::record(OwnEvent& event, Stream stream) {
  enter();
  event.record(stream);
}

namespace {

// Waits by `call`, and lets other threads of Python run meanwhile.
template <class Call>
Status waited(Call&& call) {
  void* token = waiting_hooks.enter ? waiting_hooks.enter() : nullptr;
  const Status status = call();
  if (token) waiting_hooks.leave(token);
  return status;
}

}  // namespace

void CudaDevice::wait(Stream stream) {
  enter();
  ++counters.waits;
  checked(waited([&] { return driver().cuStreamSynchronize(stream); }), "cuStreamSynchronize");
  check_note();
  release_what_is_done();
}

void CudaDevice::wait(const OwnEvent& event) {
  enter();
  ++counters.waits;
  checked(waited([&] { return event.wait(); }), "cuEventSynchronize");
  check_note();
  release_what_is_done();
}

void CudaDevice::synchronise() {
  enter();
  ++counters.waits;
  const uint64_t ticket = pool_.ticket();  // what other threads start meanwhile is not waited for
  checked(waited([] { return driver().cuCtxSynchronize(); }), "cuCtxSynchronize");
  pool_.settle(ticket);
  check_note();
  release_what_is_done();
}

// A block that this thread's stream uses, and that was perhaps made on another one.
void CudaDevice::note_use(const Value* v) {
  if (!others_.empty() && !recording_ && v->device == id && v->buffer->size_class == kOnDevice) [[unlikely]]
    pool_.note_use(v->buffer->data, chosen[ordinal]);
}

void CudaDevice::note_outside(const Buffer* buffer) {
  if (buffer->size_class == kOnDevice) pool_.note_outside(buffer->data);
}

void CudaDevice::release_later(void* owner, void (*release)(void*)) noexcept {
  if (in_forked_child()) return;
  Release later{owner, release, {}};
  const InContext here(context_);
  try {
    later.events.push_back(events_.record(stream_));
    for (Stream s : others_) later.events.push_back(events_.record(s));
  } catch (...) {
    driver().cuCtxSynchronize();  // an event is missing
  }
  releases_.push_back(std::move(later));
}

// The oldest first. What a release runs may use this device.
void CudaDevice::release_what_is_done() {
  while (!releases_.empty()) {
    Release& oldest = releases_.front();
    for (; !oldest.events.empty(); oldest.events.pop_back()) {
      if (!events_.done(oldest.events.back())) return;
      events_.give_back(oldest.events.back());
    }
    const Release done = std::move(oldest);
    releases_.erase(releases_.begin());
    done.release(done.owner);
  }
}

// ------------------------------------------------------------------------------------------------------------- kernels

Module CudaDevice::module(const std::string& source) {
  const std::string code = machine_code(source, architecture);
  Module made = nullptr;
  WENGERT_CALL(cuModuleLoadData, &made, code.data());
  return made;
}

Function CudaDevice::function(BodyKernel& kernel) {
  constexpr int kMostDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  if (kernel.function) return kernel.function;
  Function made = nullptr;
  WENGERT_CALL(cuModuleGetFunction, &made, module(kernel_text(kernel.body)), kernel_name(kernel.body.name).c_str());
  if (const int bytes = kernel.body.dynamic_shared) WENGERT_CALL(cuFuncSetAttribute, made, kMostDynamicShared, bytes);
  return kernel.function = made;
}

std::vector<Function> CudaDevice::functions(const std::vector<JoinedKernel>& kernels) {
  const std::string source = joined_text(kernels);
  std::vector<Function>& made = joined_[source];
  if (!made.empty()) return made;
  Module const code = module(source);
  std::vector<Function> found(kernels.size());
  for (size_t k = 0; k < kernels.size(); ++k)
    WENGERT_CALL(cuModuleGetFunction, &found[k], code, kernels[k].name(k).c_str());
  return made = found;
}

void CudaDevice::run(BodyKernel& kernel, int64_t grid, const std::vector<int64_t>& words, int results) {
  if (grid == 0) return;
  if (recording_) return recording_->add(kernel, grid, words, results);
  launch(function(kernel), grid, kernel.body.block, words, kernel.body.dynamic_shared);
}

void CudaDevice::launch(Function f, int64_t grid, int block, const std::vector<int64_t>& words, int dynamic_shared) {
  if (grid > INT32_MAX) fail(ErrorKind::device, name.c_str(), "a kernel has more blocks than a launch can have");
  void* parameters[] = {const_cast<int64_t*>(words.data())};
  ++counters.kernels;
  constexpr int kProgrammaticSerialization = 6;
  constexpr int64_t kFewBlocks = 132;  // more that wait take the place of those that work
  LaunchAttribute overlapping = {kProgrammaticSerialization, 0, {1}};
  const LaunchConfig config = {static_cast<unsigned>(grid),
                               1,
                               1,
                               static_cast<unsigned>(block),
                               1,
                               1,
                               static_cast<unsigned>(dynamic_shared),
                               stream(),
                               &overlapping,
                               overlaps && grid <= kFewBlocks ? 1u : 0u};
  WENGERT_CALL(cuLaunchKernelEx, &config, f, parameters, nullptr);
}

namespace {

constexpr int64_t kLongestRow = 8192;

bool is_long(const Chain& chain, const Space& space) {
  int64_t cols = 1;
  for (int a = space.ndim - space.row_axes; a < space.ndim; ++a) cols *= space.shape[a];
  return chain.rows && cols > kLongestRow;
}

// A value that lies where an operand of a chain does.
Ref seen(DType dtype, DeviceId device, const void* data, int ndim, const int64_t* shape, const int64_t* strides) {
  Ref v(new_value(ndim));
  v->buffer = adopt_foreign(const_cast<void*>(data), 0, nullptr, nullptr);
  v->data = v->buffer->data;
  v->device = device;
  v->dtype = dtype;
  v->size = 1;
  for (int i = 0; i < ndim; ++i) {
    v->shape[i] = shape[i];
    v->strides[i] = strides[i];
    v->size *= shape[i];
  }
  v->contiguous = is_contiguous(ndim, shape, strides);
  return v;
}

}  // namespace

void CudaDevice::run_long_rows(const Chain& chain, const Space& space, const Operand* in, void* const* out) {
  const int outer = space.ndim - space.row_axes;
  Dims full, rows;
  for (int a = 0; a < space.ndim; ++a) {
    full.push(space.shape[a]);
    if (a < outer) rows.push(space.shape[a]);
  }
  const size_t n = chain.registers.size();
  std::vector<Ref> values(n);
  std::vector<void*> targets(n, nullptr);
  for (size_t k = 0; k < n; ++k) {
    const Chain::Register& r = chain.registers[k];
    const int ndim = r.row ? outer : space.ndim;
    if (r.output) targets[k] = *out++;
    if (r.input) {
      values[k] = seen(r.dtype, in->number ? kCpu : id, in->data, ndim, space.shape, in->strides);
      ++in;
    } else if (r.constant) {
      static constexpr int64_t kRepeated[kMaxRank] = {};
      values[k] = seen(r.dtype, kCpu, r.bytes, ndim, space.shape, kRepeated);
    }
  }
  for (const Chain::Instruction& i : chain.code) {
    const auto to = static_cast<size_t>(i.out);
    const Chain::Register& made = chain.registers[to];
    if (i.kind == Chain::Instruction::Kind::expand) {
      const Value* x = values[static_cast<size_t>(i.in[0])].v;
      int64_t strides[kMaxRank] = {};
      for (int a = 0; a < outer; ++a) strides[a] = x->strides[a];
      values[to] = Ref(view(x, full, strides, 0));
      continue;
    }
    values[to] = Ref(empty(made.dtype, made.row ? rows : full, Category::workspace, id));
    Value* operands[3];
    for (int k = 0; k < i.n_in; ++k) operands[k] = values[static_cast<size_t>(i.in[k])].v;
    if (i.kind == Chain::Instruction::Kind::map)
      run_map(i.op, operands[i.n_in - 1]->dtype, operands, i.n_in, values[to].v);
    else if (i.kind == Chain::Instruction::Kind::cast)
      copy_here(operands[0], values[to].v);
    else
      reduce_axes(*this, i.reduction, operands[0], ((1u << space.row_axes) - 1) << outer, values[to].v);
  }
  for (size_t k = 0; k < n; ++k) {
    if (!targets[k]) continue;
    const Value* made = values[k].v;
    int64_t strides[kMaxRank], stride = 1;
    for (int a = made->ndim - 1; a >= 0; stride *= made->shape[a--]) strides[a] = stride;
    const Ref target = seen(made->dtype, id, targets[k], made->ndim, made->shape, strides);
    copy_here(made, target.v);
  }
}

void CudaDevice::run_chain(PreparedChain& prepared, const Space& space, const Operand* in, void* const* out) {
  if (is_long(prepared.chain, space)) return run_long_rows(prepared.chain, space, in, out);
  if (!recording_ || prepared.chain.rows) return run_planned(prepared, space, in, out);
  // In a graph, what is independent is joined with what fits: here it is apart.
  if (!prepared.parts) {
    prepared.parts.emplace();
    for (ChainPart& part : independent_parts(prepared.chain, in)) {
      auto& made = prepared.parts->emplace_back(std::move(part), std::make_unique<PreparedChain>());
      made.second->chain = made.first.chain;
    }
  }
  if (prepared.parts->empty()) return run_planned(prepared, space, in, out);
  for (auto& [part, chain] : *prepared.parts) {
    std::vector<Operand> operands;
    std::vector<void*> targets;
    for (int k : part.inputs) operands.push_back(in[k]);
    for (int k : part.outputs) targets.push_back(out[k]);
    run_planned(*chain, space, operands.data(), targets.data());
  }
}

void CudaDevice::run_planned(PreparedChain& prepared, const Space& space, const Operand* in, void* const* out) {
  const Launch l = plan(prepared.chain, space, in, out);
  if (l.grid == 0) return;
  enter();
  BodyKernel* found = nullptr;
  for (auto& [form, made] : prepared.kernels)
    if (form == l.form) found = made;
  if (!found) {
    found = &kernel(body(prepared.chain, l.form));
    prepared.kernels.emplace_back(l.form, found);
  }
  run(*found, l.grid, l.words);
  if (recording_) recording_->describe_chain(prepared.chain, space, in, out);
}

void CudaDevice::begin_recording(Recording& recording) {
  recording_ = &recording;
  number_log = &recording;
  recording.arena = pool_.begin_arena();
}

void CudaDevice::end_recording() {
  pool_.end_arena();
  recording_ = nullptr;
  number_log = nullptr;
}

void CudaDevice::begin_capture() {
  constexpr int kRelaxed = 2;
  enter();
  WENGERT_CALL(cuStreamBeginCapture_v2, stream(), kRelaxed);
  capturing_ = true;
}

Graph CudaDevice::end_capture() {
  Graph graph = nullptr;
  capturing_ = false;
  return driver().cuStreamEndCapture(stream(), &graph) ? nullptr : graph;
}

void CudaDevice::launch_graph(GraphExec exec) {
  enter();
  ++counters.graphs;
  WENGERT_CALL(cuGraphLaunch, exec, stream());
}

namespace {

// Two graphs of a program that run at once must not share memory: each stream has its own.
struct GraphsByStream : Prepared {
  std::vector<std::pair<Stream, std::unique_ptr<GraphCache>>> caches;
  GraphCache& of(Stream stream) {
    for (auto& [key, made] : caches)
      if (key == stream) return *made;
    return *caches.emplace_back(stream, std::make_unique<GraphCache>()).second;
  }
};

}  // namespace

bool CudaDevice::run_program(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out,
                             Value* const* donated, int given) {
  if (recording_ || !graphs || p.steps.size() < 2) return false;
  for (int i = 0; i < p.n_inputs; ++i) note_use(in[i]);
  auto& made = static_cast<GraphsByStream&>(p.prepared.find(id, [] { return std::make_unique<GraphsByStream>(); }));
  return made.of(stream()).run(*this, p, in, leaf_sizes, out, donated, given);
}

void CudaDevice::run_kernel(const char* header, const std::string& call, const std::vector<int64_t>& words,
                            int64_t threads, int results, int shared) {
  const BlockForm form{.shared = shared};
  run_blocks(header, call, words, (threads + form.threads - 1) / form.threads, form, results);
}

void CudaDevice::run_blocks(const char* header, const std::string& call, const std::vector<int64_t>& words,
                            int64_t blocks, const BlockForm& form, int results) {
  if (blocks == 0) return;
  enter();
  auto found = kernels_.find(call);
  if (found == kernels_.end()) {
    const Body body{call.substr(0, call.find("(words")),
                    header,
                    "{\n  " + call + ";\n}\n",
                    static_cast<int>(words.size()),
                    form.threads,
                    form.shared,
                    form.dynamic_shared,
                    form.resident};
    found = kernels_.emplace(call, BodyKernel{body}).first;
  }
  run(found->second, blocks, words, results);
}

void CudaDevice::own_product(const Product& p) {
  enter();
  const int64_t tile = product_tile(p), blocks = p.batch * ((p.m + tile - 1) / tile) * ((p.n + tile - 1) / tile);
  run(kernel(product_body(p)), blocks,
      {reinterpret_cast<int64_t>(p.y), reinterpret_cast<int64_t>(p.a.data), reinterpret_cast<int64_t>(p.b.data),
       p.batch, p.m, p.n, p.k, p.a.batch, p.a.row, p.a.col, p.b.batch, p.b.row, p.b.col});
  if (recording_) recording_->tasks.back().product = p;
}

void CudaDevice::multiply(const Product& product) {
  enter();
  if (!blas_) blas_ = std::make_unique<BlasHandle>(architecture);
  if (recording_) return recording_->add_library(product);
  ++counters.kernels;
  blas_->run(product, stream(), workspace(), capturing_);
}

// Of this thread's stream: the driver's memory, since what a program is noted with belongs to that program.
void* CudaDevice::workspace() {
  void*& found = workspaces_[stream()];
  if (!found) {
    Address made = 0;
    WENGERT_CALL(cuMemAlloc_v2, &made, BlasHandle::kWorkspace);
    found = reinterpret_cast<void*>(made);
  }
  return found;
}

void CudaDevice::run_map(Elementwise op, DType dtype, Value* const* in, int n_in, Value* out) {
  const uint32_t key = static_cast<uint32_t>(op) << 8 | static_cast<uint32_t>(dtype);
  std::unique_ptr<PreparedChain>& prepared = maps_[key];
  if (!prepared) {
    prepared = std::make_unique<PreparedChain>();
    Chain& c = prepared->chain;
    Chain::Instruction i{Chain::Instruction::Kind::map};
    i.op = op;
    i.n_in = static_cast<uint8_t>(n_in);
    for (int k = 0; k < n_in; ++k) {
      c.registers.push_back({in[k]->dtype, false, true});
      i.in[k] = static_cast<int16_t>(k);
    }
    c.registers.push_back({out->dtype, false, false, true});
    i.out = static_cast<int16_t>(n_in);
    c.code.push_back(i);
  }
  Operand operands[3];
  for (int k = 0; k < n_in; ++k) operands[k] = {in[k]->data, in[k]->strides, in[k]->device == kCpu};
  void* to = out->data;
  run_chain(*prepared, {out->ndim, out->shape}, operands, &to);
}

// ---------------------------------------------------------------------------------------------------------------- ops

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
    const DType dtype = in[n_in - 1]->dtype;
    if (const char* reason = no_kernel(op.kernel, dtype))
      fail(ErrorKind::device, op.name.c_str(),
           std::string("has no CUDA kernel for ") + name_of(dtype) + ": " + reason + "; compute it with x.cpu()");
    return run_map(op.kernel, dtype, in, n_in, out[0]);
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

void require_kernels(const FusedGroup& g) {
  for (const auto& [named, i] : g.source) {
    if (i.kind != FusedInstruction::Kind::map) continue;
    const DType dtype = g.registers[static_cast<size_t>(i.in[i.n_in - 1])].dtype;
    if (const char* reason = no_kernel(i.op, dtype))
      fail(ErrorKind::device, named->name.c_str(),
           std::string("has no CUDA kernel for ") + name_of(dtype) + ": " + reason);
  }
}

}  // namespace

void CudaDevice::run_group(const GroupCall& call) {
  const FusedGroup& g = call.group;
  auto& prepared = static_cast<PreparedChain&>(g.prepared.find(id, [&] {
    require_kernels(g);
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
}

// -------------------------------------------------------------------------------------------------------------- copies

namespace {

// Axes that both pass through as one are joined, and those of one element left out.
struct JoinedAxes {
  std::vector<int64_t> shape, to, from;
  JoinedAxes(const Value* source, const Value* target) {
    for (int a = 0; a < source->ndim; ++a) {
      if (source->shape[a] == 1) continue;
      const int64_t n = source->shape[a];
      if (!shape.empty() && to.back() == target->strides[a] * n && from.back() == source->strides[a] * n) {
        shape.back() *= n;
        to.back() = target->strides[a];
        from.back() = source->strides[a];
      } else {
        shape.push_back(n);
        to.push_back(target->strides[a]);
        from.push_back(source->strides[a]);
      }
    }
    if (shape.empty()) {
      shape.push_back(1);
      to.push_back(1);
      from.push_back(1);
    }
  }

  // Takes as many neighbours along the last axis for one element as 16 bytes hold; returns the bytes of an element.
  int64_t widen(int64_t bytes, const void* source, const void* target) {
    while (bytes < 16 && can_double(2 * bytes, source, target)) {
      bytes *= 2;
      shape.back() /= 2;
      for (std::vector<int64_t>* strides : {&to, &from})
        for (size_t a = 0; a + 1 < strides->size(); ++a) (*strides)[a] /= 2;
    }
    return bytes;
  }
  bool can_double(int64_t bytes, const void* source, const void* target) const {
    for (const void* p : {source, target})
      if (reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) != 0) return false;
    for (const std::vector<int64_t>* strides : {&to, &from}) {
      if (strides->back() != 1) return false;
      for (size_t a = 0; a + 1 < strides->size(); ++a)
        if ((*strides)[a] % 2 != 0) return false;
    }
    return shape.back() % 2 == 0;
  }
  int64_t size() const {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }
  // Whether positions and offsets fit 32 bits.
  bool is_narrow() const {
    int64_t reach[2] = {0, 0};
    for (size_t a = 0; a < shape.size(); ++a) {
      reach[0] += std::abs(to[a]) * (shape[a] - 1);
      reach[1] += std::abs(from[a]) * (shape[a] - 1);
    }
    return std::max({reach[0], reach[1], size()}) < INT32_MAX;
  }
};

}  // namespace

void CudaDevice::copy_here(const Value* from, Value* to) {
  Value* source = const_cast<Value*>(from);
  if (from->dtype == to->dtype && to->contiguous) return run_map(Elementwise::copy, from->dtype, &source, 1, to);
  if (from->dtype != to->dtype) {
    Ref converted(to->contiguous ? Ref::share(to).take() : empty(to->dtype, to->dims(), Category::workspace, id));
    auto& prepared = casts_[static_cast<uint32_t>(from->dtype) << 8 | static_cast<uint32_t>(to->dtype)];
    if (!prepared) {
      prepared = std::make_unique<PreparedChain>();
      prepared->chain.registers = {{from->dtype, false, true}, {to->dtype, false, false, true}};
      Chain::Instruction i{Chain::Instruction::Kind::cast};
      i.out = 1;
      prepared->chain.code.push_back(i);
    }
    const Operand operand{from->data, from->strides, false};
    void* target = converted->data;
    run_chain(*prepared, {from->ndim, from->shape}, &operand, &target);
    if (converted.v != to) copy_here(converted.v, to);
    return;
  }
  JoinedAxes axes(from, to);
  const int64_t bytes = axes.widen(size_of(from->dtype), from->data, to->data), n = axes.size();
  std::vector<int64_t> words = {reinterpret_cast<int64_t>(to->data), reinterpret_cast<int64_t>(from->data), n};
  words.insert(words.end(), axes.shape.begin(), axes.shape.end());
  words.insert(words.end(), axes.to.begin(), axes.to.end());
  words.insert(words.end(), axes.from.begin(), axes.from.end());
  run_kernel("device_memory.h",
             "copy_strided<" + std::to_string(bytes) + ", " + std::to_string(axes.shape.size()) +
                 (axes.is_narrow() ? ", int32_t" : ", int64_t") + ">(words, block_number)",
             words, n);
}

Buffer* CudaDevice::allocate_host(size_t bytes) {
  enter();
  return allocate_page_locked(bytes);
}

// Notes a copy that is under way, or waits for it.
void CudaDevice::finish_copy(const Value* host) {
  if (copies_in_background && is_page_locked(host->buffer))
    note_copy(host->buffer, events_, events_.record(stream()));
  else if (!copies_in_background)
    wait(stream());
}

namespace {

// Whether a copy from there reads the memory only when the stream gets there. From other memory the driver makes a copy
// first.
bool is_read_later(const Value* host) {
  if (is_page_locked(host->buffer)) return true;
  if (host->buffer->size_class != kForeign) return false;
  constexpr int kMemoryType = 2;
  unsigned type = 0;
  return driver().cuPointerGetAttribute(&type, kMemoryType, address_of(host->data)) == 0 && type != 0;
}

}  // namespace

void CudaDevice::from_host(const Value* from, Value* to) {
  if (recording_) throw Uncapturable();
  Ref source(contiguous(from));
  if (source->dtype != to->dtype) {
    Ref converted(empty(to->dtype, from->dims()));
    copy_into(source.v, converted.v);
    source = std::move(converted);
  }
  Ref target(to->contiguous ? Ref::share(to).take() : empty(to->dtype, to->dims(), Category::workspace, id));
  ++counters.copies;
  WENGERT_CALL(cuMemcpyHtoDAsync_v2, address_of(target->data), source->data, static_cast<size_t>(source->bytes()),
               stream());
  if (is_read_later(source.v)) finish_copy(source.v);
  if (target.v != to) copy_here(target.v, to);
}

void CudaDevice::to_host(const Value* from, Value* to) {
  if (recording_) throw Uncapturable();
  const Ref source(contiguous(from));
  const bool direct = to->contiguous && to->dtype == from->dtype;
  Ref target(direct ? Ref::share(to).take() : empty(from->dtype, from->dims()));
  ++counters.copies;
  WENGERT_CALL(cuMemcpyDtoHAsync_v2, target->data, address_of(source->data), static_cast<size_t>(source->bytes()),
               stream());
  if (copies_in_background && is_page_locked(target->buffer)) return finish_copy(target.v);
  wait(stream());
  if (target.v != to) copy_into(target.v, to);
}

void CudaDevice::copy(const Value* from, Value* to) {
  if (from->size == 0) return;
  enter();
  note_use(from);
  note_use(to);
  if (from->device == kCpu) return from_host(from, to);
  if (to->device == kCpu) return to_host(from, to);
  copy_here(from, to);
}

// From another GPU: its stream and ours wait for each other, so that the copy is in the order of both.
bool CudaDevice::copy_across(const Value* from, Value* to) {
  auto* other = dynamic_cast<CudaDevice*>(&device_at(from->device));
  if (!other || recording_ || other->recording_) return false;
  Ref source(contiguous(from));
  if (source->dtype != to->dtype) {
    Ref converted(empty(to->dtype, from->dims(), Category::workspace, other->id));
    other->copy(source.v, converted.v);
    source = std::move(converted);
  }
  const Ref target(to->contiguous ? Ref::share(to).take() : empty(to->dtype, to->dims(), Category::workspace, id));
  other->note_use(source.v);
  note_use(target.v);
  enter();
  Event const ready = events_.record(stream());
  other->enter();
  WENGERT_CALL(cuStreamWaitEvent, other->stream(), ready, 0);
  ++counters.copies;
  WENGERT_CALL(cuMemcpyPeerAsync, address_of(target->data), context_, address_of(source->data), other->context_,
               static_cast<size_t>(source->bytes()), other->stream());
  Event const arrived = other->events_.record(other->stream());
  enter();
  WENGERT_CALL(cuStreamWaitEvent, stream(), arrived, 0);
  events_.give_back(ready);
  other->events_.give_back(arrived);
  if (target.v != to) copy_here(target.v, to);
  return true;
}

void CudaDevice::fill(Value* to, const void* element) {
  note_use(to);
  std::vector<int64_t> words = {reinterpret_cast<int64_t>(to->data), to->size, 0, 0};
  std::memcpy(&words[2], element, static_cast<size_t>(size_of(to->dtype)));
  const int64_t bytes = size_of(to->dtype), pack = reinterpret_cast<uintptr_t>(to->data) % 16 == 0 ? 16 / bytes : 1;
  run_kernel("device_memory.h",
             "fill<" + std::to_string(bytes) + ", " + std::to_string(pack) + ">(words, block_number)", words,
             (to->size + pack - 1) / pack);
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
  if (note_[2] < 0)
    fail(ErrorKind::value, all_ops()[static_cast<size_t>(op - 1)]->name.c_str(),
         "the operand holds NaN, which has no place in an order; replace it first, e.g. where(isnan(x), inf, x); it "
         "was met on " +
             name + " and is raised where the host waits for it");
  fail(ErrorKind::index, all_ops()[static_cast<size_t>(op - 1)]->name.c_str(),
       "the index " + std::to_string(note_[1]) + " is out of range for an axis with size " + std::to_string(note_[2]) +
           "; it was met on " + name + " and is raised where the host waits for it");
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
