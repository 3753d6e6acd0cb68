#include "modules.h"

#include "../code_cache.h"
#include "../error.h"

namespace wengert::cuda {

CodeCounters code_counters;

namespace {

constexpr size_t kMostLog = 4000;  // of what an error message quotes
constexpr char kMagic[] = "wengert cuda code 1\n";

// Everything that the machine code depends on.
std::string key_of(const std::string& source, int architecture) {
  return std::string(kMagic) + "nvrtc " + compiler().version + " sm_" + std::to_string(architecture) + " headers " +
         headers_digest() + "\n" + source;
}

std::string compile(const std::string& source, int architecture) {
  const Compiler& c = compiler();
  std::vector<const char*> texts, names;
  for (const Header& h : code_headers()) {
    texts.push_back(h.text);
    names.push_back(h.name);
  }
  CompilerProgram program = nullptr;
  if (c.nvrtcCreateProgram(&program, source.c_str(), "kernel.cu", static_cast<int>(texts.size()), texts.data(),
                           names.data()))
    throw Error(ErrorKind::device, "cuda: NVRTC could not be started");
  // Products and sums are contracted where the functors say so, and nowhere else: results are those of the CPU.
  const std::string arch = "-arch=sm_" + std::to_string(architecture);
  const char* options[] = {arch.c_str(),
                           "-std=c++20",
                           "-default-device",
                           "-fmad=false",
                           "-diag-suppress=161",
                           "-DWENGERT_DEVICE_CODE",
                           "-DWENGERT_ISA_NAMESPACE=device"};
  const Status status = c.nvrtcCompileProgram(program, static_cast<int>(std::size(options)), options);
  std::string code;
  size_t bytes = 0;
  if (status) {
    c.nvrtcGetProgramLogSize(program, &bytes);
    std::string log(bytes, '\0');
    c.nvrtcGetProgramLog(program, log.data());
    c.nvrtcDestroyProgram(&program);
    throw Error(ErrorKind::device, "cuda: NVRTC " + c.version + " could not compile a kernel for sm_" +
                                       std::to_string(architecture) + ":\n" + log.substr(0, kMostLog) + "\n" +
                                       source.substr(0, kMostLog));
  }
  c.nvrtcGetCUBINSize(program, &bytes);
  code.resize(bytes);
  c.nvrtcGetCUBIN(program, code.data());
  c.nvrtcDestroyProgram(&program);
  ++code_counters.compiled;
  return code;
}

}  // namespace

std::string machine_code(const std::string& source, int architecture) {
  const std::string key = key_of(source, architecture);
  std::string code;
  if (read_cached("cuda", key, code)) {
    ++code_counters.read;
    return code;
  }
  code = compile(source, architecture);
  write_cached("cuda", key, code);
  return code;
}

}  // namespace wengert::cuda
