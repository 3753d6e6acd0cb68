// NVIDIA's driver and libraries, opened when a GPU is first asked for and never linked: one build serves machines with
// and without them. The few types and functions that we call are declared here, so that building needs no CUDA either.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace wengert::cuda {

// The driver's handles.
using Status = int;
using Address = unsigned long long;
using Context = struct CUctx_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using Graph = struct CUgraph_st*;
using GraphNode = struct CUgraphNode_st*;
using GraphExec = struct CUgraphExec_st*;

inline constexpr Status kOutOfMemory = 2;

struct LaunchAttribute {  // CUlaunchAttribute
  int id, padding;
  int value[16];
};
struct LaunchConfig {  // CUlaunchConfig
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned n_attributes;
};
struct KernelNodeParams {  // CUDA_KERNEL_NODE_PARAMS_v2
  Function function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void** parameters;
  void** extra;
  void* kernel;
  Context context;
};

#define WENGERT_CUDA_DRIVER(X)                                                                                    \
  X(cuInit, (unsigned flags))                                                                                     \
  X(cuDriverGetVersion, (int* version))                                                                           \
  X(cuDeviceGetCount, (int* count))                                                                               \
  X(cuDeviceGet, (int* device, int ordinal))                                                                      \
  X(cuDeviceGetName, (char* name, int length, int device))                                                        \
  X(cuDeviceGetAttribute, (int* value, int attribute, int device))                                                \
  X(cuDevicePrimaryCtxRetain, (Context * context, int device))                                                    \
  X(cuCtxSetCurrent, (Context context))                                                                           \
  X(cuCtxPushCurrent_v2, (Context context))                                                                       \
  X(cuCtxPopCurrent_v2, (Context * context))                                                                      \
  X(cuCtxSynchronize, ())                                                                                         \
  X(cuPointerGetAttribute, (void* value, int attribute, Address address))                                         \
  X(cuMemGetInfo_v2, (size_t* free, size_t* total))                                                               \
  X(cuMemAlloc_v2, (Address * address, size_t bytes))                                                             \
  X(cuMemFree_v2, (Address address))                                                                              \
  X(cuMemAllocHost_v2, (void** address, size_t bytes))                                                            \
  X(cuMemHostAlloc, (void** address, size_t bytes, unsigned flags))                                               \
  X(cuMemFreeHost, (void* address))                                                                               \
  X(cuMemcpyHtoDAsync_v2, (Address to, const void* from, size_t bytes, Stream stream))                            \
  X(cuMemcpyDtoHAsync_v2, (void* to, Address from, size_t bytes, Stream stream))                                  \
  X(cuMemcpyDtoDAsync_v2, (Address to, Address from, size_t bytes, Stream stream))                                \
  X(cuMemcpyPeerAsync, (Address to, Context to_gpu, Address from, Context from_gpu, size_t bytes, Stream stream)) \
  X(cuMemsetD8Async, (Address to, unsigned char value, size_t n, Stream stream))                                  \
  X(cuStreamCreate, (Stream * stream, unsigned flags))                                                            \
  X(cuStreamCreateWithPriority, (Stream * stream, unsigned flags, int priority))                                  \
  X(cuStreamQuery, (Stream stream))                                                                               \
  X(cuStreamSynchronize, (Stream stream))                                                                         \
  X(cuStreamBeginCapture_v2, (Stream stream, int mode))                                                           \
  X(cuStreamEndCapture, (Stream stream, Graph * graph))                                                           \
  X(cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))                                              \
  X(cuEventCreate, (Event * event, unsigned flags))                                                               \
  X(cuEventRecord, (Event event, Stream stream))                                                                  \
  X(cuEventQuery, (Event event))                                                                                  \
  X(cuEventSynchronize, (Event event))                                                                            \
  X(cuEventElapsedTime, (float* milliseconds, Event from, Event to))                                              \
  X(cuEventDestroy_v2, (Event event))                                                                             \
  X(cuGraphInstantiateWithFlags, (GraphExec * exec, Graph graph, unsigned long long flags))                       \
  X(cuGraphGetNodes, (Graph graph, GraphNode * nodes, size_t* count))                                             \
  X(cuGraphNodeGetType, (GraphNode node, int* type))                                                              \
  X(cuGraphKernelNodeGetParams_v2, (GraphNode node, KernelNodeParams * params))                                   \
  X(cuGraphExecKernelNodeSetParams_v2, (GraphExec exec, GraphNode node, const KernelNodeParams* params))          \
  X(cuGraphLaunch, (GraphExec exec, Stream stream))                                                               \
  X(cuGraphExecDestroy, (GraphExec exec))                                                                         \
  X(cuGraphDestroy, (Graph graph))                                                                                \
  X(cuModuleLoadData, (Module * module, const void* image))                                                       \
  X(cuModuleGetFunction, (Function * function, Module module, const char* name))                                  \
  X(cuFuncSetAttribute, (Function function, int attribute, int value))                                            \
  X(cuLaunchKernelEx, (const LaunchConfig* config, Function function, void** parameters, void** extra))           \
  X(cuLaunchKernel,                                                                                               \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,    \
     unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters, void** extra))                    \
  X(cuGetErrorName, (Status status, const char** name))                                                           \
  X(cuGetErrorString, (Status status, const char** text))

