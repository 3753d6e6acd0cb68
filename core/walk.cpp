// The backward walk: visits the recorded nodes from the roots, latest first. A node is pulled back once all its
// cotangents have arrived.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "autocast.h"
#include "finite.h"
#include "joined.h"
#include "ledger.h"
#include "ops/elementwise.h"
#include "profile.h"
#include "small_array.h"
#include "threads.h"

namespace wengert {

namespace {

uint64_t last_walk = 0;
int n_walks = 0;  // walks in progress; hooks and regions may start nested ones

constexpr uint32_t kNone = UINT32_MAX;
constexpr int kNodesPerCheck = 256;  // how often to check for signals

struct Slot {
  Node* node;
  Value* bar;  // the cotangent of output 0; null: none yet, or a symbolic zero
  union {
    uint32_t more;     // where cotangents of further outputs begin, or kNone
    uint32_t awaited;  // of a leaf whose contributions are counted: how many are still to come
  };
  bool wanted;  // leads to a source
  bool scheduled;
};

// x + y, recorded if one of them is tracked. Takes x's reference, borrows y.
Value* add_recorded(Value* x, Value* y) {
  static const Op* add = find_op("add");
  Value* in[2] = {x, y};
  if (!any_tracked(in, 2)) return accumulate(x, y);
  Value* sum = apply_elementwise(*add, in, 2);
  release(x);
  return sum;
}

// The lists of a walk. A finished walk leaves them to the next one, so that their memory is reused.
struct Lists {
  std::vector<Slot> slots;
  std::vector<Value*> more;
  std::vector<std::pair<uint64_t, uint32_t>> heap;  // (seq, slot), latest on top
  std::vector<uint32_t> leaves;                     // slots
};
Lists spare_lists;
constexpr size_t kMostSpare = 1 << 16;  // slots

struct Walk {
  const WalkOptions& options;
  const std::vector<Root>& roots;
  uint64_t id;
  Lists lists;
  // Holds the roots' nodes, which own every node that the walk will meet: a hook may drop the tensors that held them.
  std::vector<Node*> owned;
  uint32_t latest = kNone;  // the scheduled slot that comes next; the others are in the heap
  bool pruned = false;
  bool counting = false;  // contributions to leaves are counted, and a leaf is visited when its last one has arrived
  Checks checks = thread_state.checks;
  std::vector<Node*> ran;  // nodes that keep their saved values until the gradients have been checked

  Walk(const std::vector<Root>& from, const WalkOptions& o) : options(o), roots(from), id(++last_walk) {
    ++n_walks;
    std::swap(lists, spare_lists);
    owned.reserve(roots.size());
    for (const Root& r : roots) {
      if (!r.value->node) continue;
      retain(r.value->node);
      owned.push_back(r.value->node);
    }
  }
  ~Walk() {
    --n_walks;
    for (Slot& s : lists.slots)
      if (s.bar) release(s.bar);
    for (Value* v : lists.more)
      if (v) release(v);
    for (Node* n : owned) release(n);
    lists.slots.clear();
    lists.more.clear();
    lists.heap.clear();
    lists.leaves.clear();
    const size_t room = lists.slots.capacity();
    if (room > spare_lists.slots.capacity() && room <= kMostSpare) std::swap(lists, spare_lists);
  }

  Slot& slot(uint32_t s) { return lists.slots[s]; }

  // A hook may walk the same nodes again and overwrite our marks; then the slot has to be searched for.
  uint32_t find(Node* n) {
    if (n->walk_id == id) return n->walk_slot;
    if (n->walk_id > id)  // a nested walk overwrote the mark
      for (uint32_t i = 0; i < lists.slots.size(); ++i)
        if (lists.slots[i].node == n) return mark(n, i);
    return kNone;
  }
  uint32_t mark(Node* n, uint32_t slot) {
    n->walk_id = id;
    n->walk_slot = slot;
    return slot;
  }
  uint32_t slot_of(Node* n) {
    uint32_t s = find(n);
    if (s != kNone) return s;
    lists.slots.push_back({n, nullptr, kNone, !pruned, false});
    return mark(n, static_cast<uint32_t>(lists.slots.size() - 1));
  }

