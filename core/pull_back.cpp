#include "pull_back.h"

namespace wengert {

namespace {

[[noreturn, gnu::noinline]] void fail_overwritten(const Node* n, const Saved& s) {
  std::string name = n->derivative ? n->derivative->name : "custom op";
  throw Error(ErrorKind::in_place, "backward of " + name + ": a value it needs, " + to_string(s.value->type()) +
                                       ", was changed in place. It was saved at " + tape_hooks.describe_line(n->line) +
                                       " and overwritten at " + tape_hooks.describe_line(s.value->buffer->written) +
                                       "; write to a copy (clone()) or use the out-of-place op");
}

bool reads_missing(const Program& p, Value* const* bars, int n) {
  for (int i = 0; i < n; ++i)
    if (!bars[i] && std::find(p.unread.begin(), p.unread.end(), i) == p.unread.end()) return true;
  return false;
}

// While one of these exists, ops belong to the derivative of this node.
struct InDerivativeOf {
  Node* before = std::exchange(thread_state.pulled, nullptr);
  explicit InDerivativeOf(Node* n) { thread_state.pulled = n; }
  ~InDerivativeOf() { thread_state.pulled = before; }
};

}  // namespace

void fill_with_zeros(const Node* n, Value** bars) {
  for (int i = 0; i < n->n_outputs; ++i)
    if (!bars[i]) bars[i] = zeros(n->types[i]);
}

Derived& without_missing(const Walk& w, Derived& vjp, const Node* n, Value** in, int& n_bars) {
  if (!w.options.record && !reads_missing(*vjp.program, in, n_bars)) {
    static Value* const anything = scalar(DType::Float32, 0);
    for (int i = 0; i < n_bars; ++i)
      if (!in[i]) retain(in[i] = anything);
    return vjp;
  }
  if (n_bars <= kLastBit) {
    SmallArray<Value*, 8> there(n_bars + n->n_saved);
    uint64_t mask = 0;
    int count = 0;
    for (int i = 0; i < n_bars; ++i) {
      if (!in[i]) continue;
      mask |= uint64_t{1} << i;
      there[count++] = in[i];
    }
    std::copy_n(in + n_bars, n->n_saved, there.data() + count);
    std::vector<Ref> absent;
    const auto complete = [&] {
      std::vector<Value*> all(in, in + n_bars + n->n_saved);
      for (int i = 0; i < n_bars; ++i)
        if (!all[i]) all[i] = absent.emplace_back(zeros(n->types[i])).v;
      return all;
    };
    if (Derived* partial = find_partial(vjp, there.data(), n->sizes, n_bars, mask, complete)) {
      std::copy_n(there.data(), count + n->n_saved, in);
      n_bars = count;
      return *partial;
    }
  }
  fill_with_zeros(n, in);
  return vjp;
}

void run_custom(const Walk& w, Node* n, Value** bars, Value** out) {
  std::fill_n(out, n->n_edges, nullptr);
  const InDerivativeOf scope(n);
  try {
    tape_hooks.call_custom(n, bars, out, w.options.record);
    if (w.checks == Checks::results) check_results("custom", n, bars, n->n_outputs, out, n->n_edges);
  } catch (...) {
    release_all(out, 0, n->n_edges);
    release_all(bars, 0, n->n_outputs);
    throw;
  }
  release_all(bars, 0, n->n_outputs);
}

bool pull_back_recorded(Derived& vjp, Node* n, Value** in, int n_bars, Value** out) {
  const int count = n_bars + n->n_saved;
  for (int i = 0; i < n->n_saved; ++i) in[n_bars + i] = saved_operand(n, i);
  const bool tracked = any_tracked(in, count);
  const InDerivativeOf scope(n);
  try {
    if (tracked) apply(vjp, in, count, n->sizes, out);
  } catch (...) {
    release_all(in, 0, count);
    throw;
  }
  release_all(in, tracked ? 0 : n_bars, count);
  return tracked;
}

void run_checked(Derived& vjp, Node* n, Value** in, int n_bars, Value** out) {
  std::fill_n(out, n->n_edges, nullptr);
  try {
    run(vjp, in, n->sizes, out);
    check_results(n->derivative->name.c_str(), n, in, n_bars + n->n_saved, out, n->n_edges);
  } catch (...) {
    release_all(out, 0, n->n_edges);
    release_all(in, 0, n_bars);
    throw;
  }
  release_all(in, 0, n_bars);
}

void pull_back_replayed(Walk& w, Node* n, uint32_t slot, Value** out) {
  std::vector<Ref> restored;
  for (int i = 0; i < n->n_saved; ++i) restored.push_back(wengert::restored(n->saved[i].value));
  pull_back(w, n, slot, [&](int i) { return restored[static_cast<size_t>(i)].v; }, out);
}

Value* saved_operand(Node* n, int i) {
  Value* v = n->saved[i].value;
  const SavedRef& ref = n->derivative->saves[i];
  const bool output = ref.kind == SavedRef::output && is_inexact(v->dtype);  // as when recording, integers have no edge
  if (n->saving == Saving::kept && !output) {
    retain(v);
    return v;
  }
  Value* attached = n->saving == Saving::kept ? alias(v) : restored(v).take();
  attached->node = output ? n : v->node;
  attached->output = output ? ref.index : v->output;
  if (attached->node) retain(attached->node);
  return attached;
}

void fail_freed(const Node* n) {
  const char* name = n->derivative ? n->derivative->name.c_str() : "custom op";
  const char* why = n->saving == Saving::freed_by_clear
                        ? ") was freed by autograd.clear(); compute the result again, or call backward before clear()"
                        : ") was freed by an earlier backward; pass retain_graph=True to the earlier one";
  throw Error(ErrorKind::gradient,
              std::string("backward: the graph of ") + name + " (" + tape_hooks.describe_line(n->line) + why);
}

void check_saved(const Node* n) {
  for (int i = 0; i < n->n_saved; ++i)
    if (n->saved[i].value->buffer->version != n->saved[i].version) fail_overwritten(n, n->saved[i]);
}

}  // namespace wengert
