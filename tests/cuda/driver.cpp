// NVIDIA's driver, run-time compiler and matrix products, played by the CPU, for tests on machines without a GPU: memory is the host's,
// "machine code" is the path of a shared library that g++ made of the kernel with emulator.h, and graphs are lists of launches. Built as
// libcuda.so.1, libnvrtc.so.13 and libcublasLt.so.13.
//
// It is as late as a driver may be: what a stream is given runs when somebody waits for it, and not before, so that whoever reads without
// waiting reads what was there. What is wrong with a capture is an error here, too: host copies and waits are refused while one is under
// way. So is the memory of one GPU in a kernel of another; there are as many as WENGERT_EMULATED_GPUS says, or one, and each has
// WENGERT_EMULATED_MB of memory, or 1,024. Kernels with WENGERT_EMULATED_FAILURE in their names fail as those do that write to addresses
// which are not theirs.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Run = void (*)(const void* words, int64_t grid, int block);

struct Context {
  int ordinal = 0;
  size_t used = 0;
};
struct Stream {
  Context* context = nullptr;
  std::deque<std::function<void()>> queue;
  size_t given = 0, done = 0;

  void add(std::function<void()> work) {
    queue.push_back(std::move(work));
    ++given;
  }
  void run_until(size_t count) {
    while (done < count) {
      const std::function<void()> work = std::move(queue.front());
      queue.pop_front();
      ++done;
      work();
    }
  }
};
struct Event {
  Stream* stream = nullptr;
  size_t after = 0;
  float time = -1;
};
struct Block {
  Context* context;
  size_t bytes;
};

struct Kernel {
  Run run;
  size_t words;
  Context* context;
  unsigned most_shared = 48 << 10;  // bytes that a launch may give
  bool fails = false;
};
struct Node {
  Kernel* kernel;
  unsigned grid, block, shared;
  std::vector<int64_t> words;
  std::function<void()> work = nullptr;  // of a library, instead of a kernel
  void* parameter = nullptr;
};
struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
};
struct Exec {
  std::map<Node*, Node> nodes;
  std::vector<Node*> order;
};
struct KernelNodeParams {
  Kernel* function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void** parameters;
  void** extra;
  void* kernel;
  void* context;
};

constexpr int kInvalid = 1, kOutOfMemory = 2, kInvalidContext = 201, kNotFound = 500, kNotReady = 600, kIllegalAddress = 700,
              kCaptureUnsupported = 900;
constexpr size_t kMostWords = 512;  // of the parameters of a kernel: 4 KiB
const size_t memory = std::size_t{std::getenv("WENGERT_EMULATED_MB") ? std::strtoull(std::getenv("WENGERT_EMULATED_MB"), nullptr, 10) : 1024}
                      << 20;
bool broken = false;  // a kernel has failed: from then on every call does
Graph* capturing = nullptr;
Stream* captured = nullptr;
Context contexts[8];
thread_local Context* current = nullptr;
thread_local std::vector<Context*> pushed;
std::map<char*, Block> blocks;       // memory of the GPUs
std::map<char*, size_t> host_blocks;  // page-locked memory of the host
std::vector<Stream*> streams;
float now = 0;

Stream* stream_at(Stream* handle) {
  static Stream legacy, of_thread;
  if (handle > reinterpret_cast<Stream*>(2)) return handle;
  Stream* found = handle == reinterpret_cast<Stream*>(2) ? &of_thread : &legacy;
  if (!found->context) {
    found->context = &contexts[0];
    streams.push_back(found);
  }
  return found;
}

void run_everything() {
  for (Stream* s : streams) s->run_until(s->given);
}

template <class Blocks>
auto block_of(Blocks& all, const void* address) {
  auto* p = static_cast<char*>(const_cast<void*>(address));
  auto found = all.upper_bound(p);
  if (found == all.begin()) return all.end();
  --found;
  if constexpr (std::is_same_v<Blocks, std::map<char*, Block>>)
    return p < found->first + found->second.bytes ? found : all.end();
  else
    return p < found->first + found->second ? found : all.end();
}

