// Kernels of a GPU: making them from source, starting them, noting them or making them nodes of a graph.
#include <algorithm>
#include <cstring>
#include <utility>

#include "../program.h"
#include "device.h"
#include "graph.h"
#include "modules.h"
#include "tasks.h"

namespace wengert::cuda {

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

// Two graphs of a program that run at once must not share memory: each stream has its own. Products in a graph have the
// algorithms that were chosen when it was made.
struct GraphsByStream : Prepared {
  using Key = std::pair<Stream, bool>;
  std::vector<std::pair<Key, std::unique_ptr<GraphCache>>> caches;
  GraphCache& of(const Key& wanted) {
    for (auto& [key, made] : caches)
      if (key == wanted) return *made;
    return *caches.emplace_back(wanted, std::make_unique<GraphCache>()).second;
  }
};

}  // namespace

bool CudaDevice::run_program(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out,
                             Value* const* donated, int given) {
  if (recording_ || !graphs || waits_for_ops || p.steps.size() < 2) return false;
  for (int i = 0; i < p.n_inputs; ++i) note_use(in[i]);
  auto& made = static_cast<GraphsByStream&>(p.prepared.find(id, [] { return std::make_unique<GraphsByStream>(); }));
  return made.of({stream(), fixed_algorithms}).run(*this, p, in, leaf_sizes, out, donated, given);
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

}  // namespace wengert::cuda
