#include "source.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <map>

#include "../shape.h"

namespace wengert::cuda {

std::string dtype_text(DType t) {
  static constexpr const char* kNames[] = {"Bool",     "Int8",    "Int16",   "Int32",     "Int64",
                                           "UInt8",    "UInt16",  "UInt32",  "UInt64",    "Float16",
                                           "BFloat16", "Float32", "Float64", "Complex64", "Complex128"};
  return std::string("DType::") + kNames[static_cast<int>(t)];
}

namespace {

constexpr int kBlock = 256;                                 // threads of a block of an elementwise kernel
constexpr int kRowBlock = 128;                              // at least, where a row has a warp or less
constexpr int64_t kWarpRow = 512;                           // the longest row that a warp takes
constexpr int kMostThreads = 1024;                          // of a block
constexpr int kSharedOfReduction = kMostThreads / 32 * 16;  // bytes: a number of each warp

const char* const kOpNames[] = {
#define ELEMENTWISE(name, operands, dtype_class, result) #name,
#include "../kernels/elementwise.def"
#include "../kernels/elementwise_scalar.def"
#undef ELEMENTWISE
};
constexpr int kNumVectorOps = 0
#define ELEMENTWISE(name, operands, dtype_class, result) +1
#include "../kernels/elementwise.def"
#undef ELEMENTWISE
    ;

// Whether a functor is one of device_series.h, which takes longer to compile.
bool is_series(Elementwise op, DType dtype) {
  return static_cast<int>(op) >= kNumVectorOps ||
         (is_complex(dtype) && (op == Elementwise::erf || op == Elementwise::erfc));
}

std::string functor(Elementwise op, DType dtype) {
  const char* name = kOpNames[static_cast<int>(op)];
  return std::string("op::") + (is_complex(dtype) && is_series(op, dtype) ? "complex_" : "") + name;
}

bool has_series(const Chain& chain) {
  return std::any_of(chain.code.begin(), chain.code.end(), [&](const Chain::Instruction& i) {
    return i.kind == Chain::Instruction::Kind::map &&
           is_series(i.op, chain.registers[static_cast<size_t>(i.in[i.n_in - 1])].dtype);
  });
}

const char* reduction_name(Reduction r) {
  switch (r) {
    case Reduction::sum: return "sum";
    case Reduction::prod: return "prod";
    case Reduction::max: return "max";
    case Reduction::min: return "min";
    case Reduction::any: return "any";
    case Reduction::all: return "all";
    case Reduction::count: break;
  }
  fail(ErrorKind::value, "cuda", "this is not a reduction");
}

std::string storage(DType t) { return "Storage<" + dtype_text(t) + ">"; }

// --------------------------------------------------------------------------------------------------- how to launch it

struct Axes {
  std::vector<int64_t> shape;
  std::vector<std::vector<int64_t>> strides;  // by input
};

// Axes [begin, end) without those of one element, and with neighbours joined that all inputs pass through as one.
Axes join_axes(const int64_t* shape, int begin, int end, const std::vector<const int64_t*>& strides) {
  Axes joined;
  joined.strides.resize(strides.size());
  for (int a = begin; a < end; ++a) {
    if (shape[a] == 1) continue;
    bool fits = !joined.shape.empty();
    for (size_t k = 0; k < strides.size() && fits; ++k)
      fits = !strides[k] || joined.strides[k].back() == strides[k][a] * shape[a];
    if (fits)
      joined.shape.back() *= shape[a];
    else
      joined.shape.push_back(shape[a]);
    for (size_t k = 0; k < strides.size(); ++k) {
      if (!fits) joined.strides[k].push_back(0);
      joined.strides[k].back() = strides[k] ? strides[k][a] : 0;
    }
  }
  return joined;
}

bool is_packed(int begin, int end, const int64_t* shape, const int64_t* strides) {
  int64_t expected = 1;
  for (int a = end; a-- > begin;) {
    if (shape[a] != 1 && strides[a] != expected) return false;
    expected *= shape[a];
  }
  return true;
}

bool is_one_element(int end, const int64_t* shape, const int64_t* strides) {
  for (int a = 0; a < end; ++a)
    if (shape[a] != 1 && strides[a] != 0) return false;
  return true;
}

bool is_aligned(const void* p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(std::min<int64_t>(bytes, 16)) == 0;
}

// How many elements a thread takes at once: as many as 16 bytes hold of the widest operand.
int widest_pack(const Chain& chain) {
  int64_t bytes = 1;
  for (const Chain::Register& r : chain.registers)
    if (r.input || r.output) bytes = std::max(bytes, size_of(r.dtype));
  return static_cast<int>(std::clamp<int64_t>(16 / bytes, 1, 8));
}

// The farthest element of any input, in elements.
int64_t farthest(const Axes& axes) {
  int64_t most = 0;
  for (const auto& strides : axes.strides) {
    int64_t sum = 0;
    for (size_t a = 0; a < strides.size(); ++a) sum += std::abs(strides[a]) * (axes.shape[a] - 1);
    most = std::max(most, sum);
  }
  return most;
}

void add_words(std::vector<int64_t>& words, const std::vector<int64_t>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

int words_of(DType t) { return size_of(t) > 8 ? 2 : 1; }

void add_element(DType t, const void* bytes, std::vector<int64_t>& words) {
  int64_t bits[2] = {};
  std::memcpy(bits, bytes, static_cast<size_t>(size_of(t)));
  words.insert(words.end(), bits, bits + words_of(t));
}

void add_constants(const Chain& chain, std::vector<int64_t>& words) {
  for (const Chain::Register& r : chain.registers)
    if (r.constant) add_element(r.dtype, r.bytes, words);
}

// Threads and elements of a row: a warp or less for a short row, a block for a long one.
void share_row(int64_t cols, int pack, Form& form) {
  const auto power = [](int64_t n) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
  };
  const int64_t threads = cols <= kWarpRow ? std::min<int64_t>(32, power((cols + 3) / 4))
                                           : std::clamp<int64_t>(power((cols + 7) / 8), 64, kMostThreads);
  const int64_t chunk = threads * pack;
  form.threads = static_cast<int16_t>(threads);
  form.each = static_cast<int16_t>(std::max<int64_t>(1, (cols + chunk - 1) / chunk) * pack);
}

bool narrow_enough(int64_t positions) { return positions < std::numeric_limits<int32_t>::max() - (1 << 16); }

struct Planner {
  const Chain& chain;
  const Space& space;
  const Operand* in;
  void* const* out;
  const int most_pack;
  const int ndim = space.ndim;
  const int64_t* shape = space.shape;
  Launch launch = {};
  int outer = 0;  // axes of rows; without rows, all
  int64_t rows = 1, cols = 1;
  std::vector<DType> dtypes = {};  // by input, here and below
  std::vector<bool> of_row = {};
  std::vector<const int64_t*> strided = {};  // null where strides are not needed

