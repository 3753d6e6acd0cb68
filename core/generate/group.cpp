#include <algorithm>

#include "inlined.h"
#include "writer.h"

namespace wengert::generate {

namespace {

using Kind = FusedInstruction::Kind;

// A processor works on several turns of a loop at once if they fit the window of instructions that it looks at. One
// turn of a long loop fills that window and waits for its own results, so long loops are cut.
constexpr int kLongWork = 8;   // of a function such as tanh, in additions
constexpr int kMostWork = 12;  // of one turn

// Splits a group into parts: instructions computed element by element in one loop, and single calls of core kernels on
// whole registers.
struct GroupWriter {
  Text& text;
  std::vector<Register>& registers;
  const std::vector<FusedInstruction>& code;
  int64_t rows, cols;
  int n_parts = 0;
  std::vector<int> part = {};        // by instruction
  std::vector<bool> is_call = {};    // by instruction
  std::vector<bool> in_memory = {};  // by register: whether anything outside the loop that makes it reads it

  int64_t extent(bool row) const { return row ? rows : rows * cols; }
  const Register& reg(int k) const { return registers[static_cast<size_t>(k)]; }
  bool over_rows(const FusedInstruction& i) const { return reg(i.out).row; }

  std::string functor(const FusedInstruction& i) const {
    const DType dtype = reg(i.in[i.n_in - 1]).dtype;
    if (i.kind == Kind::map) {
      const char* name = functor_of(i.op, dtype, extent(over_rows(i)) == 1);
      return name ? "map<op::" + std::string(name) + ", " + enumerator(dtype) + ">" : "";
    }
    if (i.kind == Kind::cast && !is_half(dtype) && !is_half(reg(i.out).dtype))
      return "convert<" + enumerator(dtype) + ", " + enumerator(reg(i.out).dtype) + ">";
    return i.kind == Kind::expand ? "expand" : "";
  }

  void find_parts() {
    std::vector<int> maker(registers.size(), -1);
    in_memory.assign(registers.size(), false);
    int work = 0;
    bool row = false;
    for (const FusedInstruction& i : code) {
      const bool call = functor(i).empty(), begins = part.empty() || is_call.back() || row != over_rows(i);
      const int more = i.kind == Kind::map && is_long(i.op) ? kLongWork : 1;
      work += more;
      if (call || begins || (work > kMostWork && extent(over_rows(i)) > 1)) {
        ++n_parts;
        work = more;
      }
      row = over_rows(i);
      part.push_back(n_parts - 1);
      is_call.push_back(call);
      for (int k = 0; k < i.n_in; ++k)
        if (call || maker[i.in[k]] != part.back() || i.kind == Kind::expand) in_memory[i.in[k]] = true;
      maker[i.out] = part.back();
      if (call || reg(i.out).output) in_memory[i.out] = true;
    }
  }

  // An array for each register that other parts read. When the last of them is done, another register has it.
  void place_arrays() {
    std::vector<int> last(registers.size(), -1);
    for (size_t t = 0; t < code.size(); ++t)
      for (int k = 0; k < code[t].n_in; ++k) last[code[t].in[k]] = part[t];
    std::vector<std::vector<int>> ends(static_cast<size_t>(n_parts));
    std::map<std::pair<DType, int64_t>, std::vector<std::string>> spare;
    for (size_t t = 0; t < code.size(); ++t) {
      if (t && part[t] != part[t - 1])
        for (int k : ends[static_cast<size_t>(part[t - 1])])
          spare[{reg(k).dtype, extent(reg(k).row)}].push_back(reg(k).array);
      const int out = code[t].out;
      Register& r = registers[static_cast<size_t>(out)];
      if (!in_memory[static_cast<size_t>(out)] || !r.array.empty()) continue;
      std::vector<std::string>& fitting = spare[{r.dtype, extent(r.row)}];
      if (fitting.empty()) {
        r.array = text.array(r.dtype, {extent(r.row)}).base;
      } else {
        r.array = fitting.back();
        fitting.pop_back();
      }
      if (last[out] >= 0) ends[static_cast<size_t>(last[out])].push_back(out);
    }
  }

  // An array of a register that has one element for all.
  std::string filled(int k) {
    const Register& r = reg(k);
    if (!r.array.empty()) return r.array;
    const std::string made = text.array(r.dtype, {extent(r.row)}).base;
    text.open_loop("i", extent(r.row));
    text.line(made + "[i] = " + r.one + ";");
    text.close();
    return made;
  }