bool is_elsewhere(int64_t word) {
  const auto found = block_of(blocks, reinterpret_cast<void*>(word));
  return found != blocks.end() && found->second.context != current;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int

API cuInit(unsigned) { return 0; }
API cuDriverGetVersion(int* v) {
  const char* version = std::getenv("WENGERT_EMULATED_VERSION");
  return *v = version ? std::atoi(version) : 13000, 0;
}
API cuDeviceGetCount(int* n) {
  const char* count = std::getenv("WENGERT_EMULATED_GPUS");
  return *n = count ? std::atoi(count) : 1, 0;
}
API cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
API cuDeviceGetName(char* name, int n, int) { return std::snprintf(name, static_cast<size_t>(n), "emulated GPU"), 0; }
API cuDeviceGetAttribute(int* value, int attribute, int) {
  static const std::map<int, int> known = {{75, 9}, {16, 132}, {10, 32}, {1, 1024}};
  return *value = known.contains(attribute) ? known.at(attribute) : 0, 0;
}
API cuDevicePrimaryCtxRetain(Context** c, int ordinal) { return contexts[ordinal].ordinal = ordinal, *c = &contexts[ordinal], 0; }
API cuCtxSetCurrent(Context* c) { return current = c, 0; }
API cuCtxPushCurrent_v2(Context* c) { return pushed.push_back(current), current = c, 0; }
API cuCtxPopCurrent_v2(Context** c) {
  if (pushed.empty()) return kInvalidContext;
  *c = current;
  return current = pushed.back(), pushed.pop_back(), 0;
}
API cuCtxSynchronize() { return capturing ? kCaptureUnsupported : (run_everything(), broken ? kIllegalAddress : 0); }
API cuMemGetInfo_v2(size_t* free, size_t* total) { return *free = memory - current->used, *total = memory, 0; }
API cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (current->used + bytes > memory) return kOutOfMemory;
  auto* p = static_cast<char*>(std::aligned_alloc(512, (bytes + 511) / 512 * 512));
  std::memset(p, 0xA5, bytes);
  current->used += bytes;
  blocks[p] = {current, bytes};
  *address = reinterpret_cast<uint64_t>(p);
  return 0;
}
API cuMemFree_v2(uint64_t address) {
  if (capturing) return kCaptureUnsupported;
  run_everything();
  auto found = blocks.find(reinterpret_cast<char*>(address));
  if (found == blocks.end()) return kInvalid;
  found->second.context->used -= found->second.bytes;
  std::memset(found->first, 0x5A, found->second.bytes);
  std::free(found->first);
  blocks.erase(found);
  return 0;
}
API cuMemHostAlloc(void** p, size_t bytes, unsigned) {
  *p = std::calloc(1, bytes);
  host_blocks[static_cast<char*>(*p)] = bytes;
  return 0;
}
API cuMemAllocHost_v2(void** p, size_t bytes) { return cuMemHostAlloc(p, bytes, 0); }
API cuMemFreeHost(void* p) {
  run_everything();
  host_blocks.erase(static_cast<char*>(p));
  return std::free(p), 0;
}
API cuPointerGetAttribute(void* value, int attribute, uint64_t address) {
  const void* p = reinterpret_cast<void*>(address);
  const bool host = block_of(host_blocks, p) != host_blocks.end();
  const auto found = block_of(blocks, p);
  if (!host && found == blocks.end()) return kInvalid;
  if (attribute == 2) return *static_cast<unsigned*>(value) = host ? 1 : 2, 0;
  return attribute == 9 ? (*static_cast<int*>(value) = host ? 0 : found->second.context->ordinal, 0) : kInvalid;
}
API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, Stream* s) {
  if (capturing) return kCaptureUnsupported;
  if (block_of(host_blocks, from) != host_blocks.end()) {  // read when it is its turn
    stream_at(s)->add([=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
    return 0;
  }
  const std::string staged(static_cast<const char*>(from), bytes);
  stream_at(s)->add([=] { std::memcpy(reinterpret_cast<void*>(to), staged.data(), bytes); });
  return 0;
}
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, Stream* handle) {
  if (capturing) return kCaptureUnsupported;
  Stream* s = stream_at(handle);
  s->add([=] { std::memcpy(to, reinterpret_cast<void*>(from), bytes); });
  if (block_of(host_blocks, to) == host_blocks.end()) s->run_until(s->given);
  return 0;
}
API cuMemcpyDtoDAsync_v2(uint64_t, uint64_t, size_t, void*) { return kInvalid; }
API cuMemcpyPeerAsync(uint64_t to, Context* there, uint64_t from, Context* here, size_t bytes, Stream* s) {
  if (capturing) return kCaptureUnsupported;
  const auto source = block_of(blocks, reinterpret_cast<void*>(from)), target = block_of(blocks, reinterpret_cast<void*>(to));
  if (source == blocks.end() || target == blocks.end() || source->second.context != here || target->second.context != there)
    return kIllegalAddress;
  stream_at(s)->add([=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes); });
  return 0;
}
API cuMemsetD8Async(uint64_t, unsigned char, size_t, void*) { return kInvalid; }
API cuStreamCreateWithPriority(Stream** s, unsigned, int) {
  *s = new Stream{current};
  streams.push_back(*s);
  return 0;
}
API cuStreamCreate(Stream** s, unsigned flags) { return cuStreamCreateWithPriority(s, flags, 0); }
API cuStreamSynchronize(Stream* handle) {
  if (capturing) return kCaptureUnsupported;
  Stream* s = stream_at(handle);
  return s->run_until(s->given), broken ? kIllegalAddress : 0;
}
API cuStreamQuery(Stream* handle) {  // does one thing each time, so that whoever asks again and again comes to an end
  Stream* s = stream_at(handle);
  if (s->done < s->given) s->run_until(s->done + 1);
  return s->done < s->given ? kNotReady : 0;
}
API cuStreamWaitEvent(Stream* s, Event* e, unsigned) {
  if (e->stream) stream_at(s)->add([other = e->stream, after = e->after] { other->run_until(after); });
  return 0;
}
API cuEventCreate(Event** e, unsigned) { return *e = new Event, 0; }
API cuEventRecord(Event* e, Stream* handle) {
  Stream* s = stream_at(handle);
  s->add([e] { e->time = ++now; });
  e->stream = s;
  e->after = s->given;
  return 0;
}
API cuEventQuery(Event* e) {
  if (!e->stream || e->stream->done >= e->after) return 0;
  e->stream->run_until(e->stream->done + 1);
  return e->stream->done >= e->after ? 0 : kNotReady;
}
API cuEventSynchronize(Event* e) {
  if (capturing) return kCaptureUnsupported;
  if (e->stream) e->stream->run_until(e->after);
  return 0;
}
API cuEventElapsedTime(float* ms, Event* from, Event* to) {
  if (capturing) return kCaptureUnsupported;
  for (Event* e : {from, to})
    if (!e->stream || e->stream->done < e->after) return kNotReady;
  return *ms = to->time - from->time, 0;
}
API cuEventDestroy_v2(Event* e) { return 0; }  // what was recorded still runs
API cuGetErrorName(int, const char** name) { return *name = "EMULATED_ERROR", 0; }
API cuGetErrorString(int, const char** text) { return *text = "an error of the emulated driver", 0; }