  void sort_inputs() {
    for (const Chain::Register& r : chain.registers) {
      if (!r.input) continue;
      const Operand& operand = in[dtypes.size()];
      const int end = r.row ? outer : ndim;
      dtypes.push_back(r.dtype);
      of_row.push_back(r.row);
      const Access access = operand.number                                ? Access::number
                            : is_one_element(end, shape, operand.strides) ? Access::uniform
                            : is_packed(0, end, shape, operand.strides)   ? Access::packed
                                                                          : Access::strided;
      launch.form.access.push_back(access);
      strided.push_back(access == Access::strided ? operand.strides : nullptr);
    }
  }

  bool outputs_aligned(int pack) const {
    int k = 0;
    for (const Chain::Register& r : chain.registers)
      if (r.output && !is_aligned(out[k++], pack * size_of(r.dtype))) return false;
    return true;
  }

  // Whether threads can take packs: everything packed is aligned, and no pack crosses the end of an axis.
  bool packs_fit(int pack, int64_t last_axis) const {
    bool any_strided = false;
    for (size_t k = 0; k < dtypes.size(); ++k) {
      if (of_row[k]) continue;
      if (launch.form.access[k] == Access::packed && !is_aligned(in[k].data, pack * size_of(dtypes[k]))) return false;
      any_strided = any_strided || strided[k];
    }
    return outputs_aligned(pack) && (!any_strided || last_axis % pack == 0);
  }

  // Whether an input's neighbours along the last axis can be loaded together. `groups`: the strides in each part.
  bool in_packs(size_t k, std::initializer_list<const Axes*> groups, const Axes& last) const {
    const int pack = launch.form.pack;
    if (last.shape.empty() || last.strides[k].back() != 1 || !is_aligned(in[k].data, pack * size_of(dtypes[k])))
      return false;
    for (const Axes* g : groups)
      for (size_t a = 0; a < g->strides[k].size(); ++a)
        if (!(g == &last && a + 1 == g->strides[k].size()) && g->strides[k][a] % pack != 0) return false;
    return true;
  }

