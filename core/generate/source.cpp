#include "source.h"

#include <algorithm>

#include "../regions.h"
#include "writer.h"

namespace wengert::generate {

namespace {

constexpr int64_t kSmallElements = 4096;     // of a group or call; beyond that the executor's dispatch is negligible
constexpr int64_t kMostInstructions = 4000;  // limits the compile time
constexpr int kInterruptTurns = 1024;
constexpr int kDeepest = 64;  // compilers limit how deeply blocks are nested

bool same_layout(const Value* a, const Value* b) {
  if (a->dtype != b->dtype || !same_shape(a, b)) return false;
  for (int i = 0; i < a->ndim; ++i)
    if (a->shape[i] > 1 && a->strides[i] != b->strides[i]) return false;
  return true;
}

// Whether results may depend on the operands' layout, because sums are taken in memory order.
bool reads_layouts(const Program& p) {
  for (const Step& s : p.steps) {
    if (s.op && !s.op->elementwise) return true;
    for (const Region& r : s.regions)
      if (reads_layouts(*r.program)) return true;
  }
  return false;
}

class Source {
 public:
  explicit Source(bool small) : small_(small) {}

  Generated write(const Program& p, Value* const* in, const int64_t* leaf_sizes) {
    if (p.depth > kDeepest) refuse("branches and loops are nested too deeply");
    std::vector<Location> inputs;
    for (int32_t i = 0; i < p.n_inputs; ++i) inputs.push_back(text_.given(Base::Kind::input, i, in[i]));
    std::vector<Size> leaves;
    for (size_t i = 0; i < p.sizes.leaves.size(); ++i) leaves.push_back({leaf_sizes[i]});
    const std::vector<Location> outputs = write_program(p, std::move(inputs), std::move(leaves));
    for (size_t i = 0; i < outputs.size(); ++i) add_result(p, outputs, i);
    text_.finish();
    for (Result& r : text_.made.results)
      if (r.kind == Result::Kind::view) r.base = text_.base_of(r.base);
    return std::move(text_.made);
  }

 private:
  // A size that is known now, or a number that the function computes.
  struct Size {
    int64_t value = 0;
    bool known = true;
    std::string name = {};  // of the number; none for an expression of such numbers

    bool operator==(const Size&) const = default;
  };

  struct Scope {
    const Program& p;
    std::vector<Size> leaves, sizes;
    std::vector<Location> at;
  };

  static void refuse(const std::string& why) { throw Refused(why); }

  void add_result(const Program& p, const std::vector<Location>& outputs, size_t i) {
    const auto emit = [&](Result r) { text_.made.results.push_back(std::move(r)); };
    const int32_t slot = p.outputs[i];
    if (slot < 0) return emit({Result::Kind::zero});
    const auto first = std::find(p.outputs.begin(), p.outputs.end(), slot) - p.outputs.begin();
    if (first < static_cast<ptrdiff_t>(i)) return emit({Result::Kind::same, static_cast<int32_t>(first)});
    if (slot < p.n_inputs) return emit({Result::Kind::input, slot});
    const Location& y = outputs[i];
    if (y.array < 0) refuse("a result has a size that is computed");
    if (!text_.is_given(y.array)) text_.keep_as_output(y.array);
    emit({Result::Kind::view, y.array, Ref::share(y.layout.v), y.offset});
  }

  std::vector<Location> write_program(const Program& p, std::vector<Location> inputs, std::vector<Size> leaves) {
    Scope s{p, std::move(leaves), {}, std::move(inputs)};
    for (const SizeLeaf& l : p.sizes.leaves)
      if (l.kind == SizeLeaf::content) refuse("a number in an operand decides a size or a place in a random stream");
    evaluate_sizes(s);
    s.at.resize(static_cast<size_t>(p.n_slots));
    for (auto& [slot, value] : p.constants) {
      s.at[slot] = text_.given(Base::Kind::constant, static_cast<int32_t>(text_.made.constants.size()), value);
      text_.made.constants.push_back(value);
    }
    for (const Step& step : p.steps) {
      if (step.group)
        write_fused(s, step);
      else if (step.n_sizes)
        write_sized(s, step);
      else if (step.loop && step.regions.size() == 2)
        write_while(s, step);
      else if (step.loop)
        write_loop(s, step);
      else if (step.regions.empty())
        write_call(s, step);
      else
        write_choice(s, step);
    }
    std::vector<Location> outputs;
    for (int32_t slot : p.outputs) outputs.push_back(slot < 0 ? Location{} : s.at[slot].share());
    return outputs;
  }