API cuStreamBeginCapture_v2(Stream* s, int) {
  if (capturing) return kInvalid;
  captured = s;
  return capturing = new Graph, 0;
}
API cuStreamEndCapture(Stream* s, Graph** graph) {
  if (s != captured) return kInvalid;
  return *graph = capturing, capturing = nullptr, 0;
}
API cuGraphGetNodes(Graph* g, Node** nodes, size_t* count) {
  for (size_t i = 0; nodes && i < g->nodes.size(); ++i) nodes[i] = g->nodes[i].get();
  return *count = g->nodes.size(), 0;
}
API cuGraphNodeGetType(Node*, int* type) { return *type = 0, 0; }
API cuGraphKernelNodeGetParams_v2(Node* n, KernelNodeParams* p) {
  *p = {};
  p->function = n->kernel;
  p->grid_x = n->grid;
  p->block_x = n->block;
  p->shared_bytes = n->shared;
  n->parameter = n->words.data();
  p->parameters = &n->parameter;
  return 0;
}
API cuGraphInstantiateWithFlags(Exec** exec, Graph* g, unsigned long long) {
  *exec = new Exec;
  for (auto& n : g->nodes) {
    (*exec)->order.push_back(n.get());
    (*exec)->nodes[n.get()] = *n;
  }
  return 0;
}
API cuGraphExecKernelNodeSetParams_v2(Exec* exec, Node* n, const KernelNodeParams* p) {
  Node& to = exec->nodes.at(n);
  if (p->function != to.kernel || p->grid_x != to.grid || p->block_x != to.block || p->shared_bytes != to.shared)
    return kInvalid;
  std::memcpy(to.words.data(), p->parameters[0], to.words.size() * sizeof(int64_t));
  return 0;
}
API cuGraphLaunch(Exec* exec, Stream* s) {
  if (capturing) return kInvalid;
  for (Node* n : exec->order) {
    const Node& node = exec->nodes.at(n);
    if (node.work)
      stream_at(s)->add(node.work);
    else
      stream_at(s)->add([node] { node.kernel->run(node.words.data(), node.grid, static_cast<int>(node.block)); });
  }
  return 0;
}
API cuGraphExecDestroy(Exec* e) { return delete e, 0; }  // what was launched has its own copy
API cuGraphDestroy(Graph* g) { return delete g, 0; }