using CompilerProgram = struct _nvrtcProgram*;

#define WENGERT_CUDA_COMPILER(X)                                                                         \
  X(nvrtcVersion, (int* major, int* minor))                                                              \
  X(nvrtcCreateProgram, (CompilerProgram * program, const char* source, const char* name, int n_headers, \
                         const char* const* headers, const char* const* header_names))                   \
  X(nvrtcCompileProgram, (CompilerProgram program, int n_options, const char* const* options))           \
  X(nvrtcGetProgramLogSize, (CompilerProgram program, size_t* bytes))                                    \
  X(nvrtcGetProgramLog, (CompilerProgram program, char* log))                                            \
  X(nvrtcGetCUBINSize, (CompilerProgram program, size_t* bytes))                                         \
  X(nvrtcGetCUBIN, (CompilerProgram program, char* cubin))                                               \
  X(nvrtcDestroyProgram, (CompilerProgram * program))

struct BlasHeuristic {  // cublasLtMatmulHeuristicResult_t
  uint64_t algorithm[8];
  size_t workspace;
  Status status;
  float waves;
  int reserved[4];
};

// cublasLtGetVersion returns a size_t, of which an int has enough.
#define WENGERT_CUDA_BLAS(X)                                                                                           \
  X(cublasLtGetVersion, ())                                                                                            \
  X(cublasLtCreate, (void** handle))                                                                                   \
  X(cublasLtMatmulDescCreate, (void** description, int compute_type, int scale_type))                                  \
  X(cublasLtMatmulDescSetAttribute, (void* description, int attribute, const void* value, size_t bytes))               \
  X(cublasLtMatmulDescDestroy, (void* description))                                                                    \
  X(cublasLtMatrixLayoutCreate, (void** layout, int type, uint64_t rows, uint64_t cols, int64_t leading))              \
  X(cublasLtMatrixLayoutSetAttribute, (void* layout, int attribute, const void* value, size_t bytes))                  \
  X(cublasLtMatrixLayoutDestroy, (void* layout))                                                                       \
  X(cublasLtMatmulPreferenceCreate, (void** preference))                                                               \
  X(cublasLtMatmulPreferenceSetAttribute, (void* preference, int attribute, const void* value, size_t bytes))          \
  X(cublasLtMatmulPreferenceDestroy, (void* preference))                                                               \
  X(cublasLtMatmulAlgoGetHeuristic, (void* handle, void* description, void* a, void* b, void* c, void* d,              \
                                     void* preference, int wanted, BlasHeuristic* results, int* found))                \
  X(cublasLtMatmul, (void* handle, void* description, const void* alpha, const void* a, void* a_layout, const void* b, \
                     void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,         \
                     const uint64_t* algorithm, void* workspace, size_t workspace_bytes, Stream stream))

#define WENGERT_MEMBER(name, parameters) Status(*name) parameters;
struct Driver {
  int version;  // of CUDA, such as 13000
  WENGERT_CUDA_DRIVER(WENGERT_MEMBER)
};
struct Compiler {
  std::string version;  // such as "13.0"
  WENGERT_CUDA_COMPILER(WENGERT_MEMBER)
};
struct Blas {
  WENGERT_CUDA_BLAS(WENGERT_MEMBER)
};
#undef WENGERT_MEMBER

// Folders in which Python packages of NVIDIA lie (site-packages/nvidia): set before anything is opened.
void set_library_folders(std::vector<std::string> folders);

// Each is opened once; a device error says what is missing and how to install it. The compiler and BLAS are chosen to
// fit the driver, where there is one.
const Driver& driver();
const Compiler& compiler();
const Blas& blas();

// Why there is no GPU to be had; empty if there is one. Opens the driver, nothing else.
std::string why_unavailable();
int device_count();
// Whether the driver was opened by the process that this one was forked from: it cannot be used here.
bool in_forked_child();

// Throws a device error that names the call and the driver's reason. Out of memory is std::bad_alloc.
void check(Status status, const char* call);
inline void checked(Status status, const char* call) {
  if (status) [[unlikely]]
    check(status, call);
}

// Calls the driver, and throws if it fails.
#define WENGERT_CALL(name, ...) checked(driver().name(__VA_ARGS__), #name)

}  // namespace wengert::cuda
