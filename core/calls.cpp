#include "calls.h"

#include <algorithm>

#include "small_array.h"

namespace wengert {

namespace {

uint32_t last = 0;  // shared by all tapes, because a value may be made under one tape and read under another

uint32_t next_numbers(int n) {
  const auto count = static_cast<uint32_t>(n);
  if (last >= Value::kFirstSpecial - count) last = 0;  // wraps around after four billion results
  last += count;
  return last - count + 1;
}

}  // namespace

Call::~Call() {
  for (const Operand& o : operands)
    if (o.value) release(o.value);
  if (node) release(node);
  if (python) derive_hooks.drop_object(python);
  if (line.code) drop_source_line(line);
}

uint32_t last_made() { return last; }

void number_result(Value* v) {
  if (v->made == 0 || v->made >= Value::kFirstSpecial) v->made = next_numbers(1);
}

std::shared_ptr<Call> new_call(std::string name, uint32_t start, Value* const* in, int n_in, Value* const* out,
                               int n_results, int n_outputs) {
  auto call = std::make_shared<Call>();
  call->name = std::move(name);
  call->n_outputs = n_outputs;
  for (int i = 0; i < n_in; ++i) {
    const bool outside = in[i]->made <= start || in[i]->made >= Value::kFirstSpecial;
    if (outside) retain(in[i]);
    call->operands.push_back({in[i]->made, in[i]->buffer->version, outside ? in[i] : nullptr, in[i]->type()});
  }
  call->first = next_numbers(n_results);
  for (int i = 0; i < n_results; ++i) {
    call->results.push_back(out[i]->type());
    out[i]->made = call->first + static_cast<uint32_t>(i);
  }
  return call;
}

void run_again(const Work& work, Value* const* in, int n_in, Value** out) {
  Attrs attrs;
  for (const Attr& a : work.attrs) attrs.add(a.kind) = a;
  if (work.op) return run_op(*work.op, in, n_in, attrs, out);
  if (work.sizes_given) return run(*work.ran, in, work.given.data(), out);
  SmallArray<int64_t, 16> sizes(work.ran->sizes.leaves.size());
  gather_sizes(work.ran->sizes.leaves, in, &attrs, work.given.data(), sizes.data());
  run(*work.ran, in, sizes.data(), out);
}

}  // namespace wengert
