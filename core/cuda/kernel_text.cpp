#include "kernel_text.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

namespace wengert::cuda {

namespace {

std::string text_of(int64_t n) { return std::to_string(n); }

std::set<std::string> headers_of(const Body& body) {
  std::set<std::string> headers = {body.header};
  if (body.series) headers.insert("device_series.h");
  return headers;
}

std::string includes(const std::set<std::string>& headers) {
  std::string text;
  for (const std::string& h : headers) text += "#include \"" + h + "\"\n";
  return text + "\nusing namespace wengert;\nusing namespace wengert::device;\n\n";
}

std::string function(const std::string& name, const Body& body) {
  return "WENGERT_INLINE void " + name + kBodyParameters + " " + body.text + "\n";
}

std::string head(const std::string& name, int block, int words, int resident = 1) {
  const std::string bounds = text_of(block) + (resident > 1 ? ", " + text_of(resident) : "");
  return "extern \"C\" __global__ void __launch_bounds__(" + bounds + ") " + name + "(const __grid_constant__ Words<" +
         text_of(words) + "> words) {\n  wait_for_launch_before();\n";
}

// Names of bodies; equal ones have one.
class Names {
 public:
  const std::string& of(const Body& body) {
    auto [found, added] = names_.try_emplace(body.text, "");
    if (added) {
      found->second = "body_" + text_of(static_cast<int64_t>(names_.size()) - 1);
      headers.merge(headers_of(body));
      functions += function(found->second, body);
    }
    return found->second;
  }
  std::set<std::string> headers;
  std::string functions;

 private:
  std::map<std::string, std::string> names_;
};

struct JoinedWriter {
  const JoinedKernel& kernel;
  Names& names;
  std::string text = {};
  size_t unit = 0;  // the next one
  int counts_at = static_cast<int>(kernel.units.size()), words_at = kernel.leading_words();

  static std::string word(int64_t k) { return "words.at[" + text_of(k) + "]"; }

  static std::string guarded(const Body& body, const std::string& call) {
    return body.block < JoinedKernel::kBlock ? "if (threadIdx.x < " + text_of(body.block) + ") " + call : call;
  }

  // Units of the same body beside each other: the same code for all.
  size_t equal_units() const {
    const std::vector<Unit>& units = kernel.units;
    if (units[unit].size() > 1) return 1;
    size_t n = 1;
    while (unit + n < units.size() && units[unit + n].size() == 1 && units[unit + n][0]->text == units[unit][0]->text)
      ++n;
    return n;
  }

  void write_blocks(size_t n) {
    const Body& body = *kernel.units[unit][0];
    const int64_t first = static_cast<int64_t>(unit);
    std::string at = text_of(words_at), start = word(first);
    if (n > 1) {
      text += "    int k = 0;\n    while (k + 1 < " + text_of(static_cast<int64_t>(n)) + " && block >= words.at[" +
              text_of(first + 1) + " + k]) ++k;\n";
      at += " + k * " + text_of(body.words);
      start = "words.at[" + text_of(first) + " + k]";
    }
    text += "    " + guarded(body, names.of(body) + "(words.at + " + at + ", block - " + start + ");\n");
    words_at += static_cast<int>(n) * body.words;
  }

  void write_sequence() {
    for (const Body* body : kernel.units[unit]) {
      text += "    for (int64_t b = 0; b < " + word(counts_at++) + "; ++b) {\n      " +
              guarded(*body, names.of(*body) + "(words.at + " + text_of(words_at) + ", b);\n") +
              "      __syncthreads();\n    }\n";
      words_at += body->words;
    }
  }

  std::string write(const std::string& name) {
    text = head(name, JoinedKernel::kBlock, kernel.words()) + "  const int64_t block = blockIdx.x;\n";
    while (unit < kernel.units.size()) {
      const size_t n = equal_units();
      const bool last = unit + n == kernel.units.size();
      text += last ? "  {\n" : "  if (block < " + word(static_cast<int64_t>(unit + n)) + ") {\n";
      kernel.units[unit].size() > 1 ? write_sequence() : write_blocks(n);
      text += last ? "  }\n" : "    return;\n  }\n";
      unit += n;
    }
    return text + "}\n";
  }
};

}  // namespace

std::string kernel_name(const std::string& text) {
  constexpr size_t kLongest = 80;
  std::string name;
  for (const char c : text) {
    const bool word = std::isalnum(static_cast<unsigned char>(c));
    if (word)
      name += c;
    else if (!name.empty() && name.back() != '_')
      name += '_';
  }
  name = name.substr(0, kLongest);
  return name + (name.ends_with('_') ? "kernel" : "_kernel");
}

std::string kernel_text(const Body& body) {
  return includes(headers_of(body)) + function("body", body) + "\n" +
         head(kernel_name(body.name), body.block, body.words, body.resident) + "  body(words.at, blockIdx.x);\n}\n";
}

std::string JoinedKernel::name(size_t number) const {
  std::string names;
  std::set<std::string> seen;
  for (const Unit& u : units)
    for (const Body* body : u)
      if (seen.insert(body->name).second) names += body->name + " ";
  return kernel_name(names) + "_" + text_of(static_cast<int64_t>(number));
}

int JoinedKernel::leading_words() const {
  size_t n = units.size();
  for (const Unit& u : units) n += u.size() > 1 ? u.size() : 0;
  return static_cast<int>(n);
}

int JoinedKernel::words() const {
  int n = leading_words();
  for (const Unit& u : units)
    for (const Body* body : u) n += body->words;
  return n;
}

std::string joined_text(const std::vector<JoinedKernel>& kernels) {
  Names names;
  std::string text;
  for (size_t k = 0; k < kernels.size(); ++k) text += "\n" + JoinedWriter{kernels[k], names}.write(kernels[k].name(k));
  return includes(names.headers) + names.functions + text;
}

}  // namespace wengert::cuda
