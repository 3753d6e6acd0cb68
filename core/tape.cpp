#include "tape.h"

#include <algorithm>
#include <cstdlib>

namespace wengert {

thread_local ThreadState thread_state;
TapeHooks tape_hooks;

namespace {

FreeList<Node> free_nodes;
std::vector<Node*> doomed;  // nodes without references, waiting to be taken apart
bool draining = false;
uint64_t last_id = 0, last_epoch = 0;

Node* new_node() {
  Node* n = static_cast<Node*>(free_nodes.take());
  n->refs = 1;
  n->n_edges = n->n_saved = 0;
  n->leaf = n->freed = n->retains_grad = false;
  n->n_outputs = 1;
  n->walk_id = 0;
  n->epoch = 0;
  n->derivative = nullptr;
  n->edges = n->inline_edges;
  n->saved = n->inline_saved;
  n->sizes = nullptr;
  n->line = {};
  n->id = 0;
  n->grad = nullptr;
  n->hooks = nullptr;
  n->types = nullptr;
  n->custom = nullptr;
  return n;
}

void free_saved(Node* n) {
  for (int i = 0; i < n->n_saved; ++i) {
    note_unsaved(n->saved[i].value->buffer);
    release(n->saved[i].value);
  }
  n->n_saved = 0;
}

void take_apart(Node* n) {
  free_saved(n);
  for (int i = 0; i < n->n_edges; ++i)
    if (n->edges[i].node) release(n->edges[i].node);
  if (n->edges != n->inline_edges) std::free(n->edges);
  if (n->saved != n->inline_saved) std::free(n->saved);
  std::free(n->sizes);
  if (n->grad) release(n->grad);
  if (n->line.code) tape_hooks.drop_line(n->line);
  if (n->hooks) tape_hooks.drop_object(n->hooks);
  if (n->custom) tape_hooks.drop_object(n->custom);
  delete[] n->types;
  free_nodes.give(n);
}

template <class T>
T* room(T* inline_room, size_t n) {
  if (n <= Node::kInline) return inline_room;
  void* p = std::malloc(sizeof(T) * n);
  if (!p) throw std::bad_alloc();
  return static_cast<T*>(p);
}

}  // namespace

void release(Node* n) {
  if (--n->refs) return;
  doomed.push_back(n);
  if (draining) return;
  draining = true;
  while (!doomed.empty()) {
    Node* next = doomed.back();
    doomed.pop_back();
    take_apart(next);
  }
  draining = false;
}

uint64_t new_id() { return ++last_id; }

Node* new_leaf(uint64_t id, uint64_t epoch, const Type& type) {
  Node* n = new_node();
  n->types = new Type[1]{type};
  n->leaf = true;
  n->id = id;
  n->epoch = epoch;
  n->seq = 0;
  return n;
}

void Tape::clear() {
  std::vector<Node*> owned = std::move(nodes);
  nodes.clear();
  for (Node* n : owned) release(n);
}

void start(Tape& t) {
  ThreadState& s = thread_state;
  if (!s.tapes) s.tapes = new std::vector<Tape*>;
  t.epoch = ++last_epoch;
  t.recording = true;
  s.tapes->push_back(&t);
  s.n_tapes = static_cast<int>(s.tapes->size());
}

void stop(Tape& t) {
  ThreadState& s = thread_state;
  t.recording = false;
  if (!s.tapes) return;
  std::erase(*s.tapes, &t);
  s.n_tapes = static_cast<int>(s.tapes->size());
}

bool epoch_active(uint64_t epoch) {
  for (int i = 0; i < thread_state.n_tapes; ++i)
    if ((*thread_state.tapes)[i]->epoch == epoch) return true;
  return false;
}

bool any_tracked(Value* const* in, int n_in) {
  if (!thread_state.grad_enabled) return false;
  for (int i = 0; i < n_in; ++i)
    if (in[i]->node && tracked(in[i])) return true;
  return false;
}

void gather_sizes(const std::vector<SizeLeaf>& leaves, Value* const* in, const Attrs* attrs, int64_t* sizes) {
  for (size_t i = 0; i < leaves.size(); ++i) {
    const SizeLeaf& l = leaves[i];
    sizes[i] = l.kind == SizeLeaf::input ? in[l.source]->shape[l.index] : (*attrs)[l.source].dims[l.index].raw;
  }
}

namespace {

// Edges, order and line: what every recorded node has. `inputs` of length n are the operands with an edge.
void link(Node* n, Value* const* operands, const uint8_t* which, int count) {
  uint64_t seq = 0, epoch = 0;
  bool lasting = false;
  n->edges = room(n->inline_edges, count);
  for (int i = 0; i < count; ++i) {
    Value* v = operands[which ? which[i] : i];
    Node* parent = v->node;
    if (parent) {
      retain(parent);
      seq = std::max(seq, parent->seq);
      if (parent->epoch == 0) lasting = true;
      else epoch = parent->epoch;
    }
    n->edges[i] = {parent, v->output};
  }
  n->n_edges = static_cast<uint16_t>(count);
  n->seq = seq + 1;
  n->epoch = lasting ? 0 : epoch;
  n->line = tape_hooks.source_line();
  for (int i = 0; i < thread_state.n_tapes; ++i) {
    retain(n);
    (*thread_state.tapes)[i]->nodes.push_back(n);
  }
}

void attach(Node* n, Value* const* out, int n_out) {
  n->n_outputs = static_cast<uint8_t>(n_out);
  if (n_out > 1) {
    n->types = new Type[n_out];
    for (int i = 0; i < n_out; ++i) n->types[i] = out[i]->type();
  }
  for (int i = 0; i < n_out; ++i) {
    if (!is_inexact(out[i]->dtype)) continue;
    retain(n);
    out[i]->node = n;
    out[i]->output = static_cast<uint32_t>(i);
  }
}

}  // namespace

Node* record(const Derivative& d, Value* const* in, int n_in, const Attrs* attrs, Value* const* out, int n_out,
             Value* const* residuals) {
  (void)n_in;
  Node* n = new_node();
  n->derivative = &d;
  link(n, in, d.edges.data(), static_cast<int>(d.edges.size()));
  n->saved = room(n->inline_saved, d.saves.size());
  for (const SavedRef& s : d.saves) {
    Value* v;
    if (s.kind == SavedRef::input) {
      v = in[s.index];
      retain(v);
    } else if (s.kind == SavedRef::output) {
      v = alias(out[s.index]);  // without its edge: a node never owns its own output
    } else {
      v = residuals[s.index];
      retain(v);
    }
    note_saved(v->buffer);
    n->saved[n->n_saved++] = {v, v->buffer->version};
  }
  if (!d.sizes.empty()) {
    n->sizes = static_cast<int64_t*>(std::malloc(sizeof(int64_t) * d.sizes.size()));
    gather_sizes(d.sizes, in, attrs, n->sizes);
  }
  attach(n, out, n_out);
  release(n);  // the outputs own it now
  return n;
}

Node* record_custom(void* custom, Value* const* in, int n_in, Value* const* out, int n_out) {
  Node* n = new_node();
  n->custom = custom;
  link(n, in, nullptr, n_in);
  attach(n, out, n_out);
  release(n);
  return n;
}

void apply_derivative(const Derivative& d, Value* const* in, int n_in, const Attrs* attrs, Value** out) {
  if (!d.forward) {
    run_op(*d.op, in, n_in, *attrs, out);
    record(d, in, n_in, attrs, out, d.n_outputs, nullptr);
    return;
  }
  std::vector<int64_t> sizes(d.forward->sizes.leaves.size());
  gather_sizes(d.forward->sizes.leaves, in, attrs, sizes.data());
  std::vector<Value*> results(d.forward->outputs.size());
  run(*d.forward, in, sizes.data(), results.data());
  std::copy(results.begin(), results.begin() + d.n_outputs, out);
  record(d, in, n_in, attrs, out, d.n_outputs, results.data() + d.n_outputs);
  for (size_t i = d.n_outputs; i < results.size(); ++i) release(results[i]);
}

void apply(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  if (!op.differentiable || !any_tracked(in, n_in)) return run_op(op, in, n_in, attrs, out);
  uint64_t mask = 0;
  for (int i = 0; i < n_in && i < 64; ++i)
    if (in[i]->node && tracked(in[i])) mask |= uint64_t{1} << i;
  Derivative* d = nullptr;
  if (op.elementwise && mask < 8) d = op.derivatives[static_cast<int>(in[n_in - 1]->dtype)][mask];
  if (!d) d = tape_hooks.derive(op, in, n_in, attrs, mask);
  apply_derivative(*d, in, n_in, &attrs, out);
}

// ---------------------------------------------------------------------------------------------------- backward

namespace {

uint64_t last_walk = 0;

struct Slot {
  Node* node;
  Value* bar;                // the cotangent of output 0; null: none yet, or a symbolic zero
  std::vector<Value*> more;  // of further outputs
  bool wanted;               // leads to a source
  bool scheduled = false;
};

struct Walk {
  const WalkOptions& options;
  uint64_t id;
  std::vector<Slot> slots;
  std::vector<std::pair<uint64_t, uint32_t>> heap;  // (seq, slot), latest on top
  bool pruned = false;