  Value*& bar(Slot& s, uint32_t output) {
    if (output == 0) return s.bar;
    if (s.more == kNone) {
      s.more = static_cast<uint32_t>(lists.more.size());
      lists.more.resize(lists.more.size() + s.node->n_outputs - 1, nullptr);
    }
    return lists.more[s.more + output - 1];
  }

  // Takes the gradient's reference unless it throws. A null gradient is a symbolic zero; the path still counts as
  // connected.
  void send(Node* n, uint32_t output, Value* gradient) {
    const uint32_t s = slot_of(n);
    if (!slot(s).wanted) {
      if (gradient) release(gradient);
      return;
    }
    if (!slot(s).scheduled) schedule(s);
    if (gradient) {
      Value*& at = bar(slot(s), output);
      if (!at) {
        at = gradient;
      } else if (checks == Checks::results) [[unlikely]] {
        at = add_checked(n, at, gradient);
        release(gradient);
      } else {
        at = add(at, gradient);
        release(gradient);
      }
    }
    if (counting && n->leaf && --slot(s).awaited == 0) lists.leaves.push_back(s);
  }

  // x + y. Takes x's reference, borrows y.
  Value* add(Value* x, Value* y) {
    if (!options.record) [[likely]]
      return wengert::accumulate(x, y);
    return add_recorded(x, y);
  }

  // The same with the result checked. Never in place, so that values checked earlier stay unchanged.
  Value* add_checked(Node* of, Value* x, Value* y) {
    retain(x);
    Value* in[2] = {x, y};
    Value* sum = add(x, y);
    try {
      check_results("the sum of gradients", of, in, 2, &sum, 1);
    } catch (...) {
      release(in[0]);
      release(sum);
      throw;
    }
    release(in[0]);
    return sum;
  }

  // Leaves come last and just wait, unless their contributions are counted. The latest of the other nodes is kept
  // outside the heap, so a chain never touches the heap.
  void schedule(uint32_t s) {
    slot(s).scheduled = true;
    const Node* n = slot(s).node;
    if (n->leaf) {
      if (!counting) lists.leaves.push_back(s);
      return;
    }
    if (latest == kNone) {
      latest = s;
      return;
    }
    if (std::pair(n->seq, s) > std::pair(slot(latest).node->seq, latest)) std::swap(s, latest);
    lists.heap.emplace_back(slot(s).node->seq, s);
    std::push_heap(lists.heap.begin(), lists.heap.end());
  }

  uint32_t next() {
    const uint32_t s = latest;
    if (s != kNone && !(counting && !lists.leaves.empty())) {
      latest = kNone;
      if (!lists.heap.empty()) latest = pop(lists.heap);
      return s;
    }
    if (lists.leaves.empty()) return kNone;
    const uint32_t leaf = lists.leaves.back();
    lists.leaves.pop_back();
    return leaf;
  }