  void begin_words() {
    for (int k = 0, n = 0; k < static_cast<int>(chain.registers.size()); ++k)
      if (chain.registers[k].output) launch.words.push_back(reinterpret_cast<int64_t>(out[n++]));
    for (size_t k = 0; k < dtypes.size(); ++k) {
      if (in[k].number)
        add_element(dtypes[k], in[k].data, launch.words);
      else
        launch.words.push_back(reinterpret_cast<int64_t>(in[k].data));
    }
  }

  void plan_elements() {
    const int64_t n = rows;
    const Axes axes = join_axes(shape, 0, ndim, strided);
    const int64_t last = axes.shape.empty() ? 1 : axes.shape.back();
    Form& form = launch.form;
    const int pack = std::min(most_pack, widest_pack(chain));
    form.pack = static_cast<uint8_t>(packs_fit(pack, last) ? pack : 1);
    form.wide = !narrow_enough(n) || !narrow_enough(farthest(axes));
    bool any = false;
    for (size_t k = 0; k < dtypes.size(); ++k) {
      if (!strided[k]) continue;
      any = true;
      if (in_packs(k, {&axes}, axes)) form.access[k] = Access::strided_packs;
    }
    begin_words();
    launch.words.push_back(n);
    add_constants(chain, launch.words);
    if (any) {
      form.axes = static_cast<uint8_t>(axes.shape.size());
      add_words(launch.words, axes.shape);
      for (size_t k = 0; k < dtypes.size(); ++k)
        if (strided[k]) add_words(launch.words, axes.strides[k]);
    }
    launch.block = kBlock;
    launch.grid = (n + int64_t{kBlock} * form.pack - 1) / (int64_t{kBlock} * form.pack);
  }

  void plan_rows() {
    const Axes across = join_axes(shape, 0, outer, strided);
    std::vector<const int64_t*> within_strides = strided;
    for (size_t k = 0; k < dtypes.size(); ++k)
      if (of_row[k]) within_strides[k] = nullptr;
    const Axes within = join_axes(shape, outer, ndim, within_strides);
    Form& form = launch.form;
    const int pack = std::min(most_pack, widest_pack(chain));
    const int64_t last = within.shape.empty() ? 1 : within.shape.back();
    form.pack = static_cast<uint8_t>(cols % pack == 0 && packs_fit(pack, last) ? pack : 1);
    form.wide = !narrow_enough(rows * cols) || !narrow_enough(farthest(across) + farthest(within));
    share_row(cols, form.pack, form);
    bool any = false;
    for (size_t k = 0; k < dtypes.size(); ++k) {
      if (!strided[k]) continue;
      any = true;
      if (!of_row[k] && in_packs(k, {&across, &within}, within)) form.access[k] = Access::strided_packs;
    }
    begin_words();
    launch.words.push_back(rows);
    launch.words.push_back(cols);
    add_constants(chain, launch.words);
    if (any) {
      form.axes = static_cast<uint8_t>(across.shape.size());
      form.row_axes = static_cast<uint8_t>(within.shape.size());
      add_words(launch.words, across.shape);
      add_words(launch.words, within.shape);
      for (size_t k = 0; k < dtypes.size(); ++k) {
        if (!strided[k]) continue;
        add_words(launch.words, across.strides[k]);
        if (!of_row[k]) add_words(launch.words, within.strides[k]);
      }
    }
    const int rows_of_block = std::max(1, kRowBlock / form.threads);
    launch.block = rows_of_block * form.threads;
    launch.grid = (rows + rows_of_block - 1) / rows_of_block;
  }

  Launch run() {
    outer = ndim - space.row_axes;
    for (int a = 0; a < outer; ++a) rows *= shape[a];
    for (int a = outer; a < ndim; ++a) cols *= shape[a];
    sort_inputs();
    if (chain.rows)
      plan_rows();
    else
      plan_elements();
    return std::move(launch);
  }
};

// --------------------------------------------------------------------------------------------------------- the source

struct Writer {
  const Chain& chain;
  const Form& form;
  std::string text = {};
  int n_words = 0;
  std::vector<int> out_word = {}, in_word = {}, constant_word = {};  // by register; -1: none
  std::vector<int> stride_word = {};                                 // by register: of a strided input
  std::vector<Access> access = {};                                   // by register
  int size_word = 0, shape_word = 0;

  const Chain::Register& reg(int k) const { return chain.registers[static_cast<size_t>(k)]; }
  int n_registers() const { return static_cast<int>(chain.registers.size()); }
  static std::string number(int64_t n) { return std::to_string(n); }
  static std::string word(int k) { return "words[" + number(k) + "]"; }
  void line(int indent, const std::string& s) { text += std::string(static_cast<size_t>(2 * indent), ' ') + s + "\n"; }

