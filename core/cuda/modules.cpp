#include "modules.h"

#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "../error.h"

namespace wengert::cuda {

CodeCounters code_counters;

namespace {

namespace fs = std::filesystem;

// The headers that kernels include, as text: {name in #include, contents}. Written by tools/embed.py when we are built.
struct Header {
  const char* name;
  const char* text;
};
constexpr Header kHeaders[] = {
#include "device_headers.inc"
};

constexpr uint64_t kMostCacheBytes = uint64_t{512} << 20;
constexpr size_t kMostLog = 4000;  // of what an error message quotes
constexpr char kMagic[] = "wengert cuda code 1\n";

// FNV-1a, twice with different starts. Files are named by it; what they are for is compared in full.
std::string digest(const std::string& text) {
  uint64_t a = 0xcbf29ce484222325ull, b = 0x84222325cbf29ce4ull;
  for (const unsigned char c : text) {
    a = (a ^ c) * 0x100000001b3ull;
    b = (b ^ c ^ 0x5a) * 0x100000001b3ull;
  }
  char name[33];
  std::snprintf(name, sizeof(name), "%016llx%016llx", static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b));
  return name;
}

const std::string& headers_digest() {
  static const auto* of_all = new std::string([] {
    std::string all;
    for (const Header& h : kHeaders) all += std::string(h.name) + "\n" + h.text;
    return digest(all);
  }());
  return *of_all;
}

// Everything that the machine code depends on.
std::string key_of(const std::string& source, int architecture) {
  return std::string(kMagic) + "nvrtc " + compiler().version + " sm_" + std::to_string(architecture) + " headers " +
         headers_digest() + "\n" + source;
}

std::string compile(const std::string& source, int architecture) {
  const Compiler& c = compiler();
  std::vector<const char*> texts, names;
  for (const Header& h : kHeaders) {
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

// A file is the length of the key, the key and the code. One that does not fit is not there.
bool read_cached(const fs::path& path, const std::string& key, std::string& code) {
  std::ifstream file(path, std::ios::binary);
  uint64_t lengths[2] = {};
  if (!file.read(reinterpret_cast<char*>(lengths), sizeof(lengths)) || lengths[0] != key.size()) return false;
  if (lengths[1] > kMostCacheBytes) return false;
  std::string kept(key.size(), '\0');
  if (!file.read(kept.data(), static_cast<std::streamsize>(kept.size())) || kept != key) return false;
  code.resize(lengths[1]);
  if (!file.read(code.data(), static_cast<std::streamsize>(code.size()))) return false;
  std::string end(33, '\0');
  file.read(end.data(), 33);
  return file.gcount() == 32 && end.substr(0, 32) == digest(code);
}

// Removes the oldest files until half of the limit is left.
void trim(const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  uint64_t total = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    total += entry.file_size(ignored);
    files.emplace_back(entry.last_write_time(ignored), entry.path());
  }
  if (total <= kMostCacheBytes) return;
  std::sort(files.begin(), files.end());
  for (const auto& [time, path] : files) {
    if (total <= kMostCacheBytes / 2) break;
    total -= std::min<uint64_t>(total, fs::file_size(path, ignored));
    fs::remove(path, ignored);
  }
}

// Written beside its place and renamed, so that nobody reads half a file. A disk that is full or read-only is no error.
void write_cached(const fs::path& path, const std::string& key, const std::string& code) {
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  if (code_counters.compiled % 64 == 1) trim(path.parent_path());
  const fs::path beside = path.string() + "." + std::to_string(getpid());
  {
    std::ofstream file(beside, std::ios::binary);
    const uint64_t lengths[2] = {key.size(), code.size()};
    file.write(reinterpret_cast<const char*>(lengths), sizeof(lengths));
    file << key << code << digest(code);
    if (!file.flush()) {
      fs::remove(beside, ignored);
      return;
    }
  }
  fs::rename(beside, path, ignored);
  if (ignored) fs::remove(beside, ignored);
}

}  // namespace

std::string cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const char* own = std::getenv("WENGERT_CACHE_DIR")) return own;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/wengert";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/wengert";
  return "";
}

std::string machine_code(const std::string& source, int architecture) {
  const std::string key = key_of(source, architecture), folder = cache_folder();
  std::string code;
  if (folder.empty()) return compile(source, architecture);
  const fs::path path = fs::path(folder) / "cuda" / digest(key);
  if (read_cached(path, key, code)) {
    ++code_counters.read;
    return code;
  }
  code = compile(source, architecture);
  write_cached(path, key, code);
  return code;
}

}  // namespace wengert::cuda
