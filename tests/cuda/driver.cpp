// NVIDIA's driver, run-time compiler and matrix products, played by the CPU, for tests on machines without a GPU: memory is the host's,
// "machine code" is the path of a shared library that g++ made of the kernel with emulator.h, launches run at once, and
// graphs are lists of launches. Built as libcuda.so.1, libnvrtc.so.13 and libcublasLt.so.13. What is wrong with a capture is an error here,
// too: host copies and waits are refused while one is under way.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

struct Kernel {
  Run run;
  size_t words;
  unsigned most_shared = 48 << 10;  // bytes that a launch may give
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

constexpr int kInvalid = 1, kOutOfMemory = 2, kNotFound = 500, kCaptureUnsupported = 900;
constexpr size_t kMostWords = 512;  // of the parameters of a kernel: 4 KiB
constexpr size_t kMemory = size_t{1} << 30;
Graph* capturing = nullptr;
size_t used = 0;
std::map<void*, size_t> blocks;

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int

API cuInit(unsigned) { return 0; }
API cuDriverGetVersion(int* v) { return *v = 13000, 0; }
API cuDeviceGetCount(int* n) { return *n = 1, 0; }
API cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
API cuDeviceGetName(char* name, int n, int) { return std::snprintf(name, static_cast<size_t>(n), "emulated GPU"), 0; }
API cuDeviceGetAttribute(int* value, int attribute, int) { return *value = attribute == 75 ? 9 : 0, 0; }
API cuDevicePrimaryCtxRetain(void** c, int) { return *c = &used, 0; }
API cuCtxSetCurrent(void*) { return 0; }
API cuMemGetInfo_v2(size_t* free, size_t* total) { return *free = kMemory - used, *total = kMemory, 0; }
API cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (used + bytes > kMemory) return kOutOfMemory;
  void* p = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(p, 0xA5, bytes);
  used += bytes;
  blocks[p] = bytes;
  *address = reinterpret_cast<uint64_t>(p);
  return 0;
}
API cuMemFree_v2(uint64_t address) {
  void* p = reinterpret_cast<void*>(address);
  used -= blocks[p];
  std::memset(p, 0x5A, blocks[p]);
  blocks.erase(p);
  std::free(p);
  return 0;
}
API cuMemAllocHost_v2(void** p, size_t bytes) { return *p = std::calloc(1, bytes), 0; }
API cuMemFreeHost(void* p) { return std::free(p), 0; }
API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
  if (capturing) return kCaptureUnsupported;
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), 0;
}
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
  if (capturing) return kCaptureUnsupported;
  return std::memcpy(to, reinterpret_cast<void*>(from), bytes), 0;
}
API cuMemcpyDtoDAsync_v2(uint64_t, uint64_t, size_t, void*) { return kInvalid; }
API cuMemsetD8Async(uint64_t, unsigned char, size_t, void*) { return kInvalid; }
API cuStreamCreate(void** s, unsigned) { return *s = &blocks, 0; }
API cuStreamSynchronize(void*) { return capturing ? kCaptureUnsupported : 0; }
API cuStreamWaitEvent(void*, void*, unsigned) { return 0; }
API cuEventCreate(void** e, unsigned) { return *e = &blocks, 0; }
API cuEventRecord(void*, void*) { return 0; }
API cuEventSynchronize(void*) { return capturing ? kCaptureUnsupported : 0; }
API cuEventElapsedTime(float* ms, void*, void*) { return capturing ? kCaptureUnsupported : (*ms = 1, 0); }
API cuEventDestroy_v2(void*) { return 0; }
API cuGetErrorName(int, const char** name) { return *name = "EMULATED_ERROR", 0; }
API cuGetErrorString(int, const char** text) { return *text = "an error of the emulated driver", 0; }

API cuStreamBeginCapture_v2(void*, int) {
  if (capturing) return kInvalid;
  return capturing = new Graph, 0;
}
API cuStreamEndCapture(void*, Graph** graph) { return *graph = capturing, capturing = nullptr, 0; }
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
API cuGraphLaunch(Exec* exec, void*) {
  if (capturing) return kInvalid;
  for (Node* n : exec->order) {
    const Node& now = exec->nodes.at(n);
    if (now.work)
      now.work();
    else
      now.kernel->run(now.words.data(), now.grid, static_cast<int>(now.block));
  }
  return 0;
}
API cuGraphExecDestroy(Exec* e) { return delete e, 0; }
API cuGraphDestroy(Graph* g) { return delete g, 0; }

API cuModuleLoadData(void** module, const void* image) {
  *module = dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
  return *module ? 0 : (std::fprintf(stderr, "%s\n", dlerror()), kInvalid);
}
API cuModuleGetFunction(Kernel** kernel, void* module, const char* name) {
  auto* words = static_cast<size_t*>(dlsym(module, ("words_of_" + std::string(name)).c_str()));
  if (!words) return kNotFound;
  *kernel = new Kernel{reinterpret_cast<Run>(dlsym(module, ("run_" + std::string(name)).c_str())), *words};
  return 0;
}
API cuFuncSetAttribute(Kernel* k, int attribute, int value) {
  constexpr int kMostDynamicShared = 8, kMost = 99 << 10;  // of the GPUs that have least
  if (attribute != kMostDynamicShared || value > kMost) return kInvalid;
  return k->most_shared = static_cast<unsigned>(value), 0;
}
API cuLaunchKernel(Kernel* k, unsigned grid, unsigned, unsigned, unsigned block, unsigned, unsigned, unsigned shared, void*,
                   void** parameters, void**) {
  if (shared > k->most_shared) return kInvalid;
  const auto* words = static_cast<const int64_t*>(parameters[0]);
  if (capturing) {
    capturing->nodes.push_back(std::make_unique<Node>(Node{k, grid, block, shared, {words, words + k->words}}));
    return 0;
  }
  return k->run(words, grid, static_cast<int>(block)), 0;
}

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void* stream;
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
API cublasLtCreate(void** handle) { return *handle = &used, 0; }
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
API cublasLtMatmulPreferenceCreate(void** p) { return *p = &used, 0; }
API cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return 0; }
API cublasLtMatmulPreferenceDestroy(void*) { return 0; }
API cublasLtMatmulAlgoGetHeuristic(void*, Description*, Layout* a, Layout*, Layout*, Layout*, void*, int, void*, int* found) {
  return *found = a->type == kReal32 || a->type == kReal64 ? 3 : 0, 0;  // which differ in nothing
}
API cublasLtMatmul(void*, Description* d, const void*, const void* a, Layout* la, const void* b, Layout* lb, const void*,
                   const void*, Layout*, void* c, Layout* lc, const uint64_t*, void*, size_t, void*) {
  if (la->type != kReal32 && la->type != kReal64) return kNotSupported;
  const auto work = [=] {
    if (la->type == kReal32)
      multiply(*d, static_cast<const float*>(a), *la, static_cast<const float*>(b), *lb, static_cast<float*>(c), *lc);
    else
      multiply(*d, static_cast<const double*>(a), *la, static_cast<const double*>(b), *lb, static_cast<double*>(c), *lc);
  };
  if (capturing)
    capturing->nodes.push_back(std::make_unique<Node>(Node{nullptr, 0, 0, 0, {}, work}));
  else
    work();
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