  void number_words() {
    const size_t n = chain.registers.size();
    out_word.assign(n, -1);
    in_word = constant_word = stride_word = out_word;
    access.assign(n, Access::packed);
    for (size_t k = 0; k < n; ++k)
      if (chain.registers[k].output) out_word[k] = n_words++;
    size_t input = 0;
    for (size_t k = 0; k < n; ++k)
      if (chain.registers[k].input) {
        in_word[k] = n_words;
        access[k] = form.access[input++];
        n_words += access[k] == Access::number ? words_of(chain.registers[k].dtype) : 1;
      }
    size_word = n_words;
    n_words += chain.rows ? 2 : 1;
    for (size_t k = 0; k < n; ++k)
      if (chain.registers[k].constant) {
        constant_word[k] = n_words;
        n_words += words_of(chain.registers[k].dtype);
      }
    shape_word = n_words;
    n_words += form.axes + form.row_axes;
    for (size_t k = 0; k < n; ++k) {
      if (!chain.registers[k].input || (access[k] != Access::strided && access[k] != Access::strided_packs)) continue;
      stride_word[k] = n_words;
      n_words += form.axes + (chain.registers[k].row ? 0 : form.row_axes);
    }
  }

  std::string type(int k) const { return storage(reg(k).dtype); }
  std::string base(int k) const {
    return "address<const " + type(k) + ">(" + word(in_word[static_cast<size_t>(k)]) + ")";
  }
  std::string number_of(int k) const {
    return "constant<" + type(k) + ">(words + " + number(in_word[static_cast<size_t>(k)]) + ")";
  }
  bool is_single(int k) const {
    const Access a = access[static_cast<size_t>(k)];
    return a == Access::uniform || a == Access::number;
  }
  std::string offset(const std::string& position, int axes, int shape_at, int strides_at) const {
    if (axes == 0) return "Index{0}";
    return "offset_of<" + number(axes) + ">(" + position + ", words + " + number(shape_at) + ", words + " +
           number(strides_at) + ")";
  }

  void begin() {
    text = "{\n";
    line(1, std::string("using Index = ") + (form.wide ? "int64_t" : "int32_t") + ";");
    line(1, "constexpr int kPack = " + number(form.pack) + ";");
    for (int k = 0; k < n_registers(); ++k)
      if (reg(k).constant)
        line(1, "const auto r" + number(k) + " = constant<" + type(k) + ">(words + " +
                    number(constant_word[static_cast<size_t>(k)]) + ");");
  }

  // The expression of an instruction; `index` stands behind the names of registers that have an element per point.
  std::string expression(const Chain::Instruction& i, const std::string& index) const {
    const auto operand = [&](int k) {
      const int r = i.in[k];
      return "r" + number(r) + (reg(r).row || reg(r).constant ? "" : index);
    };
    switch (i.kind) {
      case Chain::Instruction::Kind::map: {
        const DType dtype = reg(i.in[i.n_in - 1]).dtype;
        std::string s = "map<" + functor(i.op, dtype) + ", " + dtype_text(dtype) + ">(";
        for (int k = 0; k < i.n_in; ++k) s += (k ? ", " : "") + operand(k);
        return s + ")";
      }
      case Chain::Instruction::Kind::cast:
        return "convert<" + dtype_text(reg(i.in[0]).dtype) + ", " + dtype_text(reg(i.out).dtype) + ">(" + operand(0) +
               ")";
      default: return operand(0);
    }
  }

  // ---------------------------------------------------------------------------------------------- element by element

  std::string load_elements(int k) const {
    const size_t at = static_cast<size_t>(k);
    switch (access[at]) {
      case Access::packed: return "load<kPack>(" + base(k) + ", i, n)";
      case Access::uniform: return "*" + base(k);
      case Access::number: return number_of(k);
      case Access::strided_packs:
      case Access::strided: break;
    }
    const std::string from = base(k) + " + " + offset("i", form.axes, shape_word, stride_word[at]);
    if (access[at] == Access::strided_packs) return "load<kPack>(" + from + ", Index{0}, Index{kPack})";
    return "load_apart<kPack>(" + from + ", static_cast<Index>(" + word(stride_word[at] + form.axes - 1) + "))";
  }

