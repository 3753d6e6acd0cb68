// The backward walk: visits the recorded nodes from the roots, latest first. A node is pulled back once all its
// cotangents have arrived.
#include "autocast.h"
#include "finite.h"
#include "joined.h"
#include "profile.h"
#include "pull_back.h"
#include "small_array.h"
#include "threads.h"

namespace wengert {

namespace {

constexpr int kNodesPerCheck = 256;  // how often to check for signals

// Whether a node has a cotangent at all.
bool has_bar(Walk& w, const Node* n, uint32_t slot) {
  const Slot& s = w.slot(slot);
  if (s.bar || n->n_outputs == 1 || s.more == kNone) return s.bar != nullptr;
  const auto first = w.lists.more.begin() + s.more;
  return std::any_of(first, first + n->n_outputs - 1, [](const Value* bar) { return bar != nullptr; });
}

void send_all(Walk& w, const Node* n, Value** out, WalkResult& result) {
  int i = 0;
  try {
    for (; i < n->n_edges; ++i) {
      result.edges_computed += out[i] != nullptr;
      if (n->edges[i].node)
        w.send(n->edges[i].node, n->edges[i].output, out[i]);
      else if (out[i])
        release(out[i]);
    }
  } catch (...) {
    release_all(out, i, n->n_edges);
    throw;
  }
}

// Releases what the node saved, and its hooks.
void free_node(Node* n) {
  free_saved(n);
  n->saving = Saving::freed_by_backward;
  // Hooks have been called for the last time, and what they close over may lead back to this node.
  if (n->hooks) tape_hooks.drop_object(std::exchange(n->hooks, nullptr));
  if (n->custom) tape_hooks.drop_object(std::exchange(n->custom, nullptr));  // with the inputs that it keeps
}

// Remembers which cotangents are zero, for explain().
inline void note_zeros(Node* n, Value* const* out) {
  for (int i = 0; i < n->n_edges; ++i) {
    const uint8_t edge = static_cast<uint8_t>(1 << std::min(i, 7));
    if (!out[i] && n->custom) n->zero_edges |= edge;  // its rule gives none
    if (!out[i] || out[i]->device != kCpu) continue;
    const bool f32 = out[i]->dtype == DType::Float32 && out[i]->size;
    if (f32 && *reinterpret_cast<const uint32_t*>(out[i]->data) << 1) continue;
    if (looks_zero(out[i])) n->zero_edges |= edge;
  }
}

void run_node(Walk& w, Node* n, uint32_t slot, WalkResult& result) {
  if (n->saving != Saving::kept && is_freed(n)) [[unlikely]]
    fail_freed(n);
  check_saved(n);
  SmallArray<Value*, 8> out(n->n_edges);
  if (has_bar(w, n, slot)) {
    if (n->saving == Saving::kept) [[likely]]
      pull_back(w, n, slot, [n](int i) { return n->saved[i].value; }, out.data());
    else
      pull_back_replayed(w, n, slot, out.data());
    ++result.nodes_run;
    note_zeros(n, out.data());
  } else {
    std::fill_n(out.data(), n->n_edges, nullptr);
  }
  if (!w.options.retain_graph) {
    if (w.checks == Checks::gradients) [[unlikely]]
      w.ran.push_back(n);
    else
      free_node(n);
  }
  send_all(w, n, out.data(), result);
}

void collect_sources(Walk& w, Node* n, uint32_t slot, WalkResult& result) {
  for (size_t i = 0; i < w.options.sources->size(); ++i) {
    const Edge& e = (*w.options.sources)[i];
    if (e.node != n || result.sources[i]) continue;
    Value* g = w.bar(w.slot(slot), e.output);
    result.reached[i] = true;
    if (!g) continue;
    retain(g);
    result.sources[i] = g;
  }
}

}  // namespace

void keep_grad(Node* n, Value* gradient) {
  if (!n->grad) {
    retain(gradient);
    n->grad = new Alias{1, 0, gradient};
    set_category(gradient->buffer, Category::gradient);
    return;
  }
  // An earlier gradient map may still hold the old sum; `accumulate` adds in place only if nobody does.
  n->grad->base = add_recorded(n->grad->base, gradient);
  set_category(n->grad->base->buffer, Category::gradient);
  ++n->grad->version;
}

Value* accumulate(Value* x, Value* y) {
  static const Op* add = find_op("add");
  static const Attrs none;
  if (x->refs == 1 && x->buffer->refs == 1 && !x->buffer->pinned && !is_managed(x->buffer) && x->buffer->saved == 0 &&
      x->contiguous && y->contiguous && x->dtype == y->dtype && x->size == y->size) {
    Value* in[2] = {x, y};
    release(run_unified(*add, in, 2, x));
    return x;
  }
  Value* in[2] = {x, y};
  Value* sum;
  run_op(*add, in, 2, none, &sum);
  release(x);
  return sum;
}

namespace {

// Calls the gradient hooks of a leaf or another source.
void check_gradients(Walk& w, Node* n, uint32_t slot) {
  if (n->leaf && w.slot(slot).bar && !all_finite(w.slot(slot).bar)) anomaly_hooks.bad_gradient(n, w.slot(slot).bar);
  for (size_t i = 0; w.options.sources && i < w.options.sources->size(); ++i) {
    const Edge& e = (*w.options.sources)[i];
    Value* g = e.node == n ? w.bar(w.slot(slot), e.output) : nullptr;
    if (g && !all_finite(g)) anomaly_hooks.bad_gradient(n, g);
  }
}

void visit(Walk& w, uint32_t slot, WalkResult& result) {
  const WalkOptions& options = w.options;
  Node* n = w.slot(slot).node;
  if (n->hooks && w.slot(slot).bar) {
    Value* changed = tape_hooks.call_hooks(n->hooks, std::exchange(w.slot(slot).bar, nullptr));
    w.slot(slot).bar = changed;  // set after the call, because a hook that raises has consumed the cotangent
  }
  // A leaf reached only by symbolic zeros has a gradient of zeros, not None.
  if (n->leaf && !w.slot(slot).bar) w.slot(slot).bar = zeros(n->types[0]);
  Value* bar = w.slot(slot).bar;
  if (w.checks == Checks::results && (n->leaf || options.sources)) [[unlikely]]
    check_gradients(w, n, slot);
  if (options.sources) collect_sources(w, n, slot, result);
  if (bar && (n->leaf ? options.accumulate : n->retains_grad)) keep_grad(n, bar);
  if (bar && n->id && (n->leaf ? options.all_leaves : n->retains_grad)) {
    result.leaves.emplace_back(n->id, bar);
    retain(bar);
  }
  if (!n->leaf) return run_node(w, n, slot, result);
  release(bar);
  w.slot(slot).bar = nullptr;
  if (n->final_hooks && options.accumulate) tape_hooks.call_final_hooks(n->final_hooks);
}

void note_node(const Node* n, const Value* bar, uint32_t module) {
  TapeNode noted{n->seq,
                 n->leaf ? n->id : 0,
                 n->derivative ? n->derivative->name : n->leaf ? "leaf" : "custom op",
                 {},
                 module,
                 {},
                 0,
                 {}};
  if (n->line.code) noted.line = profile_hooks.share_line(n->line);
  if (n->types)
    noted.type = n->types[0];
  else if (bar)
    noted.type = bar->type();
  for (int i = 0; i < n->n_saved; ++i) noted.saved_bytes += n->saved[i].value->bytes();
  for (int i = 0; i < n->n_edges; ++i)
    if (n->edges[i].node) noted.sources.push_back(n->edges[i].node->seq);
  profile_log.tape.push_back(std::move(noted));
}

[[gnu::noinline, gnu::cold]] void visit_profiled(Walk& w, uint32_t slot, WalkResult& result) {
  const Node* n = w.slot(slot).node;
  ProfiledFor instruction(n->line, n->seq, n->leaf ? nullptr : n->thread);
  if (notes_tape(w.id)) note_node(n, w.slot(slot).bar, instruction.module);
  visit(w, slot, result);
}

void check_loss(const std::vector<Root>& roots) {
  for (const Root& r : roots)
    if (r.value->size == 1 && !all_finite(r.value)) anomaly_hooks.bad_loss(r.value);
}

// Thrown if a gradient is not finite, before any leaf has received its own. The walk is then repeated with every step
// checked.
struct NotFinite {};

// Checks gradients before the first leaf is visited: those of all leaves, or only this one if contributions are
// counted.
void check_leaves(Walk& w, uint32_t slot) {
  for (const Slot& s : w.lists.slots)
    if ((w.counting ? &s == &w.slot(slot) : s.node->leaf) && s.bar && !all_finite(s.bar)) throw NotFinite();
}

WalkResult go(const std::vector<Root>& roots, const WalkOptions& options) {
  AutocastOff off;  // derivatives run in the precision of the op that they differentiate
  Walk w(roots, options);
  WalkResult result;
  if (options.sources) {
    prune(w);
    result.sources.resize(options.sources->size(), nullptr);
    result.reached.resize(options.sources->size(), false);
  }
  if (n_final_hooks && options.accumulate) [[unlikely]]
    count_contributions(w);
  if (memory_pool.limit && (options.accumulate || options.all_leaves) && !n_final_hooks) [[unlikely]]
    require_gradients(w);
  for (const Root& r : roots) {
    if (!r.value->node) continue;
    retain(r.seed);
    w.send(r.value->node, r.value->output, r.seed);
  }
  try {
    int since_check = 0;
    bool leaves_checked = w.checks != Checks::gradients;
    for (uint32_t slot = w.next(); slot != kNone; slot = w.next()) {
      if (!leaves_checked && w.slot(slot).node->leaf) [[unlikely]] {
        check_leaves(w, slot);
        leaves_checked = !w.counting;
      }
      const Value* bar = w.slot(slot).bar;
      if (++since_check == kNodesPerCheck || (bar && bar->size >= KeepAlive::kLarge)) {
        since_check = 0;
        if (void* token = waiting_hooks.enter()) waiting_hooks.leave(token);  // let other threads run now and then
        check_interrupt();
      }
      profiling ? visit_profiled(w, slot, result) : visit(w, slot, result);
    }
    if (w.checks == Checks::gradients)
      for (const Value* v : result.sources)
        if (v && !all_finite(v)) throw NotFinite();
  } catch (...) {
    for (Value* v : result.sources)
      if (v) release(v);
    for (auto& [id, v] : result.leaves) release(v);
    throw;
  }
  for (Node* n : w.ran) free_node(n);
  if (!options.retain_graph && walking.size() == 1) forget_unneeded();
  return result;
}

// While one of these exists, every result is checked.
struct CheckingResults {
  const Checks before = thread_state.checks;
  CheckingResults() { set(Checks::results); }
  ~CheckingResults() { set(before); }
  static void set(Checks c) {
    thread_state.checks = c;
    thread_state.update();
  }
};

WalkResult walk_checked(const std::vector<Root>& roots, const WalkOptions& options) {
  check_loss(roots);
  try {
    return go(roots, options);
  } catch (const NotFinite&) {
  }
  CheckingResults all;
  WalkOptions again = options;
  again.retain_graph = true;
  again.accumulate = false;
  WalkResult found = go(roots, again);  // raises at the first bad step, unless it is finite this time
  for (Value* v : found.sources)
    if (v) release(v);
  for (auto& [id, v] : found.leaves) release(v);
  throw Error(
      ErrorKind::gradient,
      "backward: a gradient was not finite, but was when the pass was repeated to see why; a hook or a custom op "
      "does not do the same twice");
}

}  // namespace

WalkResult walk(const std::vector<Root>& roots, const WalkOptions& options) {
  if (thread_state.checks != Checks::none) [[unlikely]]
    return walk_checked(roots, options);
  if (WalkResult result; walking.empty() && walk_joined(roots, options, result)) return result;
  return go(roots, options);
}

}  // namespace wengert
