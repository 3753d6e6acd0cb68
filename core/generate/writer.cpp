#include "writer.h"

#include <algorithm>
#include <cstring>

namespace wengert::generate {

namespace {

constexpr int64_t kSmallArray = 4096;  // bytes; smaller arrays are on the stack
constexpr int64_t kStack = 64 * 1024;  // bytes of all arrays on the stack
constexpr int64_t kSmallInput = 16;    // elements; smaller inputs are copied to the stack first

const char* const kDTypeNames[kNumDTypes] = {"Bool",     "Int8",    "Int16",   "Int32",     "Int64",
                                             "UInt8",    "UInt16",  "UInt32",  "UInt64",    "Float16",
                                             "BFloat16", "Float32", "Float64", "Complex64", "Complex128"};

// One value per dtype, which all layouts are views of.
const Value* contents_of(DType dtype) {
  static Value* one[kNumDTypes] = {};
  Value*& v = one[static_cast<int>(dtype)];
  if (!v) v = empty(dtype, {});
  return v;
}

}  // namespace

std::string enumerator(DType t) { return std::string("DType::") + kDTypeNames[static_cast<int>(t)]; }
std::string type_of(DType t) { return "Storage<" + enumerator(t) + ">"; }

Ref make_layout(DType dtype, const Dims& shape, const int64_t* strides) {
  int64_t packed[kMaxRank], step = 1;
  for (int i = shape.n; i-- > 0;) {
    packed[i] = step;
    step *= shape[i].raw;
  }
  return Ref(view(contents_of(dtype), shape, strides ? strides : packed, 0));
}

void Text::open_loop(const std::string& name, int64_t n) {
  if (n != 1) return open("for (int64_t " + name + " = 0; " + name + " < " + number(n) + "; ++" + name + ")");
  open();
  line("constexpr int64_t " + name + " = 0;");
}

Location Text::array(DType dtype, const Dims& shape, bool unbounded) {
  Ref layout = make_layout(dtype, shape);
  const auto k = static_cast<int32_t>(arrays_.size());
  arrays_.push_back({dtype, shape, layout->size, false, unbounded, Base::Kind::workspace, -1});
  return {std::move(layout), "a" + number(k), 0, k};
}

Location Text::growing_array(DType dtype, const Dims& part, const std::string& length) {
  Dims shape = {1};
  for (int i = 0; i < part.n; ++i) shape.push(part[i]);
  Ref layout = make_layout(dtype, shape);
  const std::string name = fresh("g"), type = type_of(dtype), which = number(made.n_growing++);
  const std::string bytes = length + " * " + number(layout->size * size_of(dtype));
  line(type + "* __restrict const " + name + " = reinterpret_cast<" + type + "*>(core->grow(core->context, " + which +
       ", " + bytes + "));");
  return {std::move(layout), name, 0, -1, length};
}

Location Text::given(Base::Kind kind, int32_t index, const Value* v) {
  const auto k = static_cast<int32_t>(arrays_.size());
  // The number of elements from the first to the last.
  int64_t last = 0;
  bool behind = false;
  for (int i = 0; i < v->ndim; ++i) {
    behind |= v->strides[i] < 0;
    last += v->strides[i] * (v->shape[i] - 1);
  }
  const bool unbounded = behind || v->size == 0;
  arrays_.push_back({v->dtype, {}, unbounded ? kSmallInput + 1 : last + 1, true, unbounded, kind, index});
  return {make_layout(v->dtype, v->dims(), v->strides), "a" + number(k), 0, k};
}

std::string Text::constant(DType dtype, const void* bytes) {
  const auto size = static_cast<size_t>(size_of(dtype));
  std::string key(1, static_cast<char>(dtype));
  key.append(static_cast<const char*>(bytes), size);
  std::string& name = constants_[key];
  if (!name.empty()) return name;
  name = "k" + number(static_cast<int64_t>(constants_.size()));
  int64_t bits[2] = {};
  std::memcpy(bits, bytes, size);
  constant_lines_ += "  const auto " + name + " = constant<" + type_of(dtype) + ">(words + " +
                     number(static_cast<int64_t>(made.words.size())) + ");\n";
  made.words.insert(made.words.end(), bits, bits + (size > 8 ? 2 : 1));
  return name;
}

std::string Text::word(int64_t value) {
  made.words.push_back(value);
  return "words[" + number(static_cast<int64_t>(made.words.size()) - 1) + "]";
}

std::string Text::function(const void* f) {
  const auto [it, is_new] = functions_.try_emplace(f, static_cast<int>(functions_.size()));
  if (is_new) made.functions.push_back(f);
  return "core->functions[" + number(it->second) + "]";
}

void Text::copy(const Location& from, const std::string& to) {
  copy(from, Location{make_layout(from.layout->dtype, from.layout->dims()), "(" + to + ")"});
}

void Text::copy(const Location& from, const Location& to) {
  if (from.size() == 0) return;
  if (from.packed() && to.packed()) {
    if (from.address() == to.address() || "(" + from.address() + ")" == to.address()) return;
    open_loop("i", from.size());
    line(to.element("i") + " = " + from.element("i") + ";");
    return close();
  }
  std::string source, target;
  const Value *x = from.layout.v, *y = to.layout.v;
  for (int axis = 0; axis < x->ndim; ++axis) {
    const std::string name = "i" + number(axis), plus = axis ? " + " : "";
    open_loop(name, x->shape[axis]);
    source += plus + name + " * " + number(x->strides[axis]);
    target += plus + name + " * " + number(y->strides[axis]);
  }
  line(to.element(target) + " = " + from.element(source) + ";");
  for (int axis = 0; axis < x->ndim; ++axis) close();
}

Location Text::packed(const Location& p) {
  if (p.packed()) return p.share();
  Location made = array(p.layout->dtype, p.layout->dims());
  copy(p, made.base);
  return made;
}

// Small arrays and copies of small inputs are on the stack, where the compiler can optimise all accesses.
void Text::declare(std::string& head, size_t k, int64_t& stack) {
  Array& a = arrays_[k];
  const std::string name = "a" + number(static_cast<int64_t>(k)), type = type_of(a.dtype);
  const int64_t bytes = a.elements * size_of(a.dtype);
  const bool fits = !a.unbounded && stack + bytes <= kStack;
  const std::string place = "  alignas(64) " + type + " " + name + "[" + number(std::max<int64_t>(1, a.elements)) + "]";
  if (a.kind == Base::Kind::workspace && fits && bytes <= kSmallArray) {
    stack += bytes;
    head += place + ";\n";
    return;
  }
  a.base = static_cast<int32_t>(made.bases.size());
  made.bases.push_back({a.kind, a.index, a.dtype, a.shape});
  const std::string at = "bases[" + number(a.base) + "]";
  if (a.given && fits && a.elements <= kSmallInput) {
    stack += bytes;
    head += place + ";\n  for (int64_t i = 0; i < " + number(a.elements) + "; ++i) " + name +
            "[i] = reinterpret_cast<const " + type + "*>(" + at + ")[i];\n";
    return;
  }
  head += "  " + std::string(a.given ? "const " : "") + type + "* __restrict " + name + " = reinterpret_cast<" +
          (a.given ? "const " : "") + type + "*>(" + at + ");\n";
}

void Text::finish() {
  std::string head =
      "#include \"vector_element.h\"\n\n"
      "using namespace wengert;\nusing namespace wengert::generated;\n\n"
      "struct Core {\n"
      "  void (*call)(void* context, int64_t which, char* const* at);\n"
      "  char* (*grow)(void* context, int64_t which, int64_t bytes);\n"
      "  void (*check_interrupt)();\n"
      "  void* context;\n"
      "  const void* const* functions;\n"
      "};\n"
      "using Map = void (*)(void*, const void* const*, int64_t);\n"
      "using Cast = void (*)(void*, const void*, int64_t);\n"
      "using Reduce = void (*)(void*, const void*, int64_t, int64_t, int64_t);\n\n"
      "extern \"C\" void run(char* const* bases, const int64_t* words, const Core* core) {\n";
  int64_t stack = 0;
  for (size_t k = 0; k < arrays_.size(); ++k) declare(head, k, stack);
  made.text = head + constant_lines_ + body_ + "}\n";
}

}  // namespace wengert::generate