  // Loads packs at i, of n, and computes and stores what the chain makes of them. A register `given` is the pack y, and
  // one that is `asked` for is kept as a pack, too.
  void write_packs(int given = -1, int asked = -1) {
    for (int k = 0; k < n_registers(); ++k)
      if (reg(k).input) line(1, "const auto x" + number(k) + " = " + (k == given ? "y" : load_elements(k)) + ";");
    const auto made = [&](int k) { return reg(k).output || k == asked; };
    for (int k = 0; k < n_registers(); ++k)
      if (made(k)) line(1, "Pack<" + type(k) + ", kPack> y" + number(k) + ";");
    line(0, "#pragma unroll");
    line(1, "for (int k = 0; k < kPack; ++k) {");
    for (int k = 0; k < n_registers(); ++k)
      if (reg(k).input)
        line(2, "const " + type(k) + " r" + number(k) + " = x" + number(k) +
                    (k != given && is_single(k) ? ";" : ".at[k];"));
    for (const Chain::Instruction& i : chain.code)
      line(2, "const " + type(i.out) + " r" + number(i.out) + " = " + expression(i, "") + ";");
    for (int k = 0; k < n_registers(); ++k)
      if (made(k)) line(2, "y" + number(k) + ".at[k] = r" + number(k) + ";");
    line(1, "}");
    for (int k = 0; k < n_registers(); ++k)
      if (reg(k).output)
        line(1, "store<kPack>(address<" + type(k) + ">(" + word(out_word[static_cast<size_t>(k)]) + "), i, n, y" +
                    number(k) + ");");
  }

  std::string write_elements() {
    begin();
    line(1, "const Index n = static_cast<Index>(" + word(size_word) + ");");
    line(1, "const Index i = (static_cast<Index>(block_number) * " + number(kBlock) +
                " + static_cast<Index>(threadIdx.x)) * kPack;");
    line(1, "if (i >= n) return;");
    write_packs();
    line(0, "}");
    return std::move(text);
  }

  // One pack, at `at`.
  std::string write_pack(int given, int asked) {
    begin();
    line(1, "const Index i = static_cast<Index>(at), n = i + kPack;");
    write_packs(given, asked);
    if (asked >= 0) line(1, "return y" + number(asked) + ";");
    line(0, "}");
    return std::move(text);
  }

  // One element, at i; the register `given` is y.
  std::string write_element(int given) {
    begin();
    line(1, "const Index i = static_cast<Index>(at);");
    for (int k = 0; k < n_registers(); ++k)
      if (reg(k).input) line(1, "const " + type(k) + " r" + number(k) + " = " + (k == given ? "y" : load_one(k)) + ";");
    for (const Chain::Instruction& i : chain.code)
      line(1, "const " + type(i.out) + " r" + number(i.out) + " = " + expression(i, "") + ";");
    for (int k = 0; k < n_registers(); ++k)
      if (reg(k).output)
        line(1, "address<" + type(k) + ">(" + word(out_word[static_cast<size_t>(k)]) + ")[i] = r" + number(k) + ";");
    line(0, "}");
    return std::move(text);
  }
  std::string load_one(int k) const {
    const size_t at = static_cast<size_t>(k);
    switch (access[at]) {
      case Access::packed: return base(k) + "[i]";
      case Access::uniform: return "*" + base(k);
      case Access::number: return number_of(k);
      case Access::strided_packs:
      case Access::strided: break;
    }
    return base(k) + "[" + offset("i", form.axes, shape_word, stride_word[at]) + "]";
  }

  // ------------------------------------------------------------------------------------------------------ row by row

  void load_row(int k) {
    const size_t at = static_cast<size_t>(k);
    const std::string name = "r" + number(k);
    if (reg(k).row && access[at] == Access::number)
      return line(1, "const " + type(k) + " " + name + " = " + number_of(k) + ";");
    if (reg(k).row) {
      const std::string position = access[at] == Access::uniform ? "0"
                                   : access[at] == Access::packed
                                       ? "row"
                                       : offset("row", form.axes, shape_word, stride_word[at]);
      return line(1, "const " + type(k) + " " + name + " = " + base(k) + "[" + position + "];");
    }
    line(1, type(k) + " " + name + "[kEach];");
    if (is_single(k)) return for_each_element(name + "[e] = " + load_elements(k) + ";");
    const bool packed = access[at] == Access::packed;
    line(1, "const " + type(k) + "* from" + number(k) + " = " + base(k) + " + " +
                (packed ? "row * cols" : offset("row", form.axes, shape_word, stride_word[at])) + ";");
    line(0, "#pragma unroll");
    line(1, "for (int e = 0; e < kEach; e += kPack) {");
    line(2, "const Index c = column(e);");
    std::string value = "load<kPack>(from" + number(k) + ", c, cols)";
    if (!packed) {
      const int strides = stride_word[at] + form.axes;
      const std::string from = "from" + number(k) + " + " + offset("c", form.row_axes, shape_word + form.axes, strides);
      value = access[at] == Access::strided_packs
                  ? "load<kPack>(" + from + ", Index{0}, Index{kPack})"
                  : "load_apart<kPack>(" + from + ", static_cast<Index>(" +
                        (form.row_axes ? word(strides + form.row_axes - 1) : std::string("0")) + "))";
      value = "c < cols ? " + value + " : Pack<" + type(k) + ", kPack>{}";
    }
    line(2, "const auto x = " + value + ";");
    line(2, "for (int k = 0; k < kPack; ++k) " + name + "[e + k] = x.at[k];");
    line(1, "}");
  }

