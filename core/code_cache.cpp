#include "code_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

namespace wengert {

namespace {

namespace fs = std::filesystem;

constexpr Header kHeaders[] = {
#include "device_headers.inc"
};

constexpr uint64_t kMostCacheBytes = uint64_t{512} << 20;

// Code is loaded only from files that nobody else can have written.
bool is_ours(const fs::path& path) {
  struct stat s;
  return stat(path.c_str(), &s) == 0 && (s.st_uid == geteuid() || s.st_uid == 0) && !(s.st_mode & (S_IWGRP | S_IWOTH));
}

fs::path place_of(const char* kind, const std::string& key) { return fs::path(cache_folder()) / kind / digest(key); }

// A file is the length of the key, the key and the code. One that does not fit is not there.
bool read_file(const fs::path& path, const std::string& key, std::string& code) {
  if (!is_ours(path)) return false;
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

}  // namespace

std::span<const Header> code_headers() { return kHeaders; }

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

bool read_cached(const char* kind, const std::string& key, std::string& code) {
  return !cache_folder().empty() && read_file(place_of(kind, key), key, code);
}

// Written beside its place and renamed, so that nobody reads half a file.
void write_cached(const char* kind, const std::string& key, const std::string& code) {
  if (cache_folder().empty()) return;
  const fs::path path = place_of(kind, key);
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  static std::atomic<int> written = 0;
  if (written++ % 64 == 0) trim(path.parent_path());
  const fs::path beside = path.string() + "." + std::to_string(getpid()) + "." + std::to_string(written);
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
  fs::permissions(beside, fs::perms::owner_read | fs::perms::owner_write, ignored);  // whatever the umask is
  fs::rename(beside, path, ignored);
  if (ignored) fs::remove(beside, ignored);
}

}  // namespace wengert