  // ---------------------------------------------------------------------------------------------------------- sizes

  static void evaluate_sizes(Scope& s) {
    const SizeProgram& sizes = s.p.sizes;
    std::vector<int64_t> leaves, values(sizes.steps.size());
    for (const Size& l : s.leaves) leaves.push_back(l.value);
    if (!values.empty()) sizes.evaluate(leaves.data(), values.data());
    for (const SizeProgram::Step& step : sizes.steps) {
      const int64_t value = values[s.sizes.size()];
      if (step.kind == SizeProgram::Kind::leaf)
        s.sizes.push_back(s.leaves[static_cast<size_t>(step.a.raw)]);
      else
        s.sizes.push_back({value, size_at(s, step.a).known && size_at(s, step.b).known});
    }
  }

  // The number that a size reference stands for.
  static Size size_at(const Scope& s, Dim d) {
    if (!d.symbolic()) return {d.raw};
    return s.sizes[static_cast<size_t>(SizeProgram::index_of(d))];
  }

  static int64_t known(const Size& size) {
    if (!size.known) refuse("tensors have sizes that are computed");
    return size.value;
  }

  static Dims known_dims(const Scope& s, const Dims& shape) {
    Dims made;
    for (int i = 0; i < shape.n; ++i) made.push(known(size_at(s, shape[i])));
    return made;
  }

  // A value whose sizes are all known.
  static const Location& place(const Scope& s, int32_t slot) {
    const Location& x = s.at[static_cast<size_t>(slot)];
    if (!x.length.empty()) refuse("tensors have sizes that are computed");
    return x;
  }

  // An array whose shape is a list of size references, of which the first may be computed.
  Location sized_array(const Scope& s, DType dtype, const Dims& shape) {
    const Size length = shape.n ? size_at(s, shape[0]) : Size{1};
    if (length.known) return text_.array(dtype, known_dims(s, shape), true);
    if (length.name.empty()) refuse("tensors have sizes that are computed");
    Dims turn;
    for (int i = 1; i < shape.n; ++i) turn.push(known(size_at(s, shape[i])));
    return text_.growing_array(dtype, turn, length.name);
  }

  void count(int64_t instructions, int64_t elements) {
    if ((n_instructions_ += instructions) > kMostInstructions) refuse("too many instructions");
    if (small_ && elements > kSmallElements) refuse("tensors are large enough for the executor");
  }

  // ------------------------------------------------------------------------------------------------- fused groups

  void write_fused(Scope& s, const Step& step) {
    const FusedGroup& g = *step.group;
    int64_t rows = 1, cols = 1;
    if (g.like >= 0) {
      rows = place(s, g.like).size();
    } else {
      const int outer = g.shape.n - g.row_axes;
      for (int i = 0; i < g.shape.n; ++i) (i < outer ? rows : cols) *= known(size_at(s, g.shape[i]));
    }
    std::vector<FusedInstruction> code;
    for (const auto& [op, i] : g.source) code.push_back(i);
    count(static_cast<int64_t>(code.size()), rows * cols);
    std::vector<Register> registers;
    for (const FusedRegister& r : g.registers) registers.push_back(bind(s, g, r, r.row ? rows : rows * cols));
    write_group(text_, registers, code, rows, cols);
    for (size_t k = 0; k < g.registers.size(); ++k) {
      const FusedRegister& r = g.registers[k];
      if (r.input >= 0 && r.output >= 0) text_.copy(s.at[r.input], s.at[r.output].base);
    }
  }

  Register bind(Scope& s, const FusedGroup& g, const FusedRegister& r, int64_t elements) {
    Register made{r.dtype, r.row, "", "", false};
    if (r.constant) {
      made.one = text_.constant(r.dtype, r.bytes);
    } else if (r.input >= 0) {
      const Location& x = place(s, r.input);
      if ((x.size() != elements && x.layout->ndim != 0) || x.layout->dtype != r.dtype)
        refuse("an operand has another type than the program expects");
      bind_operand(x, elements, made);
    }
    if (r.output >= 0) {
      const Dims shape = g.like >= 0 ? s.at[g.like].layout->dims() : known_dims(s, g.output_shapes[r.output_shape]);
      s.at[r.output] = text_.array(r.dtype, shape);
      if (r.input < 0) {
        made.array = s.at[r.output].base;
        made.output = true;
      }
    }
    return made;
  }

