#include "program.h"

#include <algorithm>

#include "kernels/strided.h"

namespace wengert {

namespace {

constexpr int64_t kMinBlock = 128, kMaxBlock = 1024;

void require(bool holds, const char* what) {
  if (!holds) fail(ErrorKind::value, "program", what);
}

}  // namespace

void FusedGroup::finish() {
  verify();
  for (const FusedRegister& r : registers) max_element = std::max(max_element, size_of(r.dtype));
  pair_up();
  find_lifetimes();
  assign_scratch();
  block = std::clamp(kBlockBytes / (4 * std::max(1, n_scratch)) / 64 * 64, kMinBlock, kMaxBlock);
  fill_constants();
}

// Checks what the executor relies on to compute addresses: row registers are shorter than full ones.
void FusedGroup::verify() const {
  require(!code.empty() && registers.size() <= INT16_MAX, "a group has too few instructions, or too many registers");
  require(row_axes >= 0 && (like < 0 ? row_axes <= shape.n : row_axes == 0), "rows have more axes than the group");
  std::vector<bool> ready;
  for (const FusedRegister& r : registers) ready.push_back(r.input >= 0 || r.constant);
  for (const FusedInstruction& i : code) {
    using Kind = FusedInstruction::Kind;
    require(i.n_in >= 1 && i.n_in <= 3, "a fused instruction has one to three operands");
    const bool reads_rows = i.row || i.kind == Kind::expand, makes_rows = i.row || i.kind == Kind::reduce;
    for (int k = 0; k < i.n_in; ++k) {
      require(i.in[k] >= 0 && i.in[k] < static_cast<int>(ready.size()) && ready[i.in[k]],
              "a fused instruction reads a register that nothing fills");
      require(registers[i.in[k]].row == reads_rows,
              "a fused instruction reads rows for elements, or elements for rows");
    }
    require(i.out >= 0 && i.out < static_cast<int>(ready.size()), "a fused instruction writes to no register");
    const FusedRegister& out = registers[i.out];
    require(!out.constant && out.input < 0 && out.row == makes_rows, "a fused instruction writes to an operand");
    ready[i.out] = true;
  }
  for (size_t k = 0; k < registers.size(); ++k)
    require(registers[k].output < 0 || ready[k], "a group returns a register that nothing fills");
}

// A result with a single reader need not go through memory: if there is a kernel for the pair, both become one.
void FusedGroup::pair_up() {
  std::vector<int> readers(registers.size(), 0), maker(registers.size(), -1);
  for (const FusedInstruction& i : code)
    for (int k = 0; k < i.n_in; ++k) ++readers[i.in[k]];
  std::vector<bool> paired(code.size(), false), gone(code.size(), false);
  for (size_t t = 0; t < code.size(); ++t) {
    FusedInstruction& second = code[t];
    maker[second.out] = static_cast<int>(t);
    if (second.kind != FusedInstruction::Kind::map || second.n_in > 2) continue;
    for (int side = 0; side < second.n_in; ++side) {
      const int16_t between = second.in[side];
      const int m = maker[between];
      if (m < 0 || readers[between] != 1 || registers[between].output >= 0) continue;
      const FusedInstruction& first = code[m];
      if (first.kind != FusedInstruction::Kind::map || first.row != second.row || paired[m] || first.n_in > 2) continue;
      MapFn both = find_pair(first.map, second.map, side == 0);
      if (!both) continue;
      const int16_t other = second.in[1 - side];
      const uint8_t n_other = second.n_in - 1;
      second.n_in = first.n_in + n_other;
      std::copy(first.in, first.in + 3, second.in);
      if (n_other) second.in[first.n_in] = other;
      second.map = both;
      paired[t] = gone[m] = true;
      break;
    }
  }
  size_t kept = 0;
  for (size_t t = 0; t < code.size(); ++t)
    if (!gone[t]) code[kept++] = code[t];
  code.resize(kept);
}

void FusedGroup::find_lifetimes() {
  for (int t = 0; t < static_cast<int>(code.size()); ++t) {
    for (int k = 0; k < code[t].n_in; ++k) registers[code[t].in[k]].last_read = t;
    if (registers[code[t].out].made < 0) registers[code[t].out].made = t;
  }
}

void FusedGroup::assign_scratch() {
  // Linear scan: a register takes the first position whose last reader has already run.
  const int end = static_cast<int>(code.size());
  std::vector<int> free_at;  // position → when it becomes free
  auto place = [&](FusedRegister& r, int from) {
    const int to = r.output >= 0 ? end : std::max(from, r.last_read);
    size_t p = 0;
    while (p < free_at.size() && free_at[p] > from) ++p;
    if (p == free_at.size()) free_at.push_back(0);
    free_at[p] = to + 1;
    r.scratch = static_cast<int32_t>(p);
  };
  // Inputs are loaded before the first instruction, outputs may be stored after the last.
  for (FusedRegister& r : registers)
    if (r.input >= 0) place(r, 0);
  for (const FusedInstruction& i : code)
    if (registers[i.out].scratch < 0) place(registers[i.out], registers[i.out].made);
  n_scratch = static_cast<int>(free_at.size());
}

void FusedGroup::fill_constants() {
  for (FusedRegister& r : registers) {
    if (!r.constant) continue;
    r.filled = static_cast<int32_t>(filled.size());
    filled.resize(filled.size() + static_cast<size_t>(whole_lines(block * size_of(r.dtype))) / sizeof(CacheLine));
    fill(filled[r.filled].bytes, r.bytes, size_of(r.dtype), block);
  }
}

void Program::finish() {
  verify();
  find_drops();
  find_one_block();
  find_heat();
}

void Program::verify_regions(const Step& s) {
  const auto n_in = static_cast<int>(s.in.size());
  for (const Region& r : s.regions) {
    depth = std::max(depth, r.program->depth + 1);
    require(std::count(r.program->outputs.begin(), r.program->outputs.end(), -1) == 0, "a region lacks a result");
    const bool condition = s.loop && s.regions.size() == 2;
    const size_t n_out = !condition ? s.out.size() : &r == s.regions.data() ? 1 : s.out.size() - 1;
    require(r.program->n_inputs == n_in - (s.loop ? 0 : std::max(1, s.n_sizes)) && r.program->outputs.size() == n_out,
            "a step has another number of operands or results than one of its regions");
  }
  if (const Loop* l = s.loop.get())
    require(s.regions.size() <= 2 && l->n_carried >= 0 && l->n_sliced >= 0 && l->n_carried + l->n_sliced <= n_in &&
                l->n_carried + l->stacked_shapes.size() + (s.regions.size() - 1) == s.out.size() &&
                l->stacked_dtypes.size() == l->stacked_shapes.size(),
            "a loop has another number of operands or results than its region");
}

void Program::verify() {
  require(n_inputs >= 0 && n_slots >= n_inputs, "has fewer slots than inputs");
  std::vector<bool> made(n_slots, false);
  std::fill_n(made.begin(), n_inputs, true);
  auto make = [&](int32_t slot) {
    require(slot >= n_inputs && slot < n_slots && !made[slot], "a step writes to a slot that is taken, or to none");
    made[slot] = true;
  };
  auto read = [&](int32_t slot) {
    require(slot >= 0 && slot < n_slots && made[slot], "a step reads a slot that nothing fills");
  };
  for (auto& [slot, value] : constants) make(slot);
  for (const Step& s : steps) {
    for (int32_t slot : s.in) read(slot);
    if (s.group && s.group->like >= 0) read(s.group->like);
    if (s.op)
      require(static_cast<int>(s.out.size()) == s.op->n_outputs &&
                  (s.op->n_inputs < 0 || static_cast<int>(s.in.size()) == s.op->n_inputs),
              "a step has another number of operands or results than its op");
    verify_regions(s);
    for (int32_t slot : s.out) make(slot);
  }
  for (int32_t slot : outputs)
    if (slot != -1) read(slot);
}

namespace {
constexpr int kManyProducts = 1 << 20;  // regions that share a region would double the number with every level
}  // namespace

void Program::find_drops() {
  std::vector<int> last(n_slots, -1);
  for (size_t t = 0; t < steps.size(); ++t) {
    for (int32_t s : steps[t].in) last[s] = static_cast<int>(t);
    for (int32_t s : steps[t].out) last[s] = static_cast<int>(t);
    steps[t].gemm = steps[t].op && steps[t].op->matrix_product;
    n_products += steps[t].op && !steps[t].op->elementwise && steps[t].op->n_inputs >= 2;
    calls_back |= steps[t].owned != nullptr;
    for (const Region& r : steps[t].regions) {
      n_products = std::min(n_products + r.program->n_products, kManyProducts);
      calls_back |= r.program->calls_back;
    }
  }
  std::vector<bool> keep(n_slots, false);
  for (auto& [slot, value] : constants) keep[slot] = true;
  for (int32_t o : outputs)
    if (o >= 0) keep[o] = true;
  for (int s = 0; s < n_slots; ++s) {
    if (keep[s]) continue;
    if (last[s] >= 0)
      (s < n_inputs ? steps[last[s]].drop_input : steps[last[s]].drop).push_back(s);
    else if (s < n_inputs)
      unread.push_back(s);
  }
  for (size_t t = 0; t < steps.size(); ++t) {
    FusedGroup* g = steps[t].group.get();
    for (size_t k = 0; g && k < g->registers.size(); ++k) {
      const int32_t slot = g->registers[k].input;
      if (slot >= 0 && !keep[slot] && last[slot] == static_cast<int>(t)) g->dying.push_back(static_cast<int32_t>(k));
    }
  }
  moves.resize(outputs.size());
  std::vector<bool> moved(n_slots, false);
  for (auto& [slot, value] : constants) moved[slot] = true;  // never moved, because the program owns them
  for (size_t i = outputs.size(); i-- > 0;) {
    if (outputs[i] < 0 || moved[outputs[i]]) continue;
    moves[i] = moved[outputs[i]] = true;
  }
}

void Program::find_one_block() {
  const FusedGroup* g = steps.size() == 1 ? steps[0].group.get() : nullptr;
  if (!g || g->like < 0 || g->registers.size() > OneBlock::kMaxRegisters || !constants.empty()) return;
  auto made = std::make_unique<OneBlock>();
  for (const FusedInstruction& i : g->code)
    if (i.kind != FusedInstruction::Kind::map && i.kind != FusedInstruction::Kind::cast) return;
  for (size_t k = 0; k < g->registers.size(); ++k) {
    const FusedRegister& r = g->registers[k];
    const int16_t at = static_cast<int16_t>(k);
    if (r.input >= 0) {
      if (r.output >= 0) return;
      made->inputs.push_back({r.input, r.dtype, at});
    } else if (r.output >= 0) {
      if (std::count(outputs.begin(), outputs.end(), r.output) != 1) return;
      const auto index = std::find(outputs.begin(), outputs.end(), r.output) - outputs.begin();
      made->outputs.push_back({static_cast<int32_t>(index), r.dtype, at, {}});
      for (int32_t d : g->dying)
        if (g->registers[d].dtype == r.dtype && g->registers[d].last_read <= r.made)
          made->outputs.back().spares.push_back(g->registers[d].input);
    } else if (r.constant) {
      made->constants.push_back({g->filled[r.filled].bytes, at});
    } else {
      made->temporaries.push_back({std::max(r.scratch, 0), at});
    }
  }
  const auto zeros = std::count(outputs.begin(), outputs.end(), -1);
  if (made->outputs.size() + static_cast<size_t>(zeros) != outputs.size()) return;  // an input that is passed through
  one_block = std::move(made);
}

Program::Program()
    : id([] {
        static uint64_t last = 0;
        return ++last;
      }()) {}

namespace {

// About a hundred milliseconds of the executor's work: less is not worth a compiler.
constexpr int64_t kHotLoops = 1'000'000;
// Without loops there is less to gain, and a compiler needs about the time of so many runs.
constexpr int64_t kHotRuns = 100'000;
constexpr int64_t kFewInstructions = 12;  // of an optimizer's rule, say: fewer take as long as a call from Python

}  // namespace

void Program::find_heat() {
  int64_t instructions = 0, dispatched = 0;  // a pair is dispatched as one, but generated code gains from both
  for (const Step& s : steps) {
    instructions += s.group ? static_cast<int64_t>(s.group->source.size()) : 1;
    dispatched += s.group ? static_cast<int64_t>(s.group->code.size()) : 1;
    has_loops |= s.loop != nullptr;
    for (const Region& r : s.regions) has_loops |= r.program->has_loops;
  }
  may_be_hot = has_loops || instructions >= kFewInstructions;
  heat = has_loops ? -kHotLoops : -kHotRuns * dispatched;
}

namespace {

using Programs = std::vector<std::shared_ptr<const Program>>;

void take_regions(Program& p, Programs& to) {
  for (Step& s : p.steps)
    for (Region& r : s.regions) to.push_back(std::move(r.program));
}

}  // namespace

Program::~Program() {
  // The programs that only this one refers to are freed one after the other: nested destructors would need stack.
  Programs nested;
  take_regions(*this, nested);
  while (!nested.empty()) {
    const std::shared_ptr<const Program> p = std::move(nested.back());
    nested.pop_back();
    if (p.use_count() == 1) take_regions(const_cast<Program&>(*p), nested);
  }
  for (auto& [slot, value] : constants) release(value);
  for (auto& list : constants_on)
    for (Value* v : list)
      if (v) release(v);
}

}  // namespace wengert
