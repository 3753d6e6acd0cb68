#include "libraries.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "../error.h"

namespace wengert::cuda {

namespace {

constexpr int kOldestDriver = 12000;  // the first CUDA whose compiler reads C++20

std::vector<std::string>& folders() {
  static auto* list = new std::vector<std::string>;
  return *list;
}

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::device, "cuda: " + message); }

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::vector<std::string> matches(const std::string& pattern) {
  std::vector<std::string> found;
  glob_t result;
  if (glob(pattern.c_str(), 0, nullptr, &result) == 0) found.assign(result.gl_pathv, result.gl_pathv + result.gl_pathc);
  globfree(&result);
  return found;
}

// The number behind ".so.": 13 in libnvrtc.so.13, 12 in libnvrtc.so.12.9; 0 if there is none.
int major_of(const std::string& path) {
  const size_t at = path.rfind(".so.");
  return at == std::string::npos ? 0 : std::atoi(path.c_str() + at + 4);
}

// What a library of a wheel opens by name later on and would not find: the wheels tell the loader no folder.
void open_companions(const std::string& path, const char* companion) {
  const size_t slash = path.rfind('/');
  if (!companion || slash == std::string::npos) return;
  for (const std::string& found : matches(path.substr(0, slash + 1) + companion + ".so.*"))
    dlopen(found.c_str(), RTLD_NOW | RTLD_LOCAL);
}

// A library from NVIDIA's wheels or the system, the latest that the driver can work with.
void* open_library(const char* name, const char* package, const char* companion = nullptr) {
  std::vector<std::string> candidates;
  for (const std::string& folder : folders())
    for (const std::string& path : matches(folder + "/*/lib/" + name + ".so.*")) candidates.push_back(path);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const std::string& a, const std::string& b) { return major_of(a) > major_of(b); });
  const char* root = std::getenv("CUDA_HOME");
  for (const std::string& path : matches(std::string(root ? root : "/usr/local/cuda") + "/lib64/" + name + ".so.??"))
    candidates.push_back(path);
  for (int major : {13, 12}) candidates.push_back(std::string(name) + ".so." + std::to_string(major));
  const int newest = why_unavailable().empty() ? driver().version / 1000 : 1000;
  bool too_new = false;
  std::string reason;
  for (const std::string& path : candidates) {
    if (major_of(path) > newest) {
      too_new = true;
      continue;
    }
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      open_companions(path, companion);
      return library;
    }
    const char* text = dlerror();
    if (reason.empty() && path.find('/') != std::string::npos && text) reason = text;
  }
  const std::string extra = newest >= 13 ? "wengert[cuda]" : "wengert[cuda12]";
  refuse(std::string("there is no ") + name + (too_new ? " that the driver can work with" : "") + " (" + package +
         "); install it with pip install \"" + extra + "\"" + (reason.empty() ? "" : ": " + reason));
}

void* find_symbol(void* library, const char* symbol, const char* what) {
  void* found = dlsym(library, symbol);
  if (!found) refuse(std::string(what) + " has no " + symbol + "; install a newer one");
  return found;
}

struct DriverState {
  Driver driver = {};
  std::string problem;  // why it cannot be used
  int devices = 0;
};

bool forked = false;

DriverState open_driver() {
  DriverState state;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    state.problem = "this machine has no NVIDIA driver (libcuda.so.1 cannot be opened)";
    return state;
  }
  Driver& d = state.driver;
  std::string missing;
#define WENGERT_FIND(name, parameters)                                    \
  d.name = reinterpret_cast<Status(*) parameters>(dlsym(library, #name)); \
  if (!d.name) missing = #name;
  WENGERT_CUDA_DRIVER(WENGERT_FIND)
#undef WENGERT_FIND
  if (d.cuDriverGetVersion) d.cuDriverGetVersion(&d.version);
  if (d.version && d.version < kOldestDriver) {
    state.problem = "the driver is for CUDA " + version_text(d.version) + ", which is too old; CUDA " +
                    version_text(kOldestDriver) + " or later is needed: update the driver";
    return state;
  }
  if (!missing.empty()) {
    state.problem = "the driver has no " + missing + ": update it";
    return state;
  }
  const Status status = d.cuInit(0);
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  if (status == 0) d.cuDeviceGetCount(&state.devices);
  if (status != 0 || state.devices == 0) {
    const char* name = nullptr;
    if (status) d.cuGetErrorName(status, &name);
    state.problem = std::string("the driver finds no GPU") + (name ? std::string(" (") + name + ")" : "");
  }
  return state;
}

const DriverState& driver_state() {
  static const auto* state = new DriverState(open_driver());
  return *state;
}

Compiler open_compiler() {
  void* library = open_library("libnvrtc", "NVIDIA's run-time compiler", "libnvrtc-builtins");
  Compiler c = {};
#define WENGERT_FIND(name, parameters) \
  c.name = reinterpret_cast<Status(*) parameters>(find_symbol(library, #name, "libnvrtc"));
  WENGERT_CUDA_COMPILER(WENGERT_FIND)
#undef WENGERT_FIND
  int major = 0, minor = 0;
  c.nvrtcVersion(&major, &minor);
  c.version = std::to_string(major) + "." + std::to_string(minor);
  return c;
}

Blas open_blas() {
  void* library = open_library("libcublasLt", "NVIDIA's matrix products");
  Blas b = {};
#define WENGERT_FIND(name, parameters) \
  b.name = reinterpret_cast<Status(*) parameters>(find_symbol(library, #name, "libcublasLt"));
  WENGERT_CUDA_BLAS(WENGERT_FIND)
#undef WENGERT_FIND
  return b;
}

}  // namespace

void set_library_folders(std::vector<std::string> list) { folders() = std::move(list); }

std::string why_unavailable() { return driver_state().problem; }

bool in_forked_child() { return forked; }

int device_count() { return driver_state().devices; }

const Driver& driver() {
  const DriverState& state = driver_state();
  if (!state.problem.empty()) refuse(state.problem);
  return state.driver;
}

const Compiler& compiler() {
  static const auto* opened = new Compiler(open_compiler());
  return *opened;
}

const Blas& blas() {
  static const auto* opened = new Blas(open_blas());
  return *opened;
}

void check(Status status, const char* call) {
  if (status == kOutOfMemory) throw std::bad_alloc();
  const char *name = nullptr, *text = nullptr;
  driver().cuGetErrorName(status, &name);
  driver().cuGetErrorString(status, &text);
  // Errors of kernels are reported by whatever comes next, and end the process's work on the GPU.
  constexpr Status kOfKernels[] = {700, 702, 710, 714, 715, 716, 717, 718, 719};
  const bool of_kernel = std::find(std::begin(kOfKernels), std::end(kOfKernels), status) != std::end(kOfKernels);
  refuse(std::string(call) + " failed: " + (text ? text : "unknown error") + " (" +
         (name ? name : std::to_string(status)) + ")" +
         (of_kernel ? "; a kernel that was started before has failed, and this process cannot use the GPU any more. "
                      "Start it again with wg.cuda.set_blocking(True) or inside wg.detect_anomaly(), which wait for "
                      "each operation and name the one that fails"
                    : ""));
}

}  // namespace wengert::cuda