  void bind_operand(const Location& x, int64_t elements, Register& r) {
    if (x.packed() && x.size() == elements)
      r.array = x.address();
    else if (is_uniform(x.layout.v))
      r.one = x.element("0");
    else
      r.array = text_.packed(x).address();
  }

  // ----------------------------------------------------------------------------------------------------- single ops

  // An op on values of a computed length, part by part.
  void write_parts(Scope& s, const Step& step, const std::string& length) {
    std::vector<Location> wholes;
    for (int32_t slot : step.in) wholes.push_back(s.at[slot].share());
    for (const Location& x : wholes)
      if (x.length != length || !x.packed()) refuse("tensors have sizes that are computed");
    const Value* shaped = wholes.back().layout.v;
    const DType dtype = step.op->map_result[static_cast<int>(shaped->dtype)];
    Location y = text_.growing_array(dtype, part_of(wholes.back()), length);
    const std::string t = text_.fresh("t");
    text_.open("for (int64_t " + t + " = 0; " + t + " < " + length + "; ++" + t + ")");
    for (size_t i = 0; i < wholes.size(); ++i) s.at[step.in[i]] = slice(wholes[i], t);
    write_elementwise(s, step);
    text_.copy(s.at[step.out[0]], y.base + " + " + t + " * " + number(y.layout->strides[0]));
    text_.close();
    for (size_t i = 0; i < wholes.size(); ++i) s.at[step.in[i]] = std::move(wholes[i]);
    s.at[step.out[0]] = std::move(y);
  }

  void write_elementwise(Scope& s, const Step& step) {
    const Op& op = *step.op;
    for (int32_t slot : step.in)
      if (const std::string length = s.at[slot].length; !length.empty()) return write_parts(s, step, length);
    std::vector<Value*> operands;
    for (int32_t slot : step.in) operands.push_back(s.at[slot].layout.v);
    const Value* shaped = operands.back();
    const int code = static_cast<int>(shaped->dtype);
    for (const Value* v : operands)
      if (!same_shape(v, shaped) ||
          (v->dtype != shaped->dtype && !(v == operands[0] && op.n_conditions && v->dtype == DType::Bool)))
        refuse("an operand has another type than the program expects");
    if (!op.map[code]) refuse("an operand has another type than the program expects");
    count(1, shaped->size);
    Location y = text_.array(op.map_result[code], shaped->dims());
    const bool in_layout = keeps_layout(operands.data(), static_cast<int>(operands.size()));
    if (in_layout) y.layout = make_layout(op.map_result[code], shaped->dims(), operands[0]->strides);
    std::vector<Register> registers;
    FusedInstruction i{};
    i.kind = FusedInstruction::Kind::map;
    i.op = op.kernel;
    i.n_in = static_cast<uint8_t>(operands.size());
    for (size_t k = 0; k < operands.size(); ++k) {
      const Location& x = s.at[step.in[k]];
      Register r{x.layout->dtype, false, "", "", false};
      if (in_layout)
        r.array = x.address();  // both are traversed in memory order
      else
        bind_operand(x, shaped->size, r);
      i.in[k] = static_cast<int16_t>(registers.size());
      registers.push_back(r);
    }
    i.out = static_cast<int16_t>(registers.size());
    registers.push_back({op.map_result[code], false, "", y.base, true});
    write_group(text_, registers, {i}, shaped->size, 1);
    s.at[step.out[0]] = std::move(y);
  }

