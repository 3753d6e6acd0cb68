#include <algorithm>

#include "inlined.h"
#include "writer.h"

namespace wengert::generate {

namespace {

using Kind = FusedInstruction::Kind;

// Splits a group into parts: instructions computed element by element in one loop, and calls of core kernels on whole
// registers.
struct GroupWriter {
  Text& text;
  std::vector<Register>& registers;
  const std::vector<FusedInstruction>& code;
  int64_t rows, cols;
  std::vector<int> part = {};        // by instruction: its loop; -1: a call
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
    std::vector<int> maker(registers.size(), -2);
    in_memory.assign(registers.size(), false);
    int current = -1, next = 0;
    bool row = false;
    for (const FusedInstruction& i : code) {
      const bool call = functor(i).empty();
      if (call)
        current = -1;
      else if (current < 0 || row != over_rows(i))
        current = next++;
      row = over_rows(i);
      for (int k = 0; k < i.n_in; ++k)
        if (call || maker[i.in[k]] != current || i.kind == Kind::expand) in_memory[i.in[k]] = true;
      part.push_back(call ? -1 : current);
      maker[i.out] = call ? -1 : current;
      if (call || reg(i.out).output) in_memory[i.out] = true;
    }
    for (const FusedInstruction& i : code) {
      Register& r = registers[i.out];
      if (in_memory[i.out] && r.array.empty()) r.array = text.array(r.dtype, {extent(r.row)}).base;
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
    for (size_t t = 0; t < code.size();) {
      if (part[t] < 0) {
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