API cuModuleLoadData(void** module, const void* image) {
  *module = dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
  return *module ? 0 : (std::fprintf(stderr, "%s\n", dlerror()), kInvalid);
}
API cuModuleGetFunction(Kernel** kernel, void* module, const char* name) {
  auto* words = static_cast<size_t*>(dlsym(module, ("words_of_" + std::string(name)).c_str()));
  if (!words) return kNotFound;
  *kernel = new Kernel{reinterpret_cast<Run>(dlsym(module, ("run_" + std::string(name)).c_str())), *words, current};
  const char* failing = std::getenv("WENGERT_EMULATED_FAILURE");
  (*kernel)->fails = failing && std::strstr(name, failing);
  return 0;
}
API cuFuncSetAttribute(Kernel* k, int attribute, int value) {
  constexpr int kMostDynamicShared = 8, kMost = 99 << 10;  // of the GPUs that have least
  if (attribute != kMostDynamicShared || value > kMost) return kInvalid;
  return k->most_shared = static_cast<unsigned>(value), 0;
}
API cuLaunchKernel(Kernel* k, unsigned grid, unsigned, unsigned, unsigned block, unsigned, unsigned, unsigned shared, Stream* handle,
                   void** parameters, void**) {
  if (broken) return kIllegalAddress;
  if (shared > k->most_shared) return kInvalid;
  const auto* first = static_cast<const int64_t*>(parameters[0]);
  const std::vector<int64_t> words(first, first + k->words);
  Stream* s = stream_at(handle);
  if (s->context != current || k->context != current) return kInvalidContext;
  for (int64_t word : words)
    if (is_elsewhere(word)) return kIllegalAddress;
  if (capturing && handle == captured)
    capturing->nodes.push_back(std::make_unique<Node>(Node{k, grid, block, shared, words}));
  else
    s->add([=] {
      broken = broken || k->fails;
      if (!broken) k->run(words.data(), grid, static_cast<int>(block));
    });
  return 0;
}

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream* stream;
  void* attributes;
  unsigned n_attributes;
};
API cuLaunchKernelEx(const LaunchConfig* c, Kernel* k, void** parameters, void** extra) {
  return cuLaunchKernel(k, c->grid_x, 1, 1, c->block_x, 1, 1, c->shared_bytes, c->stream, parameters, extra);
}

// ------------------------------------------------------------------------------------------------------ matrix products

namespace {

struct Layout {
  int type;
  int64_t rows, cols, leading;
  int32_t count = 1;
  int64_t stride = 0;
};
struct Description {
  int32_t transposed[2] = {};
};
constexpr int kReal32 = 0, kReal64 = 1, kNotSupported = 15;

template <class T>
void multiply(const Description& d, const T* a, const Layout& la, const T* b, const Layout& lb, T* c, const Layout& lc) {
  const int64_t inner = d.transposed[0] ? la.rows : la.cols;
  for (int64_t n = 0; n < lc.count; ++n)
    for (int64_t j = 0; j < lc.cols; ++j)
      for (int64_t i = 0; i < lc.rows; ++i) {
        T sum = 0;
        for (int64_t k = 0; k < inner; ++k)
          sum += a[n * la.stride + (d.transposed[0] ? i * la.leading + k : k * la.leading + i)] *
                 b[n * lb.stride + (d.transposed[1] ? k * lb.leading + j : j * lb.leading + k)];
        c[n * lc.stride + j * lc.leading + i] = sum;
      }
}

}  // namespace