  void write_call(const FusedInstruction& i) {
    const std::string n = number(extent(i.row)), out = reg(i.out).array;
    std::string in[3];
    for (int k = 0; k < i.n_in; ++k) in[k] = filled(i.in[k]);
    text.open();
    switch (i.kind) {
      case Kind::map: {
        std::string list;
        for (int k = 0; k < i.n_in; ++k) list += (k ? ", " : "") + in[k];
        text.line("const void* const in[] = {" + list + "};");
        const MapFn map = kernels().map[static_cast<int>(i.op)][static_cast<int>(reg(i.in[i.n_in - 1]).dtype)];
        text.line("reinterpret_cast<Map>(" + text.function(reinterpret_cast<const void*>(map)) + ")(" + out + ", in, " +
                  n + ");");
        break;
      }
      case Kind::cast:
        text.line("reinterpret_cast<Cast>(" + text.function(reinterpret_cast<const void*>(i.cast)) + ")(" + out + ", " +
                  in[0] + ", " + n + ");");
        break;
      default:
        text.line("reinterpret_cast<Reduce>(" + text.function(reinterpret_cast<const void*>(i.reduce)) + ")(" + out +
                  ", " + in[0] + ", " + number(rows) + ", " + number(cols) + ", " + number(cols) + ");");
    }
    text.close();
  }

  // Instructions [begin, end) are one loop.
  void write_loop(size_t begin, size_t end) {
    const bool row = over_rows(code[begin]), nested = !row && rows > 1 && cols > 1 && has_expand(begin, end);
    std::string index = "i";
    if (nested) {
      text.open_loop("r", rows);
      text.open_loop("c", cols);
      index = "r * " + number(cols) + " + c";
    } else {
      if (extent(row) > 1) text.line("#pragma GCC ivdep");
      text.open_loop("i", extent(row));
    }
    const std::string row_index = nested ? "r" : row || cols == 1 ? "i" : "0";
    std::vector<bool> loaded(registers.size(), false);
    for (size_t t = begin; t < end; ++t) {
      const FusedInstruction& i = code[t];
      for (int k = 0; k < i.n_in; ++k) load(i.in[k], i.kind == Kind::expand ? row_index : index, loaded);
      std::string arguments;
      for (int k = 0; k < i.n_in; ++k) arguments += (k ? ", r" : "r") + number(i.in[k]);
      const std::string name = "r" + number(i.out);
      const std::string value = i.kind == Kind::expand ? arguments : functor(i) + "(" + arguments + ")";
      text.line("const " + type_of(reg(i.out).dtype) + " " + name + " = " + value + ";");
      loaded[i.out] = true;
      if (in_memory[i.out]) text.line(stored(reg(i.out).array, index) + " = " + name + ";");
    }
    text.close();
    if (nested) text.close();
  }

  static std::string stored(const std::string& array, const std::string& index) {
    return "(" + array + ")[" + index + "]";
  }

  bool has_expand(size_t begin, size_t end) const {
    return std::any_of(code.begin() + static_cast<ptrdiff_t>(begin), code.begin() + static_cast<ptrdiff_t>(end),
                       [](const FusedInstruction& i) { return i.kind == Kind::expand; });
  }

  void load(int k, const std::string& index, std::vector<bool>& loaded) {
    if (loaded[k]) return;
    loaded[k] = true;
    const Register& r = reg(k);
    text.line("const " + type_of(r.dtype) + " r" + number(k) + " = " +
              (r.one.empty() ? stored(r.array, index) : r.one) + ";");
  }

  void write() {
    find_parts();
    place_arrays();
    for (size_t t = 0; t < code.size();) {
      if (is_call[t]) {
        write_call(code[t++]);
        continue;
      }
      size_t end = t;
      while (end < code.size() && part[end] == part[t]) ++end;
      if (extent(over_rows(code[t])) > 0) write_loop(t, end);
      t = end;
    }
  }
};

}  // namespace

void write_group(Text& text, std::vector<Register>& registers, const std::vector<FusedInstruction>& code, int64_t rows,
                 int64_t cols) {
  GroupWriter{text, registers, code, rows, cols}.write();
}

}  // namespace wengert::generate
