#include "tasks.h"

#include <algorithm>

namespace wengert::cuda {

Range range_of(const Value* v) {
  if (v->size == 0) return {};
  int64_t low = 0, high = 0;
  for (int i = 0; i < v->ndim; ++i) {
    const int64_t reach = (v->shape[i] - 1) * v->strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const int64_t element = size_of(v->dtype);
  return {v->data + low * element, v->data + (high + 1) * element};
}

int64_t ElementCall::size() const {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return n;
}

int64_t ElementCall::rows() const {
  int64_t n = 1;
  for (size_t k = 0; k + static_cast<size_t>(row_axes) < shape.size(); ++k) n *= shape[k];
  return n;
}

bool ElementCall::is_packed(const int64_t* over) const {
  int64_t expected = 1;
  for (size_t a = shape.size(); a-- > 0; expected *= shape[a])
    if (shape[a] != 1 && over[a] != expected) return false;
  return true;
}

int ElementCall::written_at(const void* data, DType dtype) const {
  size_t output = 0;
  for (size_t k = 0; k < chain->registers.size(); ++k) {
    const Chain::Register& r = chain->registers[k];
    if (!r.output || out[output++] != data) continue;
    return r.row || r.dtype != dtype ? -1 : static_cast<int>(k);
  }
  return -1;
}

void Recording::add_block(const char* begin, size_t bytes) {
  const char* end = begin + std::max<size_t>(bytes, 1);
  auto [found, added] = blocks_.try_emplace(begin, end);
  if (!added) found->second = std::max(found->second, end);
}

const char* Recording::block_of(const void* p) const {
  auto found = blocks_.upper_bound(static_cast<const char*>(p));
  if (found == blocks_.begin()) return nullptr;
  --found;
  return p < found->second ? found->first : nullptr;
}

int Recording::register_of(const ElementCall& call, const void* array, DType dtype, int64_t size) const {
  if (call.size() != size) return -1;
  const char* block = block_of(array);
  int found = -1;
  size_t input = 0;
  for (size_t k = 0; k < call.chain->registers.size(); ++k) {
    const Chain::Register& r = call.chain->registers[k];
    if (!r.input) continue;
    const Operand& operand = call.in[input++];
    if (operand.number || block_of(operand.data) != block) continue;
    if (operand.data != array || r.row || r.dtype != dtype || !call.is_packed(operand.strides) || found >= 0) return -1;
    found = static_cast<int>(k);
  }
  return found;
}

namespace {

void add_once(std::vector<const char*>& list, const char* block) {
  if (block && std::find(list.begin(), list.end(), block) == list.end()) list.push_back(block);
}

}  // namespace

// Kernels write at their first words, and read wherever another word points to; a chain says more.
void Recording::add(BodyKernel& kernel, int64_t grid, const std::vector<int64_t>& words, int results) {
  Task& t = tasks.emplace_back();
  t.kernel = &kernel;
  t.grid = grid;
  t.words = words;
  for (size_t k = 0; k < words.size(); ++k)
    add_once(k < static_cast<size_t>(results) ? t.writes : t.reads, block_of(reinterpret_cast<const void*>(words[k])));
}

void Recording::add_library(const Product& p) {
  Task& t = tasks.emplace_back();
  t.product = p;
  add_once(t.writes, block_of(p.y));
  for (const void* operand : {p.a.data, p.b.data}) add_once(t.reads, block_of(operand));
}

void Recording::describe_draw(int32_t word, int key, int counter) {
  if (!step_) return;
  const Dims &keys = step_->attrs[key].dims, &counters = step_->attrs[counter].dims;
  for (Dim d : {keys[0], keys[1], counters[0]}) {
    tasks.back().numbers.push_back({word++, nullptr, 8, d});
    draws.emplace(step_, d.raw);
  }
}

void Recording::describe_chain(const Chain& chain, const Space& space, const Operand* in, void* const* out) {
  Task& t = tasks.back();
  t.reads.clear();
  t.writes.clear();
  int32_t at = 0, n_in = 0;
  for (const Chain::Register& r : chain.registers)
    if (r.output) add_once(t.writes, block_of(out[at++]));
  for (const Chain::Register& r : chain.registers) {
    if (!r.input) continue;
    const Operand& operand = in[n_in++];
    if (operand.number)
      t.numbers.push_back({at, operand.data, size_of(r.dtype)});
    else
      add_once(t.reads, block_of(operand.data));
    at += operand.number && size_of(r.dtype) > 8 ? 2 : 1;
  }
  auto call = std::make_shared<ElementCall>();
  call->chain = &chain;
  call->shape.assign(space.shape, space.shape + space.ndim);
  call->row_axes = space.row_axes;
  call->in.assign(in, in + n_in);
  int n_out = 0, k = 0;
  for (const Chain::Register& r : chain.registers) {
    n_out += r.output;
    if (!r.input) continue;
    Operand& operand = call->in[static_cast<size_t>(k++)];
    call->strides.emplace_back(operand.strides, operand.strides + space.ndim - (r.row ? space.row_axes : 0));
    operand.strides = call->strides.back().data();
    if (!operand.number) continue;
    const auto* bytes = static_cast<const char*>(operand.data);
    call->numbers.emplace_back(bytes, bytes + size_of(r.dtype));
    operand.data = call->numbers.back().data();
  }
  call->out.assign(out, out + n_out);
  t.elements = std::move(call);
}

void drop(std::vector<Task>& tasks, const std::vector<bool>& gone) {
  size_t kept = 0;
  for (size_t t = 0; t < tasks.size(); ++t) {
    if (gone[t]) continue;
    if (kept != t) tasks[kept] = std::move(tasks[t]);
    ++kept;
  }
  tasks.resize(kept);
}

}  // namespace wengert::cuda
