// The text of a function under construction: lines, arrays, constants, and references to the core.
#pragma once
#include <map>
#include <set>

#include "source.h"

namespace wengert::generate {

inline std::string number(int64_t n) { return std::to_string(n); }
std::string enumerator(DType t);  // DType::Float32
std::string type_of(DType t);     // the element type in the text

// The location of a value: element (i, j, …) is base[offset + i·strides[0] + j·strides[1] + …]. `layout` is a value
// without contents that holds dtype, shape and strides.
struct Location {
  Ref layout;
  std::string base;
  int64_t offset = 0;
  int32_t array = -1;       // in Text::arrays; -1: none of them, as its size is computed
  std::string length = {};  // the size of the first axis if the function computes it; that of the layout is 1 then

  int64_t size() const { return layout->size; }
  bool packed() const { return layout->contiguous; }
  std::string address() const { return offset ? base + " + " + number(offset) : base; }
  std::string element(const std::string& index) const {
    return base + "[" + (offset ? number(offset) + " + " : "") + index + "]";
  }
  Location share() const { return {Ref::share(layout.v), base, offset, array, length}; }
};

// A layout, packed if strides is null.
Ref make_layout(DType dtype, const Dims& shape, const int64_t* strides = nullptr);

class Text {
 public:
  Generated made;

  void line(const std::string& s) { body_ += std::string(2 * depth_, ' ') + s + "\n"; }
  void open(const std::string& s = "") {
    line(s.empty() ? "{" : s + " {");
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }
  // A loop `name` = 0 … n - 1; one of a single turn is a block.
  void open_loop(const std::string& name, int64_t n);
  std::string fresh(const char* prefix) { return prefix + number(names_++); }

  // A new packed array of the function. `unbounded`: never on the stack, however small it is now.
  Location array(DType dtype, const Dims& shape, bool unbounded = false);
  // A new array of `length` parts of this shape; the function computes the length.
  Location growing_array(DType dtype, const Dims& part, const std::string& length);
  Location given(Base::Kind kind, int32_t index, const Value* v);
  void keep_as_output(int32_t array) { arrays_[static_cast<size_t>(array)].kind = Base::Kind::output; }
  int32_t base_of(int32_t array) const { return arrays_[static_cast<size_t>(array)].base; }
  bool is_given(int32_t array) const { return arrays_[static_cast<size_t>(array)].given; }
  int32_t given_index(int32_t array) const { return arrays_[static_cast<size_t>(array)].index; }
  Base::Kind kind(int32_t array) const { return arrays_[static_cast<size_t>(array)].kind; }

  std::string constant(DType dtype, const void* bytes);  // the name of one
  std::string word(int64_t value);                       // a number that the text does not depend on
  std::string function(const void* f);                   // address of a function of the core

  // to[0 … n) = the elements of `from`, in order; or a place of the same shape.
  void copy(const Location& from, const std::string& to);
  void copy(const Location& from, const Location& to);
  // The value itself if packed, otherwise a packed copy.
  Location packed(const Location& p);

  void finish();

 private:
  struct Array {
    DType dtype;
    Dims shape;
    int64_t elements;
    bool given, unbounded;
    Base::Kind kind;  // workspace: it may be on the stack
    int32_t index;
    int32_t base = -1;
  };
  void declare(std::string& head, size_t k, int64_t& stack);

  std::string body_;
  int depth_ = 1;
  int names_ = 0;
  std::vector<Array> arrays_;
  std::map<std::string, std::string> constants_;  // bytes with dtype → name
  std::string constant_lines_;
  std::map<const void*, int> functions_;
};

// The instructions of a fused group, or of one elementwise op, over registers.
struct Register {
  DType dtype;
  bool row = false;
  std::string one;    // an expression if there is a single element; otherwise there is an array:
  std::string array;  // the array of its elements
  bool output = false;
};
void write_group(Text& text, std::vector<Register>& registers, const std::vector<FusedInstruction>& code, int64_t rows,
                 int64_t cols);

// Ops that only move, make or convert elements, as loops in place of calls. `y` is packed.
bool is_move(const Op& op);
void write_move(Text& text, const Op& op, const std::vector<const Location*>& in, const Attrs& attrs,
                const Location& y);

}  // namespace wengert::generate