  void for_each_element(const std::string& statement) {
    line(0, "#pragma unroll");
    line(1, "for (int e = 0; e < kEach; ++e) " + statement);
  }

  void reduce_row(const Chain::Instruction& i) {
    const std::string op = std::string("reduction::") + reduction_name(i.reduction);
    const std::string a = "a" + number(i.out), accumulator = "A" + number(i.out);
    line(1, "using " + accumulator + " = Accumulator<" + op + ", " + type(i.in[0]) + ">;");
    line(1, accumulator + " " + a + " = " + op + "::identity<" + accumulator + ">();");
    const std::string x = "r" + number(i.in[0]) + (reg(i.in[0]).constant ? "" : "[e]");
    for_each_element("if (column(e) < cols) " + a + " = " + op + "::apply(" + a + ", accumulated<" + accumulator +
                     ">(" + x + "));");
    line(1, "const " + type(i.out) + " r" + number(i.out) + " = store_as<" + type(i.out) + ">(reduce_threads<" + op +
                ", kThreads>(" + a + "));");
  }

  void store_row(int k) {
    const std::string to = "address<" + type(k) + ">(" + word(out_word[static_cast<size_t>(k)]) + ")",
                      name = "r" + number(k);
    if (reg(k).row) return line(2, "if (thread == 0) " + to + "[row] = " + name + ";");
    line(0, "#pragma unroll");
    line(2, "for (int e = 0; e < kEach; e += kPack) {");
    line(3, "Pack<" + type(k) + ", kPack> y;");
    line(3, "for (int k = 0; k < kPack; ++k) y.at[k] = " + name + "[e + k];");
    line(3, "store<kPack>(" + to + " + row * cols, column(e), cols, y);");
    line(2, "}");
  }