API cublasLtGetVersion() { return 130000; }
API cublasLtCreate(void** handle) { return *handle = &blocks, 0; }
API cublasLtMatmulDescCreate(Description** d, int, int) { return *d = new Description, 0; }
API cublasLtMatmulDescSetAttribute(Description* d, int attribute, const void* value, size_t bytes) {
  return std::memcpy(&d->transposed[attribute - 3], value, bytes), 0;  // 3 and 4: of a, of b
}
API cublasLtMatmulDescDestroy(Description* d) { return delete d, 0; }
API cublasLtMatrixLayoutCreate(Layout** l, int type, uint64_t rows, uint64_t cols, int64_t leading) {
  if (leading < static_cast<int64_t>(rows)) return kInvalid;
  return *l = new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), leading}, 0;
}
API cublasLtMatrixLayoutSetAttribute(Layout* l, int attribute, const void* value, size_t bytes) {
  return std::memcpy(attribute == 5 ? static_cast<void*>(&l->count) : &l->stride, value, bytes), 0;
}
API cublasLtMatrixLayoutDestroy(Layout* l) { return delete l, 0; }
API cublasLtMatmulPreferenceCreate(void** p) { return *p = &blocks, 0; }
API cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return 0; }
API cublasLtMatmulPreferenceDestroy(void*) { return 0; }
API cublasLtMatmulAlgoGetHeuristic(void*, Description*, Layout* a, Layout*, Layout*, Layout*, void*, int, void*, int* found) {
  return *found = a->type == kReal32 || a->type == kReal64 ? 3 : 0, 0;  // which differ in nothing
}
API cublasLtMatmul(void*, Description* d, const void*, const void* a, Layout* la, const void* b, Layout* lb, const void*,
                   const void*, Layout*, void* c, Layout* lc, const uint64_t*, void*, size_t, Stream* s) {
  if (la->type != kReal32 && la->type != kReal64) return kNotSupported;
  const auto work = [=, d = *d, la = *la, lb = *lb, lc = *lc] {
    if (la.type == kReal32)
      multiply(d, static_cast<const float*>(a), la, static_cast<const float*>(b), lb, static_cast<float*>(c), lc);
    else
      multiply(d, static_cast<const double*>(a), la, static_cast<const double*>(b), lb, static_cast<double*>(c), lc);
  };
  if (capturing && s == captured)
    capturing->nodes.push_back(std::make_unique<Node>(Node{nullptr, 0, 0, 0, {}, work}));
  else
    stream_at(s)->add(work);
  return 0;
}

// ------------------------------------------------------------------------------------------------------------ compiler

namespace {

struct Program {
  std::string source, log, path;
};

}  // namespace

API nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
API nvrtcCreateProgram(Program** p, const char* source, const char*, int, const char* const*, const char* const*) {
  return *p = new Program{source, "", ""}, 0;
}
API nvrtcCompileProgram(Program* p, int, const char* const*) {
  static int count = 0;
  const char* folder = std::getenv("WENGERT_EMULATED_FOLDER");
  const std::string base = std::string(folder) + "/kernel_" + std::to_string(getpid()) + "_" + std::to_string(count++);
  std::ofstream file(base + ".cpp");
  file << "#include \"emulator.h\"\n" << p->source;
  const std::regex kernel("(\\w+)\\(const __grid_constant__ Words<(\\d+)>");
  for (std::sregex_iterator at(p->source.begin(), p->source.end(), kernel), end; at != end; ++at) {
    const std::string name = (*at)[1], words = (*at)[2];
    if (std::stoul(words) > kMostWords) return kInvalid;
    file << "\nextern \"C\" size_t words_of_" << name << " = " << words << ";\nextern \"C\" void run_" << name
         << "(const void* words, int64_t grid, int block) {\n  emulator::run([](const void* w) { " << name
         << "(*static_cast<const Words<" << words << ">*>(w)); }, words, grid, block);\n}\n";
  }
  file.close();
  const std::string command = std::string(std::getenv("WENGERT_EMULATED_COMPILER")) + " " + base + ".cpp -o " + base +
                              ".so > " + base + ".log 2>&1";
  p->path = base + ".so";
  if (std::system(command.c_str()) == 0) return 0;
  std::stringstream text;
  text << std::ifstream(base + ".log").rdbuf();
  p->log = text.str();
  return kInvalid;
}
API nvrtcGetProgramLogSize(Program* p, size_t* n) { return *n = p->log.size() + 1, 0; }
API nvrtcGetProgramLog(Program* p, char* log) { return std::strcpy(log, p->log.c_str()), 0; }
API nvrtcGetCUBINSize(Program* p, size_t* n) { return *n = p->path.size() + 1, 0; }
API nvrtcGetCUBIN(Program* p, char* code) { return std::strcpy(code, p->path.c_str()), 0; }
API nvrtcDestroyProgram(Program** p) { return delete *p, *p = nullptr, 0; }
