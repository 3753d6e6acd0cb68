// Programs of one fused group on operands that fit one block: nothing is planned, and no thread is asked.
#include <algorithm>

#include "kernels/strided.h"
#include "profile.h"
#include "run.h"

namespace wengert {

namespace {

// An owned input that nobody else sees, whose memory a result of the same shape can reuse.
Value* spare_input(const OneBlock::Output& o, Value* const* in, int given, const Value* like) {
  for (int32_t slot : o.spares)
    if (slot < given && reusable(in[slot]) && same_shape(in[slot], like)) return in[slot];
  return nullptr;
}

void run_code(const FusedGroup& g, char* const* at, int64_t n) {
  for (const FusedInstruction& i : g.code) {
    const void* in[3] = {at[i.in[0]], at[i.in[1]], at[i.in[2]]};  // unused operands alias register 0
    if (i.kind == FusedInstruction::Kind::map)
      i.map(at[i.out], in, n);
    else
      i.cast(at[i.out], in[0], n);
  }
}

[[gnu::noinline, gnu::cold]] void run_code_profiled(const Program& p, Value* const* in, char* const* at, int64_t n) {
  int64_t bytes = 0;
  for (const OneBlock::Input& i : p.one_block->inputs) bytes += in[i.slot]->bytes();
  for (const OneBlock::Output& o : p.one_block->outputs) bytes += n * size_of(o.dtype);
  ProfiledRun event(*p.steps[0].group, n, 1, bytes);
  run_code(*p.steps[0].group, at, n);
  event.done(nullptr, 0);
}

}  // namespace

bool run_one_block(const Program& p, Value* const* in, Value** out, int given) {
  const OneBlock& b = *p.one_block;
  const FusedGroup& g = *p.steps[0].group;
  const Value* like = in[g.like];
  const int64_t n = like->size, scratch_bytes = whole_lines(n * g.max_element) + 64;
  CacheLine memory[2 * kBlockBytes / sizeof(CacheLine)];
  if (n > g.block || n == 0 || g.n_scratch * scratch_bytes > static_cast<int64_t>(sizeof memory)) return false;
  char* at[OneBlock::kMaxRegisters];
  at[0] = nullptr;
  int64_t used = g.n_scratch * scratch_bytes;
  const auto repeated = [&](const Value* number) -> char* {  // null: it does not fit
    char* block = memory[0].bytes + used;
    if ((used += scratch_bytes) > static_cast<int64_t>(sizeof memory)) return nullptr;
    fill(block, number->data, size_of(number->dtype), n);
    return block;
  };
  for (const OneBlock::Input& i : b.inputs) {
    const Value* v = in[i.slot];
    if (v->size != n || v->dtype != i.dtype) return false;
    at[i.at] = v->contiguous ? v->data : is_uniform(v) ? repeated(v) : nullptr;
    if (!at[i.at]) return false;
  }
  for (const OneBlock::Constant& c : b.constants) at[c.at] = const_cast<char*>(c.data);
  for (const OneBlock::Temporary& t : b.temporaries) at[t.at] = memory[0].bytes + t.position * scratch_bytes;
  std::fill_n(out, p.outputs.size(), nullptr);
  try {
    for (const OneBlock::Output& o : b.outputs) {
      Value* y = spare_input(o, in, given, like);
      if (y)
        retain(y);
      else
        y = empty_like(like, o.dtype);
      out[o.index] = y;
      at[o.at] = y->data;
    }
  } catch (...) {
    for (size_t i = 0; i < p.outputs.size(); ++i)
      if (out[i]) release(out[i]);
    for (int i = 0; i < given; ++i) release(in[i]);
    throw;
  }
  ++run_counters.steps;
  ++run_counters.groups;
  run_counters.instructions += static_cast<int64_t>(g.code.size());
  if (profiling) [[unlikely]]
    run_code_profiled(p, in, at, n);
  else
    run_code(g, at, n);
  for (int i = 0; i < given; ++i) release(in[i]);
  return true;
}

}  // namespace wengert