  void write_call(Scope& s, const Step& step) {
    const Op& op = *step.op;
    if (op.elementwise) return write_elementwise(s, step);
    if (op.data) refuse("calls a Python function");
    if (op.moves) refuse("brings tensors to another device");
    if (op.placing == Placing::size)
      if (const Size n = size_at(s, step.attrs.v[0].dims[0]); !n.known) return write_size(s, step, n);
    Call call{&op, step.owned, step.attrs, step.gemm, {}, {}};
    for (int k = 0; k < call.attrs.n; ++k)
      if (call.attrs.v[k].kind == Attr::Kind::sizes) call.attrs.v[k].dims = known_dims(s, step.attrs.v[k].dims);
    std::vector<Type> types;
    for (int32_t slot : step.in) types.push_back(place(s, slot).layout->type());
    Type out[kMaxOutputs];
    op.infer(op, types.data(), static_cast<int>(types.size()), call.attrs, out);
    if (op.view) {
      const Location& x = s.at[step.in[0]];
      if (Value* y = op.view(op, x.layout.v, call.attrs, out[0])) {
        const int64_t further = (y->data - x.layout->data) / size_of(y->dtype);
        s.at[step.out[0]] = {Ref(y), x.base, x.offset + further, x.array};
        return;
      }
    }
    count(1, 0);  // large ones use all threads
    if (is_move(op) && product(out[0].shape).raw <= kSmallElements)
      return write_small_move(s, step, call.attrs, out[0]);
    std::string list;
    for (int32_t slot : step.in) {
      const Location& x = s.at[slot];
      call.in.emplace_back(alias(x.layout.v));
      list += "(char*)(" + x.address() + "), ";
    }
    for (int k = 0; k < op.n_outputs; ++k) {
      Location y = text_.array(out[k].dtype, out[k].shape);
      call.out.emplace_back(alias(y.layout.v));
      list += "(char*)(" + y.address() + "), ";
      s.at[step.out[k]] = std::move(y);
    }
    const auto which = static_cast<int64_t>(text_.made.calls.size());
    text_.made.calls.push_back(std::move(call));
    text_.open();
    text_.line("char* const at[] = {" + list + "};");
    text_.line("core->call(core->context, " + number(which) + ", at);  // " + op.name);
    text_.close();
  }

  void write_size(Scope& s, const Step& step, const Size& n) {
    if (n.name.empty() || step.attrs.v[1].i != static_cast<int64_t>(DType::Int64))
      refuse("tensors have sizes that are computed");
    Location y = text_.array(DType::Int64, {});
    text_.line(y.element("0") + " = " + n.name + ";");
    s.at[step.out[0]] = std::move(y);
  }

  void write_small_move(Scope& s, const Step& step, const Attrs& attrs, const Type& out) {
    std::vector<const Location*> in;
    for (int32_t slot : step.in) in.push_back(&s.at[slot]);
    Location y = text_.array(out.dtype, out.shape);
    write_move(text_, *step.op, in, attrs, y);
    s.at[step.out[0]] = std::move(y);
  }

  // -------------------------------------------------------------------------------------------------------- regions

  std::vector<Size> leaves_of_region(const Scope& s, const Step& step, const Region& r) {
    std::vector<Size> leaves;
    for (int32_t l : r.leaves) {
      if (l >= 0) {
        leaves.push_back(s.leaves[static_cast<size_t>(l)]);
        continue;
      }
      const std::string name = text_.fresh("size"), given = place(s, step.in[static_cast<size_t>(~l)]).element("0");
      text_.line("const int64_t " + name + " = " + given + " > 0 ? " + given + " : 0;");
      leaves.push_back({0, false, name});
    }
    return leaves;
  }

  void write_sized(Scope& s, const Step& step) {
    const Region& region = step.regions[0];
    std::vector<Location> operands;
    for (size_t i = static_cast<size_t>(step.n_sizes); i < step.in.size(); ++i)
      operands.push_back(s.at[step.in[i]].share());
    std::vector<Location> made = write_program(*region.program, std::move(operands), leaves_of_region(s, step, region));
    for (size_t i = 0; i < made.size(); ++i) s.at[step.out[i]] = std::move(made[i]);
  }

  void write_choice(Scope& s, const Step& step) {
    const Location& index = place(s, step.in[0]);
    const auto last = static_cast<int64_t>(step.regions.size()) - 1;
    const std::string chosen = text_.fresh("chosen");
    text_.line("const int64_t " + chosen + " = static_cast<int64_t>(" + index.element("0") + ");");
    std::vector<Location> results;
    for (int64_t k = 0; k <= last; ++k) {
      const std::string test = k == last ? "" : "if (" + chosen + " <= " + number(k) + ")";
      text_.open((k ? "else " : "") + test);
      const Region& region = step.regions[static_cast<size_t>(k)];
      std::vector<Location> operands;
      for (size_t i = 1; i < step.in.size(); ++i) operands.push_back(s.at[step.in[i]].share());
      const std::vector<Location> made =
          write_program(*region.program, std::move(operands), leaves_of_region(s, step, region));
      for (size_t i = 0; i < made.size(); ++i) {
        if (!made[i].length.empty()) refuse("branches have results with sizes that are computed");
        if (k == 0) results.push_back(text_.array(made[i].layout->dtype, made[i].layout->dims()));
        if (!same_layout(made[i].layout.v, results[i].layout.v)) refuse("branches have results of different layouts");
        text_.copy(made[i], results[i].base);
      }
      text_.close();
    }
    for (size_t i = 0; i < results.size(); ++i) s.at[step.out[i]] = std::move(results[i]);
  }

