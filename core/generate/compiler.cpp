#include "compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "../code_cache.h"

extern char** environ;

namespace wengert::generate {

namespace {

namespace fs = std::filesystem;

constexpr char kKind[] = "cpu";
constexpr size_t kMostLog = 2000;  // characters of the log quoted in messages

std::atomic<pid_t> running = 0;
std::atomic<bool> stopped = false;
std::atomic<int64_t> n_compiled = 0, n_read = 0;

// ------------------------------------------------------------------------------------------------------ the compiler

std::string in_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const std::string file = folder + "/" + name; access(file.c_str(), X_OK) == 0) return file;
  return "";
}

// $CXX, which may include arguments, or the first compiler found. Empty if there is none.
std::vector<std::string> find_compiler() {
  const char* chosen = std::getenv("CXX");
  if (chosen && *chosen) {
    std::istringstream words(chosen);
    std::vector<std::string> command;
    for (std::string word; words >> word;) command.push_back(word);
    if (const std::string file = command.empty() ? "" : in_path(command[0]); !file.empty()) {
      command[0] = file;
      return command;
    }
    throw CompilerFailed(std::string("the C++ compiler $CXX, ") + chosen + ", is not there");
  }
  for (const char* name : {"c++", "g++", "clang++"})
    if (const std::string file = in_path(name); !file.empty()) return {file};
  throw CompilerFailed("there is no C++ compiler in $PATH, and $CXX names none");
}

std::vector<std::string> options() {
  // As the vector kernels are compiled: no contraction, no fast-math. Numbers of 16 bits are left to the kernels.
  std::vector<std::string> list = {"-std=c++20",
                                   "-O3",
                                   "-fPIC",
                                   "-shared",
                                   "-ffp-contract=off",
                                   "-fno-math-errno",
                                   "-fno-trapping-math",
                                   "-fno-strict-aliasing",
                                   "-U__F16C__",
                                   "-DWENGERT_ISA_NAMESPACE=generated",
                                   "-w"};
  const std::string set = kernels().instruction_set;
  if (set != "base") list.push_back("-march=" + set);
  return list;
}

// A different compiler at the same path has a different modification time.
std::string identity(const std::vector<std::string>& command) {
  std::string all;
  for (const std::string& word : command) all += word + " ";
  struct stat s;
  if (stat(command[0].c_str(), &s) == 0) all += std::to_string(s.st_mtime) + " " + std::to_string(s.st_size);
  for (const std::string& o : options()) all += " " + o;
  return all;
}

// --------------------------------------------------------------------------------------------------------- the source

// Inserts the headers that the text includes: each once, but lists as often as they are included.
void put_in(const std::string& text, std::set<std::string>& done, std::string& all) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == "#pragma once") continue;
    constexpr char kInclude[] = "#include \"";
    const bool include = line.starts_with(kInclude);
    const std::string name = include ? line.substr(sizeof(kInclude) - 1, line.rfind('"') - sizeof(kInclude) + 1) : "";
    const Header* found = nullptr;
    for (const Header& h : code_headers())
      if (name == h.name) found = &h;
    if (!found)
      all += line + "\n";
    else if (name.ends_with(".def") || done.insert(name).second)
      put_in(found->text, done, all);
  }
}

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  return all.str();
}

// A temporary folder for one compilation, removed with its contents.
struct Folder {
  fs::path path;
  explicit Folder(const fs::path& in = {}) {
    std::error_code ignored;
    std::string name = ((in.empty() ? fs::temp_directory_path(ignored) : in) / "wengert-XXXXXX").string();
    if (ignored || !mkdtemp(name.data())) throw CompilerFailed("there is no folder for temporary files");
    path = name;
  }
  Folder(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// Runs a command in a new process group, so that all of it can be killed; its output goes to a file.
void run_command(const std::vector<std::string>& command, const fs::path& log) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;  // this thread has all signals blocked
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int failed = posix_spawn(&child, words[0], &files, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failed) throw CompilerFailed("the C++ compiler " + command[0] + " could not be started");
  running = child;
  if (stopped) kill(-child, SIGTERM);
  int status = 0;
  pid_t ended;
  do ended = waitpid(child, &status, 0);
  while (ended < 0 && errno == EINTR);
  running = 0;
  // Other code may have waited for all children; then the output file shows whether it succeeded.
  if (ended == child && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
    throw CompilerFailed("the C++ compiler " + command[0] + " failed:\n" + read_all(log).substr(0, kMostLog));
}

std::string compile_code(const std::vector<std::string>& compiler, const std::string& text) {
  const Folder folder;
  const fs::path source = folder.path / "program.cpp", result = folder.path / "program.so", log = folder.path / "log";
  std::string all;
  std::set<std::string> done;
  put_in(text, done, all);
  all += "extern \"C\" const char text_digest[] = \"" + digest(text) + "\";\n";
  if (std::ofstream file(source, std::ios::binary); !(file << all).flush())
    throw CompilerFailed("a temporary file could not be written");
  std::vector<std::string> command = compiler;
  for (std::string& o : options()) command.push_back(std::move(o));
  command.insert(command.end(), {source.string(), "-o", result.string()});
  run_command(command, log);
  std::string code = read_all(result);
  if (code.empty())
    throw CompilerFailed("the C++ compiler " + compiler[0] + " made nothing:\n" + read_all(log).substr(0, kMostLog));
  return code;
}

// ------------------------------------------------------------------------------------------------------- loading it

// Of a library that was loaded, which stays: functions are shared by all programs with the same text.
Function function_of(void* library, const std::string& text) {
  const auto* made_of = static_cast<const char*>(dlsym(library, "text_digest"));
  auto* f = reinterpret_cast<Function>(dlsym(library, "run"));
  if (!f || !made_of || digest(text) != made_of) throw CompilerFailed("generated code is that of another program");
  return f;
}

// Loads code through a temporary file, or through one in the cache if temporary files may not be executed.
Function load(const std::string& code, const std::string& text) {
  static std::atomic<int> count = 0;  // unique, because the loader identifies libraries by file name
  const std::string name = "program-" + std::to_string(getpid()) + "-" + std::to_string(++count) + ".so";
  std::string error;
  for (const bool in_cache : {false, true}) {
    if (in_cache && cache_folder().empty()) break;
    const Folder folder(in_cache ? fs::path(cache_folder()) : fs::path());
    const std::string path = (folder.path / name).string();
    if (std::ofstream file(path, std::ios::binary); !(file << code).flush())
      throw CompilerFailed("a temporary file could not be written");
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return function_of(library, text);
    error = dlerror();
  }
  throw CompilerFailed("generated code could not be loaded: " + error);
}

}  // namespace

CompilerCounters compiler_counters() { return {n_compiled, n_read}; }

void stop_compiler() {
  stopped = true;
  if (const pid_t child = running) kill(-child, SIGTERM);
}

void forget_compiler() { running = 0; }

Function compile(const std::string& text) {
  const std::vector<std::string> compiler = find_compiler();
  const std::string key = "wengert cpu code 3\n" + identity(compiler) + "\nheaders " + headers_digest() + "\n" + text;
  std::string code;
  if (read_cached(kKind, key, code)) {
    ++n_read;
    return load(code, text);
  }
  code = compile_code(compiler, text);
  ++n_compiled;
  const Function f = load(code, text);
  write_cached(kKind, key, code);
  return f;
}

}  // namespace wengert::generate
