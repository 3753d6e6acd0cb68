// NVIDIA's driver and run-time compiler, played by the CPU, for tests on machines without a GPU: memory is the host's,
// "machine code" is the path of a shared library that g++ made of the kernel with emulator.h, launches run at once, and
// graphs are lists of launches. Built as libcuda.so.1 and as libnvrtc.so.13. What is wrong with a capture is an error here,
// too: host copies and waits are refused while one is under way.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Run = void (*)(const void* words, int64_t grid, int block);

struct Kernel {
  Run run;
  size_t words;
};
struct Node {
  Kernel* kernel;
  unsigned grid, block;
  std::vector<int64_t> words;
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

constexpr int kInvalid = 1, kOutOfMemory = 2, kCaptureUnsupported = 900;
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
API cuEventSynchronize(void*) { return 0; }
API cuEventElapsedTime(float* ms, void*, void*) { return *ms = 0, 0; }
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
  if (p->function != to.kernel || p->grid_x != to.grid || p->block_x != to.block) return kInvalid;
  std::memcpy(to.words.data(), p->parameters[0], to.words.size() * sizeof(int64_t));
  return 0;
}
API cuGraphLaunch(Exec* exec, void*) {
  if (capturing) return kInvalid;
  for (Node* n : exec->order) {
    const Node& now = exec->nodes.at(n);
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
API cuModuleGetFunction(Kernel** kernel, void* module, const char*) {
  auto* words = static_cast<size_t*>(dlsym(module, "n_words"));
  *kernel = new Kernel{reinterpret_cast<Run>(dlsym(module, "run_kernel")), *words};
  return 0;
}
API cuLaunchKernel(Kernel* k, unsigned grid, unsigned, unsigned, unsigned block, unsigned, unsigned, unsigned, void*,
                   void** parameters, void**) {
  const auto* words = static_cast<const int64_t*>(parameters[0]);
  if (capturing) {
    capturing->nodes.push_back(std::make_unique<Node>(Node{k, grid, block, {words, words + k->words}}));
    return 0;
  }
  return k->run(words, grid, static_cast<int>(block)), 0;
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
  const size_t at = p->source.find("Words<") + 6;
  const std::string words = p->source.substr(at, p->source.find('>', at) - at);
  std::ofstream(base + ".cpp") << "#include \"emulator.h\"\n"
                               << p->source << "\nextern \"C\" size_t n_words = " << words
                               << ";\nextern \"C\" void run_kernel(const void* words, int64_t grid, int block) {\n"
                               << "  emulator::run([](const void* w) { kernel(*static_cast<const Words<" << words
                               << ">*>(w)); }, words, grid, block);\n}\n";
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