  struct LoopParts {
    std::vector<Location> carried, stacked;
    std::string turn;
  };

  // carried = made, all at once.
  void carry_on(std::vector<Location>& made, const std::vector<Location>& carried) {
    for (size_t i = 0; i < carried.size(); ++i) {
      if (!made[i].packed()) refuse("a loop carries a value that is not packed");
      // A result that is another carried value is overwritten below.
      const bool among =
          std::any_of(carried.begin(), carried.end(), [&](const Location& c) { return c.array == made[i].array; });
      if (!among || made[i].address() == carried[i].base) continue;
      Location aside = text_.array(made[i].layout->dtype, made[i].layout->dims());
      text_.copy(made[i], aside.base);
      made[i] = std::move(aside);
    }
    for (size_t i = 0; i < carried.size(); ++i) text_.copy(made[i], carried[i].base);
  }

  void check_turns(const std::string& counter) {
    text_.line("if (" + counter + " % " + number(kInterruptTurns) + " == " + number(kInterruptTurns - 1) +
               ") core->check_interrupt();");
  }

  // Copies the final carried values out of the loop's arrays, so that the compiler can keep those in registers.
  void finish_carried(Scope& s, const Step& step, const std::vector<Location>& carried) {
    for (size_t i = 0; i < carried.size(); ++i) {
      Location y = text_.array(carried[i].layout->dtype, carried[i].layout->dims());
      text_.copy(carried[i], y.base);
      s.at[step.out[i]] = std::move(y);
    }
  }

  void write_while(Scope& s, const Step& step) {
    const auto n_carried = static_cast<size_t>(step.loop->n_carried);
    const Region &condition = step.regions[0], &body = step.regions[1];
    std::vector<Location> begin, carried;
    bool packed = true;
    for (size_t i = 0; i < n_carried; ++i) {
      const Location& x = place(s, step.in[i]);
      packed = packed && x.packed();
      begin.push_back(x.share());
      carried.push_back(text_.array(x.layout->dtype, x.layout->dims()));
    }
    const auto on = [&](const Region& region, const std::vector<Location>& first) {
      std::vector<Location> operands;
      for (size_t i = 0; i < step.in.size(); ++i)
        operands.push_back(i < n_carried ? first[i].share() : s.at[step.in[i]].share());
      return write_program(*region.program, std::move(operands), leaves_of_region(s, step, region));
    };
    const auto turn = [&](const std::vector<Location>& first) {
      std::vector<Location> made = on(body, first);
      carry_on(made, carried);
    };
    const Location turns = text_.array(DType::Int64, {});
    const std::string counter = text_.fresh("t");
    text_.line("int64_t " + counter + " = 0;");
    if (!packed && (reads_layouts(*condition.program) || reads_layouts(*body.program))) {
      text_.open("if (" + on(condition, begin)[0].element("0") + ")");
      text_.line(counter + " = 1;");
      turn(begin);
      text_.close();
      copy_begin(begin, carried, "if (!" + counter + ")");
      text_.open("for (; " + counter + "; ++" + counter + ")");
    } else {
      copy_begin(begin, carried);
      text_.open("for (;; ++" + counter + ")");
    }
    text_.line("if (!" + on(condition, carried)[0].element("0") + ") break;");
    check_turns(counter);
    turn(carried);
    text_.close();
    text_.line(turns.element("0") + " = " + counter + ";");
    finish_carried(s, step, carried);
    s.at[step.out[n_carried]] = turns.share();
  }

  void copy_begin(const std::vector<Location>& begin, const std::vector<Location>& carried,
                  const std::string& test = "") {
    text_.open(test);
    for (size_t i = 0; i < begin.size(); ++i) text_.copy(begin[i], carried[i].base);
    text_.close();
  }