  static uint32_t pop(std::vector<std::pair<uint64_t, uint32_t>>& heap) {
    std::pop_heap(heap.begin(), heap.end());
    const uint32_t s = heap.back().second;
    heap.pop_back();
    return s;
  }
};

// Nodes recorded before every source cannot lead to one, so the search stops there.
uint64_t earliest(const std::vector<Edge>& sources) {
  uint64_t seq = UINT64_MAX;
  for (const Edge& e : sources)
    if (e.node) seq = std::min(seq, e.node->seq);
  return seq;
}

bool is_wanted(Walk& w, Node* n) {
  const uint32_t slot = n ? w.find(n) : kNone;
  return slot != kNone && w.slot(slot).wanted;
}

// Marks the nodes that lead to a source. The others get no slot, or one that stays unwanted.
void prune(Walk& w) {
  w.pruned = true;
  const uint64_t first = earliest(*w.options.sources);
  std::vector<Node*> order, todo;
  for (const Root& r : w.roots)
    if (r.value->node) todo.push_back(r.value->node);
  while (!todo.empty()) {
    Node* n = todo.back();
    todo.pop_back();
    if (n->seq < first || w.find(n) != kNone) continue;
    w.slot_of(n);
    order.push_back(n);
    for (int i = 0; i < n->n_edges; ++i)
      if (n->edges[i].node) todo.push_back(n->edges[i].node);
  }
  std::sort(order.begin(), order.end(), [](Node* a, Node* b) { return a->seq < b->seq; });
  for (const Edge& e : *w.options.sources)
    if (e.node && w.find(e.node) != kNone) w.lists.slots[w.find(e.node)].wanted = true;
  for (Node* n : order)
    for (int i = 0; i < n->n_edges; ++i)
      if (is_wanted(w, n->edges[i].node)) w.slot(w.find(n)).wanted = true;
}

// Gives a slot to every node that the walk will meet.
void find_all(Walk& w) {
  std::vector<Node*> todo;
  for (const Root& r : w.roots)
    if (r.value->node) todo.push_back(r.value->node);
  while (!todo.empty()) {
    Node* n = todo.back();
    todo.pop_back();
    if (w.find(n) != kNone) continue;
    w.slot_of(n);
    for (int i = 0; i < n->n_edges; ++i)
      if (n->edges[i].node) todo.push_back(n->edges[i].node);
  }
}

// Checks a budget before computing anything: at the end of the walk the gradients of all leaves are live, whatever is
// dropped. A gradient that is computed without saved values may be a single broadcast number and is not counted.
void require_gradients(Walk& w) {
  if (!w.pruned) find_all(w);
  std::unordered_set<const Node*> leaves;
  for (const Slot& s : w.lists.slots)
    for (int i = 0; s.wanted && s.node->n_saved && i < s.node->n_edges; ++i) {
      Node* to = s.node->edges[i].node;
      if (to && to->leaf && !to->grad && is_wanted(w, to)) leaves.insert(to);
    }
  size_t bytes = 0;
  for (const Node* n : leaves) {
    size_t size = static_cast<size_t>(size_of(n->types[0].dtype));
    for (Dim d : n->types[0].shape) size *= static_cast<size_t>(d.raw);
    bytes += size;
  }
  require_room_for_gradients(bytes);
}

// Counts the contributions that each leaf will get, if any leaf asks to be told about its last one.
void count_contributions(Walk& w) {
  if (!w.pruned) find_all(w);
  for (const Slot& s : w.lists.slots) w.counting |= s.wanted && s.node->leaf && s.node->final_hooks;
  if (!w.counting) return;
  for (Slot& s : w.lists.slots)
    if (s.node->leaf) s.awaited = 0;
  auto count = [&](Node* to) {
    if (to && to->leaf && is_wanted(w, to)) ++w.slot(w.find(to)).awaited;
  };
  for (const Root& r : w.roots) count(r.value->node);
  for (size_t i = 0; i < w.lists.slots.size(); ++i) {
    const Slot& s = w.lists.slots[i];
    if (!s.wanted || s.node->leaf) continue;
    for (int k = 0; k < s.node->n_edges; ++k) count(s.node->edges[k].node);
  }
}

uint64_t wanted_edges(Walk& w, const Node* n) {
  uint64_t mask = 0;
  for (int i = 0; i < n->n_edges; ++i)
    if (is_wanted(w, n->edges[i].node)) mask |= uint64_t{1} << std::min(i, 63);
  return mask;
}

Derived& vjp_for(Walk& w, Node* n) {
  Derived& vjp = *n->derivative->vjp;
  if (!w.pruned || n->n_edges > 63) return vjp;
  uint64_t mask = wanted_edges(w, n), all = (uint64_t{1} << n->n_edges) - 1;
  return mask == all ? vjp : find_narrowed(vjp, mask);
}

[[noreturn, gnu::noinline]] void fail_overwritten(const Node* n, const Saved& s) {
  std::string name = n->derivative ? n->derivative->name : "custom op";
  throw Error(ErrorKind::in_place, "backward of " + name + ": a value it needs, " + to_string(s.value->type()) +
                                       ", was changed in place. It was saved at " + tape_hooks.describe_line(n->line) +
                                       " and overwritten at " + tape_hooks.describe_line(s.value->buffer->written) +
                                       "; write to a copy (clone()) or use the out-of-place op");
}

// Whether a node has a cotangent at all.
bool has_bar(Walk& w, const Node* n, uint32_t slot) {
  const Slot& s = w.slot(slot);
  if (s.bar || n->n_outputs == 1 || s.more == kNone) return s.bar != nullptr;
  const auto first = w.lists.more.begin() + s.more;
  return std::any_of(first, first + n->n_outputs - 1, [](const Value* bar) { return bar != nullptr; });
}

void release_all(Value** values, int from, int to) {
  for (int i = from; i < to; ++i)
    if (values[i]) release(values[i]);
}

void fill_with_zeros(const Node* n, Value** bars) {
  for (int i = 0; i < n->n_outputs; ++i)
    if (!bars[i]) bars[i] = zeros(n->types[i]);
}

bool reads_missing(const Program& p, Value* const* bars, int n) {
  for (int i = 0; i < n; ++i)
    if (!bars[i] && std::find(p.unread.begin(), p.unread.end(), i) == p.unread.end()) return true;
  return false;
}

// For a node of which only some outputs have a cotangent: the vjp program that takes just those. They are moved to the
// front of the operands, before the saved values. If there is no such program, zeros are filled in for the others.
[[gnu::noinline]] Derived& without_missing(const Walk& w, Derived& vjp, const Node* n, Value** in, int& n_bars) {
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

// While one of these exists, ops belong to the derivative of this node.
struct InDerivativeOf {
  Node* before = std::exchange(thread_state.pulled, nullptr);
  explicit InDerivativeOf(Node* n) { thread_state.pulled = n; }
  ~InDerivativeOf() { thread_state.pulled = before; }
};

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

// Applies the vjp program and records it. Returns false if no operand is tracked; then it can simply be run.
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

// Runs the vjp program and checks its results.
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

// Computes the cotangents of the edges from those of the outputs, which it consumes. `saved(i)` returns a borrowed
// value.
template <class SavedValue>
inline void pull_back(Walk& w, Node* n, uint32_t slot, SavedValue&& saved, Value** out) {
  int n_bars = n->n_outputs;
  SmallArray<Value*, 8> in(n_bars + n->n_saved);
  bool complete = true;
  for (int i = 0; i < n_bars; ++i) {
    in[i] = std::exchange(w.bar(w.slot(slot), i), nullptr);
    complete &= in[i] != nullptr;
  }
  for (int i = 0; i < n->n_saved; ++i) in[n_bars + i] = saved(i);
  Derived* vjp;
  try {
    if (n->custom && !complete) fill_with_zeros(n, in.data());
    vjp = n->custom ? nullptr : &vjp_for(w, n);
    if (vjp && !complete) [[unlikely]]
      vjp = &without_missing(w, *vjp, n, in.data(), n_bars);
  } catch (...) {
    release_all(in.data(), 0, n_bars);
    throw;
  }
  if (!vjp) return run_custom(w, n, in.data(), out);
  if (w.options.record) {
    if (pull_back_recorded(*vjp, n, in.data(), n_bars, out)) return;
    for (int i = 0; i < n->n_saved; ++i) in[n_bars + i] = saved(i);
  }
  if (w.checks == Checks::results) [[unlikely]]
    return run_checked(*vjp, n, in.data(), n_bars, out);
  run(*vjp, in.data(), n->sizes, out, n_bars);
}

// For a node with values in blocks: recomputes them if necessary before touching the cotangents.
[[gnu::noinline]] void pull_back_replayed(Walk& w, Node* n, uint32_t slot, Value** out) {
  std::vector<Ref> restored;
  for (int i = 0; i < n->n_saved; ++i) restored.push_back(wengert::restored(n->saved[i].value));
  pull_back(w, n, slot, [&](int i) { return restored[static_cast<size_t>(i)].v; }, out);
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

uint64_t new_walk_id() { return ++last_walk; }

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

void check_saved(const Node* n) {
  for (int i = 0; i < n->n_saved; ++i)
    if (n->saved[i].value->buffer->version != n->saved[i].version) fail_overwritten(n, n->saved[i]);
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

}  // namespace

namespace {

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
  if (!options.retain_graph && n_walks == 1) forget_unneeded();
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
  if (WalkResult result; n_walks == 0 && walk_joined(roots, options, result)) return result;
  return go(roots, options);
}

}  // namespace wengert