  std::string write_rows() {
    const int rows_of_block = std::max(1, kRowBlock / form.threads);
    begin();
    line(1, "constexpr int kThreads = " + number(form.threads) + ", kEach = " + number(form.each) + ";");
    line(1, "const Index rows = static_cast<Index>(" + word(size_word) + "), cols = static_cast<Index>(" +
                word(size_word + 1) + ");");
    line(1, "const Index wanted = static_cast<Index>(block_number) * " + number(rows_of_block) +
                " + static_cast<Index>(threadIdx.x) / kThreads;");
    line(1, "const Index row = wanted < rows ? wanted : rows - 1;  // threads without a row go along");
    line(1, "const int thread = static_cast<int>(threadIdx.x) % kThreads;");
    line(1,
         "const auto column = [=](int e) { return static_cast<Index>((e / kPack * kThreads + thread) * kPack + e % "
         "kPack); };");
    for (int k = 0; k < n_registers(); ++k)
      if (reg(k).input) load_row(k);
    for (const Chain::Instruction& i : chain.code) {
      if (i.kind == Chain::Instruction::Kind::reduce) {
        reduce_row(i);
      } else if (reg(i.out).row) {
        line(1, "const " + type(i.out) + " r" + number(i.out) + " = " + expression(i, "") + ";");
      } else {
        line(1, type(i.out) + " r" + number(i.out) + "[kEach];");
        for_each_element("r" + number(i.out) + "[e] = " + expression(i, "[e]") + ";");
      }
    }
    line(1, "if (wanted < rows) {");
    for (int k = 0; k < n_registers(); ++k)
      if (reg(k).output) store_row(k);
    line(1, "}");
    line(0, "}");
    return std::move(text);
  }
};

}  // namespace

Launch plan(const Chain& chain, const Space& space, const Operand* in, void* const* out, int most_pack) {
  return Planner{chain, space, in, out, most_pack}.run();
}

namespace {

// What a chain does, in a few words.
std::string name_of(const Chain& chain) {
  constexpr int kMostWords = 8;
  std::string name = chain.rows ? "rows" : "";
  int words = 0;
  for (const Chain::Instruction& i : chain.code) {
    if (i.kind == Chain::Instruction::Kind::expand || ++words > kMostWords) continue;
    name += i.kind == Chain::Instruction::Kind::map    ? std::string(" ") + kOpNames[static_cast<int>(i.op)]
            : i.kind == Chain::Instruction::Kind::cast ? " cast"
                                                       : std::string(" ") + reduction_name(i.reduction);
  }
  return name;
}

}  // namespace

Body body(const Chain& chain, const Form& form) {
  Writer writer{chain, form};
  writer.number_words();
  Body made;
  made.name = name_of(chain);
  made.header = "device_group.h";
  made.series = has_series(chain);
  made.words = writer.n_words;
  made.block = chain.rows ? std::max(1, kRowBlock / form.threads) * form.threads : kBlock;
  if (chain.rows && form.threads > 32)
    for (const Chain::Instruction& i : chain.code)
      if (i.kind == Chain::Instruction::Kind::reduce) made.shared += kSharedOfReduction;
  made.text = chain.rows ? writer.write_rows() : writer.write_elements();
  return made;
}

std::string source(const Chain& chain, const Form& form) { return kernel_text(body(chain, form)); }

int64_t product_tile(const Product& p) {
  constexpr int64_t kSmall = int64_t{1} << 21;  // multiply-adds
  return is_inexact(p.dtype) && p.m * p.n * p.k > kSmall ? 64 : 16;
}

namespace {

// A sum of each warp for each of 16 by 16 elements; or 16 steps of the sum for 64 rows and columns.
int shared_of_product(const Product& p) {
  const int elements = product_tile(p) == 16 ? 8 * 256 : 2 * 16 * 68;
  return elements * static_cast<int>(is_half(p.dtype) ? 4 : size_of(p.dtype));
}

// How threads load a factor: `along` and `across` are its strides along the sum and across it, where it has `lines`, of
// which a thread takes `each`.
const char* packing(DType dtype, const MatrixOperand& x, int64_t along, int64_t across, int64_t lines, int64_t each) {
  const int64_t pack = std::max<int64_t>(1, 16 / size_of(dtype));
  const auto fits = [](int64_t stride, int64_t n) { return stride % n == 0; };
  if (is_aligned(x.data, 16) && along == 1 && fits(across, pack) && fits(x.batch, pack)) return "Packed::along";
  if (is_aligned(x.data, 16) && across == 1 && fits(along, each) && fits(x.batch, each) && fits(lines, each))
    return "Packed::across";
  return "Packed::none";
}

// The function that makes a product, with its template arguments. `packs`: what is done with the elements is done with
// four at once.
std::string product_function(const Product& p, bool packs) {
  constexpr int64_t kRows = 2, kColumns = 4, kLongSum = 512;
  const bool tiled = product_tile(p) != 16;
  const std::string arguments = dtype_text(p.dtype) + ", " +
                                packing(p.dtype, p.a, p.a.col, p.a.row, p.m, tiled ? kColumns : kRows) + ", " +
                                packing(p.dtype, p.b, p.b.row, p.b.col, p.n, kColumns);
  if (tiled) return "tiled_product<" + arguments + (packs ? ", true>" : ", false>");
  return "small_product<" + arguments + (p.k >= kLongSum ? ", true>" : ", false>");
}

}  // namespace

int64_t product_pack(const Product& p) {
  return product_tile(p) != 16 && p.n % 4 == 0 && is_aligned(p.y, 4 * size_of(p.dtype)) ? 4 : 1;
}

Body product_body(const Product& product) {
  const DType dtype = product.dtype;
  const std::string call = product_function(product, product_pack(product) > 1) + "(words, block_number);";
  return {"product " + std::string(wengert::name_of(dtype)),
          "device_product.h",
          "{\n  " + call + "\n}\n",
          kProductWords,
          kBlock,
          shared_of_product(product)};
}

Body product_body(const Product& product, bool kept, const Chain& chain, const Form& form, int given) {
  const DType dtype = product.dtype;
  Writer writer{chain, form};
  writer.number_words();
  const bool packs = form.pack > 1;
  const std::string t = packs ? "Pack<" + storage(dtype) + ", " + std::to_string(form.pack) + ">" : storage(dtype);
  const std::string work = packs ? writer.write_pack(given, -1) : writer.write_element(given);
  std::string text =
      "{\n  " + product_function(product, packs) + "(words, block_number, [=](int64_t at, const " + t + "& y) {\n";
  if (kept)
    text += packs ? "  packs_to<" + storage(dtype) + ", " + std::to_string(form.pack) + ">(words[0])(at, y);\n"
                  : "  address<" + t + ">(words[0])[at] = y;\n";
  text += "  [at, y](const int64_t* words) " + work + "  (words + " + std::to_string(kProductWords) + ");\n  });\n}\n";
  return {.name = "product " + std::string(wengert::name_of(dtype)) + " " + name_of(chain),
          .header = "device_product.h",
          .text = text,
          .words = kProductWords + writer.n_words,
          .block = kBlock,
          .shared = shared_of_product(product),
          .series = has_series(chain)};
}

Body body_with_ends(const Body& kernel, const std::string& function, const std::string& from, const EndChain* before,
                    const std::string& to, const EndChain* after, bool kept) {
  Body made = kernel;
  const auto words = [&] { return "  (words + " + std::to_string(made.words) + ");\n  }"; };
  std::string bring = from, use = to;
  if (before) {
    Writer writer{*before->chain, before->form};
    writer.number_words();
    bring = "[=](int64_t at) {\n  return [at](const int64_t* words) " + writer.write_pack(-1, before->joint) + words();
    made.words += writer.n_words;
    made.name = name_of(*before->chain) + " " + made.name;
    made.series = made.series || has_series(*before->chain);
  }
  if (after) {
    Writer writer{*after->chain, after->form};
    writer.number_words();
    const std::string pack = "Pack<" + writer.type(after->joint) + ", " + std::to_string(after->form.pack) + ">";
    use = "[=](int64_t at, const " + pack + "& y) {\n";
    if (kept) use += "  " + to + "(at, y);\n";
    use += "  [at, &y](const int64_t* words) " + writer.write_pack(after->joint, -1) + words();
    made.words += writer.n_words;
    made.name += " " + name_of(*after->chain);
    made.series = made.series || has_series(*after->chain);
  }
  made.text = "{\n  " + function + "(words, block_number, " + bring + ", " + use + ");\n}\n";
  return made;
}

// Instructions that share a register which is neither a number nor a constant belong together.
std::vector<ChainPart> independent_parts(const Chain& chain, const Operand* in) {
  const size_t n = chain.registers.size();
  std::vector<size_t> root(n);
  for (size_t k = 0; k < n; ++k) root[k] = k;
  const auto find = [&](size_t k) {
    while (root[k] != k) k = root[k] = root[root[k]];
    return k;
  };
  std::vector<bool> shared(n, false);
  for (size_t k = 0, input = 0; k < n; ++k) {
    shared[k] = chain.registers[k].constant;
    if (chain.registers[k].input) shared[k] = in[input++].number;
  }
  for (const Chain::Instruction& i : chain.code)
    for (int k = 0; k < i.n_in; ++k)
      if (const auto from = static_cast<size_t>(i.in[k]); !shared[from])
        root[find(from)] = find(static_cast<size_t>(i.out));
  std::vector<ChainPart> parts;
  std::map<size_t, size_t> part_of;
  for (const Chain::Instruction& i : chain.code)
    if (part_of.try_emplace(find(static_cast<size_t>(i.out)), part_of.size()).second) parts.emplace_back();
  if (parts.size() < 2) return {};
  std::vector<std::vector<int16_t>> place(parts.size(), std::vector<int16_t>(n, -1));
  for (size_t k = 0, input = 0, output = 0; k < n; ++k) {
    const Chain::Register& r = chain.registers[k];
    const auto of = part_of.find(find(k));
    if (r.output && (shared[k] || of == part_of.end())) return {};
    for (size_t p = 0; p < parts.size(); ++p) {
      if (!shared[k] && (of == part_of.end() || of->second != p)) continue;
      place[p][k] = static_cast<int16_t>(parts[p].chain.registers.size());
      parts[p].chain.registers.push_back(r);
      if (r.input) parts[p].inputs.push_back(static_cast<int>(input));
      if (r.output) parts[p].outputs.push_back(static_cast<int>(output));
    }
    input += r.input;
    output += r.output;
  }
  for (Chain::Instruction i : chain.code) {
    const size_t p = part_of.at(find(static_cast<size_t>(i.out)));
    for (int k = 0; k < i.n_in; ++k) i.in[k] = place[p][static_cast<size_t>(i.in[k])];
    i.out = place[p][static_cast<size_t>(i.out)];
    parts[p].chain.code.push_back(i);
  }
  return parts;
}

}  // namespace wengert::cuda