  // Writes one turn on these carried values and copies the next ones to `parts.carried`.
  void write_turn(const Scope& s, const Step& step, const std::vector<Location>& carried, LoopParts& parts) {
    const Loop& loop = *step.loop;
    const Region& region = step.regions[0];
    const size_t n_carried = carried.size(), first_sliced = step.in.size() - static_cast<size_t>(loop.n_sliced);
    std::vector<Location> operands;
    for (size_t i = 0; i < step.in.size(); ++i) {
      const Location& x = i < n_carried ? carried[i] : s.at[step.in[i]];
      operands.push_back(i < first_sliced ? x.share() : slice(x, parts.turn));
    }
    std::vector<Location> made = write_program(*region.program, std::move(operands), leaves_of_region(s, step, region));
    for (size_t i = 0; i < parts.stacked.size(); ++i) {
      const Location &whole = parts.stacked[i], &one = made[n_carried + i];
      if (!one.length.empty()) refuse("a loop stacks values with sizes that are computed");
      const int64_t step_size = whole.layout->ndim ? whole.layout->strides[0] : 0;
      text_.copy(one, whole.base + " + " + parts.turn + " * " + number(step_size));
    }
    carry_on(made, parts.carried);
  }

  Location slice(const Location& x, const std::string& turn) {
    const Value* v = x.layout.v;
    const std::string name = text_.fresh("x");
    text_.line("const " + type_of(v->dtype) + "* const " + name + " = " + x.address() + " + " + turn + " * " +
               number(v->strides[0]) + ";");
    return {make_layout(v->dtype, part_of(x), v->strides + 1), name, 0, x.array};
  }

  // The shape of a part along the first axis.
  static Dims part_of(const Location& x) {
    Dims shape;
    for (int i = 1; i < x.layout->ndim; ++i) shape.push(x.layout->shape[i]);
    return shape;
  }

  static Size length_of(const Location& x) {
    return x.length.empty() ? Size{x.layout->shape[0]} : Size{0, false, x.length};
  }

  void write_loop(Scope& s, const Step& step) {
    const Loop& loop = *step.loop;
    const Size length = size_at(s, loop.length);
    if (!length.known && length.name.empty()) refuse("tensors have sizes that are computed");
    LoopParts parts;
    std::vector<Location> begin;
    bool packed = true;
    for (int i = 0; i < loop.n_carried; ++i) {
      const Location& x = place(s, step.in[static_cast<size_t>(i)]);
      packed = packed && x.packed();
      begin.push_back(x.share());
      parts.carried.push_back(text_.array(x.layout->dtype, x.layout->dims()));
    }
    for (size_t i = 0; i < loop.stacked_shapes.size(); ++i)
      parts.stacked.push_back(sized_array(s, loop.stacked_dtypes[i], loop.stacked_shapes[i]));
    for (size_t i = step.in.size() - static_cast<size_t>(loop.n_sliced); i < step.in.size(); ++i) {
      const Location& x = s.at[step.in[i]];
      if (x.layout->ndim == 0 || length_of(x) != length) refuse("a sliced value has another length than the loop");
    }
    const std::string count = text_.fresh("t"), n = length.known ? text_.word(length.value) : length.name;
    parts.turn = text_.fresh("turn");
    const auto open_turn = [&] {
      text_.line("const int64_t " + parts.turn + " = " + (loop.reverse ? n + " - 1 - " + count : count) + ";");
    };
    // If the first turn's operands have other layouts than those of later turns, it is written separately.
    const bool apart = !packed && reads_layouts(*step.regions[0].program) && !(length.known && length.value == 0);
    if (apart) {
      text_.open("if (" + n + " > 0)");
      text_.line("constexpr int64_t " + count + " = 0;");
      open_turn();
      write_turn(s, step, begin, parts);
      text_.close();
    }
    if (!apart || !length.known) copy_begin(begin, parts.carried, apart ? "if (" + n + " == 0)" : "");
    text_.open("for (int64_t " + count + " = " + (apart ? "1" : "0") + "; " + count + " < " + n + "; ++" + count + ")");
    check_turns(count);
    open_turn();
    write_turn(s, step, parts.carried, parts);
    text_.close();
    finish_carried(s, step, parts.carried);
    for (size_t i = 0; i < parts.stacked.size(); ++i)
      s.at[step.out[parts.carried.size() + i]] = parts.stacked[i].share();
  }

  Text text_;
  bool small_;
  int64_t n_instructions_ = 0;
};

}  // namespace

Generated write_source(const Program& p, Value* const* in, const int64_t* leaf_sizes, bool small) {
  return Source(small).write(p, in, leaf_sizes);
}

}  // namespace wengert::generate