  explicit Walk(const WalkOptions& o) : options(o), id(++last_walk) {}
  ~Walk() {
    for (Slot& s : slots) {
      if (s.bar) release(s.bar);
      for (Value* v : s.more)
        if (v) release(v);
      release(s.node);
    }
  }

  // A hook may walk the same nodes again; then their marks are not ours any more, and the slot is searched for.
  uint32_t find(Node* n) {
    if (n->walk_id == id) return n->walk_slot;
    if (last_walk != id)
      for (uint32_t i = 0; i < slots.size(); ++i)
        if (slots[i].node == n) return mark(n, i);
    return UINT32_MAX;
  }
  uint32_t mark(Node* n, uint32_t slot) {
    n->walk_id = id;
    n->walk_slot = slot;
    return slot;
  }
  uint32_t slot_of(Node* n) {
    uint32_t s = find(n);
    if (s != UINT32_MAX) return s;
    retain(n);
    slots.push_back({n, nullptr, {}, !pruned});
    return mark(n, static_cast<uint32_t>(slots.size() - 1));
  }

  Value*& bar(Slot& s, uint32_t output) {
    if (output == 0) return s.bar;
    if (s.more.size() < output) s.more.resize(output, nullptr);
    return s.more[output - 1];
  }

  // Takes the gradient's reference; a null gradient is a symbolic zero, which still connects.
  void send(Node* n, uint32_t output, Value* gradient) {
    uint32_t s = slot_of(n);
    if (!slots[s].wanted) {
      if (gradient) release(gradient);
      return;
    }
    if (gradient) {
      Value*& at = bar(slots[s], output);
      if (!at) {
        at = gradient;
      } else {
        Value* sum = wengert::accumulate(at, gradient);
        release(gradient);
        bar(slots[s], output) = sum;
      }
    }
    if (slots[s].scheduled) return;
    slots[s].scheduled = true;
    heap.emplace_back(n->seq, s);
    std::push_heap(heap.begin(), heap.end());
  }
};

// Marks the nodes from which a source can be reached. Slots exist for all nodes after this; the others stay unwanted.
void prune(Walk& w, const std::vector<Root>& roots) {
  w.pruned = true;
  std::vector<Node*> order, todo;
  for (const Root& r : roots)
    if (r.value->node) todo.push_back(r.value->node);
  while (!todo.empty()) {
    Node* n = todo.back();
    todo.pop_back();
    if (w.find(n) != UINT32_MAX) continue;
    w.slot_of(n);
    order.push_back(n);
    for (int i = 0; i < n->n_edges; ++i)
      if (n->edges[i].node) todo.push_back(n->edges[i].node);
  }
  std::sort(order.begin(), order.end(), [](Node* a, Node* b) { return a->seq < b->seq; });
  for (const Edge& e : *w.options.sources)
    if (e.node && w.find(e.node) != UINT32_MAX) w.slots[w.find(e.node)].wanted = true;
  for (Node* n : order)
    for (int i = 0; i < n->n_edges; ++i)
      if (n->edges[i].node && w.slots[w.find(n->edges[i].node)].wanted) w.slots[w.find(n)].wanted = true;
}

uint64_t wanted_edges(Walk& w, const Node* n) {
  uint64_t mask = 0;
  for (int i = 0; i < n->n_edges; ++i)
    if (n->edges[i].node && w.slots[w.find(n->edges[i].node)].wanted) mask |= uint64_t{1} << std::min(i, 63);
  return mask;
}

const Program& vjp_for(Walk& w, Node* n) {
  Derivative& d = const_cast<Derivative&>(*n->derivative);
  if (!w.pruned || n->n_edges > 63) return *d.vjp;
  uint64_t mask = wanted_edges(w, n), all = (uint64_t{1} << n->n_edges) - 1;
  if (mask == all) return *d.vjp;
  for (auto& [known, program] : d.narrowed)
    if (known == mask) return *program;
  d.narrowed.emplace_back(mask, tape_hooks.narrow(d, mask));
  return *d.narrowed.back().second;
}

[[noreturn]] void fail_freed(const Node* n) {
  const char* name = n->derivative ? n->derivative->name.c_str() : "custom op";
  throw Error(ErrorKind::gradient, std::string("backward: the graph of ") + name + " (" +
                                       tape_hooks.describe_line(n->line) +
                                       ") was freed by an earlier backward; pass retain_graph=True to the earlier one");
}

// An array on the stack, as nearly all nodes have few edges; zeroed.
template <class T>
struct SmallArray {
  T inline_[8] = {};
  std::vector<T> many;
  T* at = inline_;
  explicit SmallArray(int n) {
    if (n > 8) at = (many.resize(n), many.data());
  }
  T& operator[](int i) { return at[i]; }
  T* data() { return at; }
};

void run_node(Walk& w, Node* n, uint32_t slot, WalkResult& result) {
  if (n->freed) fail_freed(n);
  check_saved(n);
  const int outputs = n->n_outputs;
  SmallArray<Value*> in(outputs + n->n_saved), out(n->n_edges);
  std::vector<Ref> filled;
  bool any = false;
  for (int i = 0; i < outputs; ++i) {
    in[i] = w.bar(w.slots[slot], i);
    any |= in[i] != nullptr;
  }
  if (any) {
    for (int i = 0; i < outputs; ++i)
      if (!in[i]) {
        filled.emplace_back(zeros(n->types[i].dtype, n->types[i].shape));
        in[i] = filled.back().v;
      }
    if (n->custom) {
      tape_hooks.call_custom(n, in.data(), out.data());
    } else {
      for (int i = 0; i < n->n_saved; ++i) in[outputs + i] = n->saved[i].value;
      const Program& vjp = vjp_for(w, n);
      run(vjp, in.data(), n->sizes, out.data());
    }
    ++result.nodes_run;
  }
  if (!w.options.retain_graph) {
    free_saved(n);
    n->freed = true;
  }
  for (int i = 0; i < n->n_edges; ++i) {
    result.edges_computed += out[i] != nullptr;
    if (n->edges[i].node) w.send(n->edges[i].node, n->edges[i].output, out[i]);
    else if (out[i]) release(out[i]);
  }
}

void collect_sources(Walk& w, Node* n, uint32_t slot, WalkResult& result) {
  for (size_t i = 0; i < w.options.sources->size(); ++i) {
    const Edge& e = (*w.options.sources)[i];
    if (e.node != n || result.sources[i]) continue;
    Value* g = w.bar(w.slots[slot], e.output);
    result.reached[i] = true;
    if (!g) continue;
    retain(g);
    result.sources[i] = g;
  }
}

void keep_grad(Node* n, Value* gradient) {
  if (!n->grad) {
    retain(gradient);
    n->grad = gradient;
    return;
  }
  // An earlier map may still hold the old sum: `accumulate` adds in place only if nobody does.
  n->grad = accumulate(n->grad, gradient);
}

}  // namespace

void check_saved(const Node* n) {
  for (int i = 0; i < n->n_saved; ++i) {
    const Saved& s = n->saved[i];
    if (s.value->buffer->version == s.version) continue;
    SourceLine written = s.value->buffer->written;
    std::string name = n->derivative ? n->derivative->name : "custom op";
    throw Error(ErrorKind::in_place,
                "backward of " + name + ": a value it needs, " + to_string(s.value->type()) +
                    ", was changed in place. It was saved at " + tape_hooks.describe_line(n->line) +
                    " and overwritten at " + tape_hooks.describe_line(written) +
                    "; write to a copy (clone()) or use the out-of-place op");
  }
}

Value* accumulate(Value* x, Value* y) {
  static const Op* add = find_op("add");
  static const Attrs none;
  if (x->refs == 1 && x->buffer->refs == 1 && !x->buffer->pinned && x->buffer->saved == 0 && x->contiguous &&
      y->contiguous && x->dtype == y->dtype && x->size == y->size) {
    MapFn fn = kernels().map[static_cast<int>(Elementwise::add)][static_cast<int>(x->dtype)];
    const void* in[2] = {x->data, y->data};
    fn(x->data, in, x->size);
    return x;
  }
  Value* in[2] = {x, y};
  Value* sum;
  run_op(*add, in, 2, none, &sum);
  release(x);
  return sum;
}

WalkResult walk(const std::vector<Root>& roots, const WalkOptions& options) {
  Walk w(options);
  WalkResult result;
  if (options.sources) {
    prune(w, roots);
    result.sources.resize(options.sources->size(), nullptr);
    result.reached.resize(options.sources->size(), false);
  }
  for (const Root& r : roots) {
    if (!r.value->node) continue;
    retain(r.seed);
    w.send(r.value->node, r.value->output, r.seed);
  }
  int since_check = 0;
  while (!w.heap.empty()) {
    std::pop_heap(w.heap.begin(), w.heap.end());
    uint32_t slot = w.heap.back().second;
    w.heap.pop_back();
    Node* n = w.slots[slot].node;
    if (++since_check == 256) {
      since_check = 0;
      if (tape_hooks.interrupted()) throw Error(ErrorKind::python, "");
    }
    if (n->hooks && w.slots[slot].bar) w.slots[slot].bar = tape_hooks.call_hooks(n->hooks, w.slots[slot].bar);
    // A leaf that was reached by symbolic zeros only has a gradient of zeros, not none.
    if (n->leaf && !w.slots[slot].bar) w.slots[slot].bar = zeros(n->types[0].dtype, n->types[0].shape);
    Value* bar = w.slots[slot].bar;
    if (options.sources) collect_sources(w, n, slot, result);
    if (bar && (n->leaf ? options.accumulate : n->retains_grad)) keep_grad(n, bar);
    if (bar && n->id && (n->leaf ? options.all_leaves : n->retains_grad)) {
      retain(bar);
      result.leaves.emplace_back(n->id, bar);
    }
    if (!n->leaf) run_node(w, n, slot, result);
    // The cotangent is used up: give its memory back before the walk goes on.
    if (w.slots[slot].bar) release(w.slots[slot].bar);
    w.slots[slot].bar = nullptr;
  }
  return result;
}

}  // namespace wengert
