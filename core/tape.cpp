#include "tape.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "ops/elementwise.h"
#include "small_array.h"

namespace wengert {

constinit thread_local ThreadState thread_state;
int64_t n_final_hooks = 0;
TapeHooks tape_hooks;

namespace {

FreeList<Node> free_nodes;
Node* recorded = nullptr;  // the latest of all recorded nodes
Node* doomed = nullptr;    // unreferenced nodes waiting to be destroyed
bool draining = false;
uint64_t last_id = 0;
uint64_t last_seq = 0;  // shared by all threads, because a graph may span several
uint32_t last_epoch = 0, last_extent = 0;
std::vector<uint32_t> extents;  // extents still open, across all threads

Node* new_node() {
  Node* n = static_cast<Node*>(free_nodes.take());
  n->refs = 1;
  n->n_edges = n->n_saved = 0;
  n->leaf = n->retains_grad = false;
  n->saving = Saving::kept;
  n->zero_edges = 0;
  n->n_outputs = 1;
  n->walk_id = 0;
  n->lifetime = {};
  n->id = 0;
  n->grad = nullptr;
  n->sizes = nullptr;
  n->hooks = nullptr;
  n->types = nullptr;
  n->custom = nullptr;
  n->derivative = nullptr;
  n->edges = n->inline_edges;
  n->saved = n->inline_saved;
  n->line = {};
  n->end = 0;
  return n;
}

void enlist(Node* n) {
  n->previous = recorded;
  n->following = nullptr;
  n->thread = &thread_state;
  if (recorded) recorded->following = n;
  recorded = n;
}

void unlist(Node* n) {
  if (n->previous) n->previous->following = n->following;
  (n->following ? n->following->previous : recorded) = n->previous;
}

// Releases the rarely used fields.
[[gnu::noinline]] void drop_extras(Node* n) {
  if (n->edges != n->inline_edges) std::free(n->edges);
  if (n->saved != n->inline_saved) std::free(n->saved);
  std::free(n->sizes);
  if (n->grad) release(n->grad);
  if (n->hooks) tape_hooks.drop_object(n->hooks);
  if (n->custom) {
    n_final_hooks -= n->leaf;
    tape_hooks.drop_object(n->custom);
  }
  delete[] n->types;
}

// Combines the tests for null, so that the common case takes one branch.
template <class... P>
bool any(P*... p) {
  return (reinterpret_cast<uintptr_t>(p) | ...) != 0;
}

void take_apart(Node* n) {
  free_saved(n);
  for (int i = 0; i < n->n_edges; ++i)
    if (n->edges[i].node) release(n->edges[i].node);
  const bool spilled = n->edges != n->inline_edges || n->saved != n->inline_saved;
  if (spilled || any(n->sizes, n->grad, n->hooks, n->custom, n->types)) drop_extras(n);
  if (n->line.code) tape_hooks.drop_line(n->line);
  if (n->derivative) release(n->derivative);
  if (!n->leaf) unlist(n);
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
  n->next_doomed = doomed;
  doomed = n;
  if (draining) return;
  draining = true;
  while (doomed) {
    Node* next = doomed;
    doomed = next->next_doomed;
    take_apart(next);
  }
  draining = false;
}

uint64_t new_id() { return ++last_id; }
uint64_t last_recorded() { return last_seq; }

void drop_free_objects() {
  free_nodes.trim(0);
  free_values.trim(0);
}

Node* new_leaf(uint64_t id, Lifetime lifetime, const Type& type) {
  Node* n = new_node();
  n->types = new Type[1]{type};
  n->leaf = true;
  n->id = id;
  n->lifetime = lifetime;
  n->seq = ++last_seq;
  return n;
}

void Tape::clear() {
  std::vector<Node*> owned = std::move(nodes);
  nodes.clear();
  for (Node* n : owned) release(n);
  auto logged = std::move(calls);
  calls.clear();
  logged.clear();
  auto held = std::move(handles);
  handles.clear();
  for (auto& [id, handle] : held) release(handle);
  if (!recording) epoch = 0;
}

void start(Tape& t) {
  ThreadState& s = thread_state;
  if (!s.tapes) s.tapes = new std::vector<Tape*>;
  if (!t.epoch) {
    t.epoch = ++last_epoch;
    t.start = last_made();
  }
  t.recording = true;
  s.tapes->push_back(&t);
  s.set_tapes(static_cast<int>(s.tapes->size()));
}

void stop(Tape& t) {
  ThreadState& s = thread_state;
  t.recording = false;
  if (!s.tapes) return;
  std::erase(*s.tapes, &t);
  s.set_tapes(static_cast<int>(s.tapes->size()));
}

void pause_tapes() { thread_state.set_tapes(0); }

void resume_tapes() {
  ThreadState& s = thread_state;
  s.set_tapes(s.tapes ? static_cast<int>(s.tapes->size()) : 0);
}

Tape::~Tape() {
  if (recording) stop(*this);
  clear();
}

Value* tape_handle(uint64_t id, Value* v) {
  std::vector<Tape*>& tapes = *thread_state.tapes;
  Value*& handle = tapes[0]->handles[id];
  if (!handle || handle->buffer != v->buffer || handle->data != v->data) {  // new, or the tensor was rebound
    Value* fresh = alias(v);
    fresh->node = handle ? handle->node : new_leaf(id, {.tape = tapes[0]->epoch}, v->type());
    if (handle) {
      retain(fresh->node);
      release(handle);
    }
    handle = fresh;
  }
  for (size_t i = 1; i < tapes.size(); ++i) {
    Value*& inner = tapes[i]->handles[id];
    if (inner == handle) continue;
    retain(handle);
    if (inner) release(inner);
    inner = handle;
  }
  return handle;
}

uint32_t begin_extent() {
  if (++last_extent == 0) ++last_extent;
  extents.push_back(last_extent);
  ++thread_state.n_extents;
  return last_extent;
}

void end_extent(uint32_t extent) {
  if (std::erase(extents, extent)) --thread_state.n_extents;
}

Lifetime longer(Lifetime a, Lifetime b) {
  if (a.lasting() || b.lasting()) return {};
  if (b.tape) a.tape = b.tape;
  // Extents nest, so the earlier one lasts longer. The difference is signed because the numbers may have wrapped
  // around.
  if (b.extent && (!a.extent || static_cast<int32_t>(b.extent - a.extent) < 0)) a.extent = b.extent;
  return a;
}

bool still_tracked(Lifetime lifetime) {
  for (int i = 0; lifetime.tape && i < thread_state.n_tapes; ++i)
    if ((*thread_state.tapes)[i]->epoch == lifetime.tape) return true;
  return lifetime.extent && std::find(extents.rbegin(), extents.rend(), lifetime.extent) != extents.rend();
}

uint64_t tracked_mask(Value* const* in, int n_in) {
  uint64_t mask = 0;
  if (thread_state.grad_enabled)
    for (int i = 0; i < n_in; ++i) mask |= uint64_t{tracked(in[i])} << std::min(i, kLastBit);
  return mask;
}

bool any_tracked(Value* const* in, int n_in) {
  if (!thread_state.grad_enabled) return false;
  for (int i = 0; i < n_in; ++i)
    if (tracked(in[i])) return true;
  return false;
}

namespace {

// Sets the edges, order and line, which every recorded node has. `which` lists the operands that get an edge; null
// means the first ones.
inline void link(Node* n, Value* const* operands, const uint16_t* which, int count) {
  bool alive = false;
  n->edges = room(n->inline_edges, count);
  for (int i = 0; i < count; ++i) {
    Value* v = operands[which ? which[i] : i];
    Node* parent = v->node;
    if (parent) {
      retain(parent);
      if (active(parent)) {
        n->lifetime = alive ? longer(n->lifetime, parent->lifetime) : parent->lifetime;
        alive = true;
      }
    }
    n->edges[i] = {parent, v->output};
  }
  n->n_edges = static_cast<uint16_t>(count);
  n->seq = ++last_seq;
  n->line = tape_hooks.source_line();
  enlist(n);
  for (int i = 0; i < thread_state.n_tapes; ++i) {
    retain(n);
    (*thread_state.tapes)[i]->nodes.push_back(n);
  }
}

// Marks the end of a path at an integer result of a recorded op.
void end_at_integer(const Node* n, Value* v) {
  if (!n->derivative || v->made) return;
  PathEnd end{.reason = PathEnd::no_derivative, .op = n->derivative->op ? n->derivative->op->name.c_str() : "compiled"};
  for (int i = 0; i < n->n_edges && !end.leaf; ++i)
    if (n->edges[i].node && n->edges[i].node->leaf) end.leaf = n->edges[i].node->id;
  end.line = tape_hooks.source_line();
  mark_end(v, end);
}

[[gnu::noinline]] void attach_all(Node* n, Value* const* out, int n_out) {
  n->n_outputs = static_cast<uint16_t>(n_out);
  if (n_out > 1) {
    n->types = new Type[n_out];
    for (int i = 0; i < n_out; ++i) n->types[i] = out[i]->type();
  }
  for (int i = 0; i < n_out; ++i) {
    if (!is_inexact(out[i]->dtype)) {
      end_at_integer(n, out[i]);
      continue;
    }
    retain(n);
    out[i]->node = n;
    out[i]->output = static_cast<uint32_t>(i);
  }
  release(n);
}

// Makes the outputs own the node. Takes the caller's reference.
inline void attach(Node* n, Value* const* out, int n_out) {
  if (n_out != 1 || !is_inexact(out[0]->dtype)) return attach_all(n, out, n_out);
  out[0]->node = n;
}

}  // namespace

namespace {

// Replaces a saved value by a reference to its block, through a value that nobody else holds. That is how the block
// knows when only recorded instructions still need it.
[[gnu::noinline]] void keep_place(Node* n, Value*& v) {
  if (!block_of(v->buffer)) return;
  Value* kept = place_to_keep(v);
  kept->node = v->node;
  kept->output = v->output;
  if (kept->node) retain(kept->node);
  release(std::exchange(v, kept));
  n->saving = Saving::replayable;
}

}  // namespace

void record(const Derivative& d, Value* const* in, int n_in, const Attrs* attrs, const int64_t* given,
            Value* const* out, Value* const* residuals) {
  Node* n = new_node();
  n->derivative = &d;
  retain(&d);
  link(n, in, d.edges.data(), static_cast<int>(d.edges.size()));
  n->saved = room(n->inline_saved, d.saves.size());
  for (const SavedRef& s : d.saves) {
    Value* v;
    if (s.kind == SavedRef::input) {
      v = in[s.index];
      retain(v);
    } else if (s.kind == SavedRef::output) {
      v = alias(out[s.index]);  // without its edge, because a node never owns its own output
    } else {
      v = residuals[s.index];
      retain(v);
    }
    if (v->buffer->size_class >= kManaged) [[unlikely]]
      keep_place(n, v);
    note_saved(v->buffer);
    n->saved[n->n_saved++] = {v, v->buffer->version};
  }
  for (int i = 0; i < n_in; ++i)
    if (at_end(in[i])) [[unlikely]]
      n->end = in[i]->made;
  if (!d.sizes.empty()) {
    n->sizes = static_cast<int64_t*>(std::malloc(sizeof(int64_t) * d.sizes.size()));
    gather_sizes(d.sizes, in, attrs, given, n->sizes);
  }
  attach(n, out, d.n_outputs);
}

void record_custom(void* custom, Value* const* in, int n_in, Value* const* out, int n_out) {
  Node* n = new_node();
  n->custom = custom;
  link(n, in, nullptr, n_in);
  attach(n, out, n_out);
}

void end_path(const char* op, bool differentiable, Value* const* in, int n_in, Value* const* out, int n_out) {
  PathEnd end{.reason = differentiable ? PathEnd::no_grad : PathEnd::no_derivative, .op = op};
  uint32_t before = 0;
  bool tracked_here = false;
  for (int i = 0; i < n_in; ++i) {
    if (at_end(in[i])) before = in[i]->made;
    if (in[i]->node && in[i]->node->leaf && !end.leaf) end.leaf = in[i]->node->id;
    tracked_here |= in[i]->node != nullptr;
  }
  if (tracked_here) before = 0;  // if two paths meet, keep the one that ends here
  for (int i = 0; i < n_out; ++i) {
    if (out[i]->made) continue;
    if (!before) {
      end.line = tape_hooks.source_line();
      mark_end(out[i], end);
      before = out[i]->made;
    }
    out[i]->made = before;
  }
}

namespace {

void log_on_tapes(const Logged& l, const Work& work) {
  std::vector<Tape*>& tapes = *thread_state.tapes;
  SmallArray<Value*, 8> results(l.n_results);  // symbolic zeros are not results
  Value** end = std::remove_copy(l.results, l.results + l.n_results, results.data(), nullptr);
  const int n = static_cast<int>(end - results.data());
  auto call =
      new_call(std::string(l.name), tapes.back()->start, l.in, l.n_in, results.data(), n, std::min(n, l.n_outputs));
  static_cast<Work&>(*call) = work;
  for (int i = 0; i < l.n_in; ++i)
    if (thread_state.grad_enabled && tracked(l.in[i])) {
      call->operands[i].node = l.in[i]->node;
      call->operands[i].output = l.in[i]->output;
    }
  call->line = tape_hooks.source_line();
  if (l.python) call->python = derive_hooks.share_object(l.python);
  for (Tape* t : tapes) t->calls.push_back(call);
  if (!l.node) return;
  // The call refers to its node; the node's saved results are found by their numbers.
  retain(call->node = l.node);
  if (!l.node->derivative) return;
  for (int i = 0; i < l.node->n_saved; ++i) {
    const SavedRef& s = l.node->derivative->saves[i];
    if (s.kind != SavedRef::input)
      l.node->saved[i].value->made =
          call->first + s.index + (s.kind == SavedRef::residual ? l.node->derivative->n_outputs : 0);
  }
}

// Replaces the node's saved results that became blocks by references to these blocks.
void keep_places(Node* n, const Recipe* made) {
  for (int i = 0; i < n->n_saved; ++i) {
    const Block* b = block_of(n->saved[i].value->buffer);
    if (b && b->recipe == made && n->derivative->saves[i].kind != SavedRef::input) keep_place(n, n->saved[i].value);
  }
}

}  // namespace

void log_call(const Logged& l, Work&& work) {
  if (thread_state.n_tapes) log_on_tapes(l, work);
  if (!thread_state.replays || !thread_state.grad_enabled) return;
  const Recipe* made = remember(std::move(work), tape_hooks.source_line(), l.in, l.n_in, l.results, l.n_results);
  if (made && l.node) keep_places(l.node, made);
}

void check_operands(const Call& call) {
  for (const Call::Operand& o : call.operands)
    if (o.value && o.value->buffer->version != o.version)
      throw Error(ErrorKind::in_place, call.name + " cannot be run again: a tensor it read, " +
                                           to_string(o.value->type()) + ", was changed in place. It was read at " +
                                           tape_hooks.describe_line(call.line) + " and overwritten at " +
                                           tape_hooks.describe_line(o.value->buffer->written) +
                                           "; pass the values for the inputs, or write to a copy (clone())");
}

void log_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value* const* out, Node* node) {
  Work work;
  work.op = &op;
  work.attrs.assign(attrs.v, attrs.v + attrs.n);
  log_call({op.name, in, n_in, out, op.n_outputs, op.n_outputs, node}, std::move(work));
}

namespace {

// A broadcast number is logged as a number.
void log_untracked(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value* const* out) {
  if (n_in == 1 && in[0]->made == Value::kLiteral && is_uniform(out[0]))
    out[0]->made = Value::kLiteral;
  else
    log_op(op, in, n_in, attrs, out);
}

void observe_untracked(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value* const* out) {
  if (thread_state.logs) log_untracked(op, in, n_in, attrs, out);
  if (thread_state.checks == Checks::results)
    check_results(op.name.c_str(), thread_state.pulled, in, n_in, out, op.n_outputs);
}

Node* node_of(const Derivative& d, Value* const* out) {
  for (int i = 0; i < d.n_outputs; ++i)
    if (out[i]->node) return out[i]->node;
  return nullptr;
}

// The list of sizes for a derived program must reach the highest index that the program reads.
void log_program(const Derivative& d, Value* const* in, int n_in, const Attrs* attrs, const int64_t* given,
                 Value* const* results) {
  Work work;
  work.ran = d.forward;
  if (attrs) work.attrs.assign(attrs->v, attrs->v + attrs->n);
  for (const SizeLeaf& l : d.forward->sizes.leaves)
    if (l.kind == SizeLeaf::given && l.index >= static_cast<int32_t>(work.given.size()))
      work.given.assign(given, given + l.index + 1);
  const int n = static_cast<int>(d.forward->outputs.size());
  log_call({d.name, in, n_in, results, n, d.n_outputs, node_of(d, results), d.python}, std::move(work));
}

// Residuals are checked where they are used, in the derivative.
void observe_program(const Derivative& d, Value* const* in, int n_in, const Attrs* attrs, const int64_t* given,
                     Value* const* results) {
  if (thread_state.logs) log_program(d, in, n_in, attrs, given, results);
  if (thread_state.checks == Checks::results)
    check_results(d.name.c_str(), thread_state.pulled, in, n_in, results, d.n_outputs);
}

const Attrs kNoAttrs;

// The forward program of a derivative, recorded: the outputs of its node.
void apply_program(const Derivative& d, Value* const* in, int n_in, const Attrs* attrs, const int64_t* given,
                   Value** out) {
  const Program& forward = *d.forward;
  SmallArray<int64_t, 16> sizes(forward.sizes.leaves.size());
  gather_sizes(forward.sizes.leaves, in, attrs, given, sizes.data());
  SmallArray<Value*, 16> results(forward.outputs.size());
  run(forward, in, sizes.data(), results.data());
  std::copy_n(results.data(), d.n_outputs, out);
  if (d.n_outputs) record(d, in, n_in, attrs, given, out, results.data() + d.n_outputs);
  if (thread_state.observed) [[unlikely]]
    observe_program(d, in, n_in, attrs, given, results.data());
  for (size_t i = d.n_outputs; i < forward.outputs.size(); ++i) release(results[i]);
}

Value* shared(Value* v) {
  retain(v);
  return v;
}

}  // namespace

void record_op(const Op& op, const Derivative& d, Value* const* in, int n_in, const Attrs& attrs, Value* const* out) {
  record(d, in, n_in, &attrs, nullptr, out, nullptr);
  if (!thread_state.observed) [[likely]]
    return;
  if (thread_state.logs) log_op(op, in, n_in, attrs, out, node_of(d, out));
  if (thread_state.checks == Checks::results)
    check_results(op.name.c_str(), thread_state.pulled, in, n_in, out, op.n_outputs);
}

void apply_derivative(const Derivative& d, Value* const* in, int n_in, const Attrs* attrs, Value** out) {
  if (d.forward) return apply_program(d, in, n_in, attrs, nullptr, out);
  run_op(*d.op, in, n_in, *attrs, out);
  record_op(*d.op, d, in, n_in, *attrs, out);
}

namespace {

void log_plain(const Derived& p, Value* const* in, int n_in, const int64_t* given, Value* const* out) {
  Work work;
  work.ran = p.program;
  work.given.assign(given, given + p.n_given);
  work.sizes_given = p.all_given;
  const int n = static_cast<int>(p.program->outputs.size());
  log_call({"", in, n_in, out, n, n, nullptr, p.python}, std::move(work));
}

void observe_plain(const Derived& p, Value* const* in, int n_in, const int64_t* given, Value* const* out) {
  if (thread_state.logs) log_plain(p, in, n_in, given, out);
  if (thread_state.checks == Checks::results) {
    const char* name = thread_state.pulled ? "" : p.program->name.c_str();  // of a node: the node's
    check_results(name, thread_state.pulled, in, n_in, out, static_cast<int>(p.program->outputs.size()));
  }
}

}  // namespace

void apply(Derived& p, Value* const* in, int n_in, const int64_t* given, Value** out) {
  KeepAlive kept(in, n_in);
  const uint64_t mask = tracked_mask(in, n_in);
  if (!mask) {
    run(p, in, given, out);
    if (thread_state.observed) [[unlikely]]
      observe_plain(p, in, n_in, given, out);
    return;
  }
  const Derivative& d = find_derivative(p, in, n_in, given, mask);
  SmallArray<Value*, 8> results(d.n_outputs);
  apply_program(d, in, n_in, nullptr, given, results.data());
  for (size_t i = 0; i < d.outputs.size(); ++i) {
    const OutputRef o = d.outputs[i];
    out[i] = o.kind == OutputRef::none ? nullptr : shared(o.kind == OutputRef::input ? in[o.index] : results[o.index]);
  }
  for (int i = 0; i < d.n_outputs; ++i) release(results[i]);
}

void apply(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  KeepAlive kept(in, n_in);
  const uint64_t mask = op.differentiable ? tracked_mask(in, n_in) : 0;
  if (!mask) {
    run_op(op, in, n_in, attrs, out);
    if (thread_state.observed) [[unlikely]]
      observe_untracked(op, in, n_in, attrs, out);
    if (led_to_leaves(in, n_in)) [[unlikely]]
      end_path(op.name.c_str(), op.differentiable, in, n_in, out, op.n_outputs);
    return;
  }
  const Derivative* known = nullptr;
  if (op.elementwise && mask < 8) known = op.derivatives[static_cast<int>(in[n_in - 1]->dtype)][mask];
  if (known) return apply_derivative(*known, in, n_in, &attrs, out);
  apply_derivative(*find_derivative(op, in, n_in, attrs, mask).held, in, n_in, &attrs, out);
}

Value* apply_elementwise(const Op& op, Value* const* in, int n_in) {
  KeepAlive kept(in, n_in);
  unsigned mask = 0;
  if (op.differentiable && thread_state.grad_enabled)
    for (int i = 0; i < n_in; ++i) mask |= unsigned{tracked(in[i])} << i;
  if (!mask) {
    Value* y = run_unified(op, in, n_in);
    if (thread_state.observed) [[unlikely]]
      observe_untracked(op, in, n_in, kNoAttrs, &y);
    if (led_to_leaves(in, n_in)) [[unlikely]]
      end_path(op.name.c_str(), op.differentiable, in, n_in, &y, 1);
    return y;
  }
  const Derivative* d = op.derivatives[static_cast<int>(in[n_in - 1]->dtype)][mask];
  Value* y;
  if (!d) [[unlikely]] {
    apply_derivative(*find_derivative(op, in, n_in, kNoAttrs, mask).held, in, n_in, &kNoAttrs, &y);
  } else if (d->forward) {
    apply_program(*d, in, n_in, &kNoAttrs, nullptr, &y);
  } else {
    y = run_unified(op, in, n_in);
    record_op(op, *d, in, n_in, kNoAttrs, &y);
  }
  return y;
}

const Node* latest_recorded() { return recorded; }

void clear_recorded() {
  // Freeing a saved value may free other nodes and change the list, so each node is held while it is visited.
  Node* n = recorded;
  if (n) retain(n);
  while (n) {
    if (n->thread == &thread_state && !is_freed(n)) {
      free_saved(n);
      n->saving = Saving::freed_by_clear;
    }
    Node* before = n->previous;
    if (before) retain(before);
    release(n);
    n = before;
  }
}

}  // namespace wengert
