// Machine code that is compiled at run time, kept on disk by content; and the headers that its sources include.
#pragma once
#include <span>
#include <string>

namespace wengert {

// The headers as text, by their names in #include. Written by tools/embed.py when we are built.
struct Header {
  const char* name;
  const char* text;
};
std::span<const Header> code_headers();
const std::string& headers_digest();

std::string digest(const std::string& text);  // 32 hexadecimal digits

// Where machine code is kept: $WENGERT_CACHE_DIR, or wengert/ in $XDG_CACHE_HOME or ~/.cache. Empty: nowhere.
std::string cache_folder();

// `kind` is a folder of the cache; `key`, everything that the code depends on. A file that is damaged, or that somebody
// else could have written, is not there; a disk that is full or read-only is no error.
bool read_cached(const char* kind, const std::string& key, std::string& code);
void write_cached(const char* kind, const std::string& key, const std::string& code);

}  // namespace wengert
