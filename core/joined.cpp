#include "joined.h"

#include <algorithm>
#include <array>

#include "finite.h"
#include "profile.h"
#include "replay.h"
#include "small_array.h"
#include "walk_state.h"

namespace wengert {

std::shared_ptr<Program> (*join_steps)(const std::vector<Type>& inputs, const std::vector<JoinedStep>& steps,
                                       size_t n_leaves) = nullptr;
JoinedCounters joined_counters;
int join_after = 2;

namespace {

constexpr size_t kMostNodes = 2048;
constexpr size_t kMostBytes = size_t{4} << 20;  // of saved values, which a joined program only frees at its end
constexpr size_t kStarts = 64;                  // places in the user's program where backward starts
constexpr size_t kMostForms = 4;                // per place, for different sizes
constexpr int kMostFailures = 8;

bool same_layout(const Value* a, const Value* b) {
  return a->dtype == b->dtype && same_shape(a, b) && std::equal(a->strides, a->strides + a->ndim, b->strides);
}

// What a walk meets below its root, with nodes in order of discovery. If it has sources, that is what leads to them.
struct Graph {
  static constexpr uint32_t kNone = UINT32_MAX;
  std::vector<Node*> nodes;
  std::vector<uint64_t> words;  // describe derivatives, edges and the types of saved values
  std::vector<Value*> inputs;   // the seed; each saved value once
  std::vector<int> saved;       // the input index of each saved value, node by node
  std::vector<int64_t> sizes;   // given to the derivative programs, node by node
  std::vector<uint32_t> asked;  // the numbers of the sources, or kNone
  size_t bytes = 0;

  // Returns false if the walk has to do more than run derivative programs. Sources are leaves; null: all leaves.
  bool collect(const Root& root, const std::vector<Edge>* sources);
  // The number of the node at the edge's end, or kNone if the walk does not go there. Valid until another walk begins.
  uint32_t find(const Edge& e) const { return e.node && e.node->walk_id == id_ ? e.node->walk_slot : kNone; }

 private:
  uint64_t id_ = 0;      // marks nodes that have a number
  uint64_t wanted_ = 0;  // marks nodes that lead to a source and have none yet; 0: all nodes are wanted
  std::vector<Node*> met_;
  bool add(Node* n);
  int input(Value* v);
  uint32_t number(Node* n);
  void put_type(const Value* v);
};

uint32_t Graph::number(Node* n) {
  if (n->walk_id == id_) return n->walk_slot;
  if (wanted_ && n->walk_id != wanted_) return kNone;
  n->walk_id = id_;
  n->walk_slot = static_cast<uint32_t>(nodes.size());
  nodes.push_back(n);
  return n->walk_slot;
}

void Graph::put_type(const Value* v) {
  words.push_back(static_cast<uint64_t>(v->dtype) << 8 | static_cast<uint64_t>(v->ndim));
  for (int i = 0; i < v->ndim; ++i) words.push_back(static_cast<uint64_t>(v->shape[i]));
}

// Looks only among the last few inputs, because a node's results are usually read by the nodes right after it.
int Graph::input(Value* v) {
  constexpr size_t kRecent = 8;
  for (size_t k = inputs.size(); k-- > 1 && k + kRecent >= inputs.size();) {
    const Value* known = inputs[k];
    if (known == v || (known->buffer == v->buffer && known->data == v->data && same_layout(known, v)))
      return static_cast<int>(k);
  }
  inputs.push_back(v);
  bytes += v->bytes();
  put_type(v);
  return static_cast<int>(inputs.size() - 1);
}

bool Graph::add(Node* n) {
  if ((n->hooks && tape_hooks.any_hooks(n->hooks)) || n->retains_grad) return false;
  if (n->leaf) {
    words.push_back(0);
    return true;
  }
  if (n->custom || !n->derivative || n->saving != Saving::kept || n->n_edges > 63) return false;
  words.push_back(reinterpret_cast<uint64_t>(n->derivative));
  for (int i = 0; i < n->n_edges; ++i) {
    const Edge& e = n->edges[i];
    const uint32_t to = e.node ? number(e.node) : kNone;
    words.push_back(to != kNone ? uint64_t{to} << 32 | e.output : UINT64_MAX);
  }
  for (int i = 0; i < n->n_saved; ++i) {
    const Saved& s = n->saved[i];
    if (s.value->buffer->version != s.version || s.value->device != kCpu) return false;
    const int k = input(s.value);
    saved.push_back(k);
    words.push_back(static_cast<uint64_t>(k));
  }
  if (n->sizes) sizes.insert(sizes.end(), n->sizes, n->sizes + n->derivative->vjp->n_given);
  return nodes.size() <= kMostNodes && bytes <= kMostBytes;
}

bool Graph::collect(const Root& root, const std::vector<Edge>* sources) {
  nodes.clear();
  words.clear();
  inputs.assign(1, root.seed);
  saved.clear();
  sizes.clear();
  asked.clear();
  bytes = 0;
  // A joined program may return its seed, where the walk copies it; memory that others write to must not be returned.
  if (root.seed->device != kCpu || root.seed->buffer->pinned) return false;
  wanted_ = sources ? mark_paths({&root, 1}, *sources, met_) : 0;
  if (sources && root.value->node->walk_id != wanted_) return false;
  id_ = new_walk_id();
  put_type(root.seed);
  words.push_back(root.value->output);
  number(root.value->node);
  for (size_t i = 0; i < nodes.size(); ++i)
    if (!add(nodes[i])) return false;
  if (sources)
    for (const Edge& e : *sources) asked.push_back(find(e));
  return true;
}

// A joined graph.
struct Form {
  std::vector<uint64_t> words;
  std::vector<Handle<const Derivative>> derivatives;  // held, so that their addresses are not reused
  std::vector<uint32_t> order;                        // the nodes that are not leaves, in the order of the walk
  std::vector<uint32_t> leaves;                       // the leaf nodes, in the order of their gradients
  int64_t edges_computed = 0;
  std::vector<std::pair<uint32_t, int64_t>> fixed;  // the sizes that it is valid for: (index, value)
  std::shared_ptr<Program> program;                 // null: the graph cannot be joined

  bool fits(const Graph& g) const {
    if (words != g.words) return false;
    for (const auto& [k, size] : fixed)
      if (g.sizes[k] != size) return false;
    for (size_t k = 1; k < order.size(); ++k)
      if (g.nodes[order[k - 1]]->seq <= g.nodes[order[k]]->seq) return false;
    return true;
  }
};

// A place in the user's program where backward starts repeatedly.
struct Start {
  uint64_t derivative = 0;     // the root's, by number
  const void* code = nullptr;  // likewise; only compared
  int place = 0;
  bool chooses = false;             // passes go to sources; others from there, to all leaves, repeat by themselves
  uint64_t last = 0, distance = 0;  // the last root's position in recording order, and its distance from the one before
  int repeats = 0, failures = 0;
  std::vector<uint64_t> seen;  // the graph that will be joined if it is recorded once more
  std::vector<std::shared_ptr<const Form>> forms;

  bool is(const Node* root, bool has_sources) const {
    return derivative == root->derivative->number && code == root->line.code && place == root->line.instruction &&
           chooses == has_sources;
  }
};

std::array<Start, kStarts>& starts() {
  static auto* all = new std::array<Start, kStarts>;
  return *all;
}

Start& start_of(const Node* root, bool has_sources) {
  const auto mixed = root->derivative->number * 31 + (reinterpret_cast<uint64_t>(root->line.code) >> 4) +
                     static_cast<uint64_t>(root->line.instruction) + has_sources;
  Start& l = starts()[mixed * 0x9e3779b97f4a7c15 >> 58];
  if (!l.is(root, has_sources)) {
    l = {};
    l.derivative = root->derivative->number;
    l.code = root->line.code;
    l.place = root->line.instruction;
    l.chooses = has_sources;
  }
  return l;
}

// Whether as many nodes were recorded since the last pass as between the two before it. A graph that keeps changing
// fails this cheap test and is never examined.
bool comes_again(Start& l, const Node* root) {
  const uint64_t distance = root->seq - l.last;
  l.repeats = l.last && distance == l.distance ? l.repeats + 1 : 0;
  l.distance = distance;
  l.last = root->seq;
  return join_after == 0 || (l.repeats + 1 >= join_after && l.failures < kMostFailures);
}

// Lists the nodes as steps in the order of the walk, and the leaves in the order in which the walk reaches them.
std::vector<JoinedStep> steps_of(const Graph& g, Form& f) {
  std::vector<int> step_of(g.nodes.size(), -1), first_saved, first_size;
  int n_saved = 0, n_sizes = 0;
  for (size_t k = 0; k < g.nodes.size(); ++k) {
    first_saved.push_back(n_saved);
    first_size.push_back(n_sizes);
    if (g.nodes[k]->leaf) continue;
    if (g.nodes[k]->sizes) n_sizes += g.nodes[k]->derivative->vjp->n_given;
    n_saved += g.nodes[k]->n_saved;
    f.order.push_back(static_cast<uint32_t>(k));
    f.derivatives.push_back(Handle<const Derivative>(g.nodes[k]->derivative));
    retain(g.nodes[k]->derivative);
  }
  std::sort(f.order.begin(), f.order.end(), [&](uint32_t a, uint32_t b) { return g.nodes[a]->seq > g.nodes[b]->seq; });
  for (size_t i = 0; i < f.order.size(); ++i) step_of[f.order[i]] = static_cast<int>(i);
  std::vector<uint32_t> met;
  for (uint32_t k : f.order)
    for (int i = 0; i < g.nodes[k]->n_edges; ++i)
      if (const uint32_t to = g.find(g.nodes[k]->edges[i]); to != Graph::kNone && g.nodes[to]->leaf)
        if (std::find(met.begin(), met.end(), to) == met.end()) met.push_back(to);
  f.leaves.assign(met.rbegin(), met.rend());
  for (size_t j = 0; j < f.leaves.size(); ++j) step_of[f.leaves[j]] = ~static_cast<int>(j);
  std::vector<JoinedStep> steps;
  for (uint32_t k : f.order) {
    const Node* n = g.nodes[k];
    JoinedStep s{n->derivative->vjp, n->sizes, first_size[k], n->n_outputs, {}, {}};
    for (int i = 0; i < n->n_saved; ++i) s.saved.push_back(g.saved[static_cast<size_t>(first_saved[k] + i)]);
    for (int i = 0; i < n->n_edges; ++i) {
      const uint32_t to = g.find(n->edges[i]);
      s.edges.push_back({to != Graph::kNone ? step_of[to] : JoinedStep::kNowhere, n->edges[i].output});
    }
    steps.push_back(std::move(s));
  }
  return steps;
}

bool can_be_joined(const Graph& g) {
  return std::all_of(g.nodes.begin(), g.nodes.end(), [](const Node* n) {
    if (n->leaf) return true;
    const Derived* vjp = n->derivative->vjp;
    return vjp && vjp->python && !vjp->program->calls_back && vjp->program->depth == 0;
  });
}

std::shared_ptr<const Form> join(const Graph& g, uint32_t root_output) {
  auto f = std::make_shared<Form>();
  f->words = g.words;
  const std::vector<JoinedStep> steps = steps_of(g, *f);
  if (root_output != 0 || !can_be_joined(g)) return f;
  std::vector<Type> inputs;
  for (const Value* v : g.inputs) inputs.push_back(v->type());
  f->program = join_steps(inputs, steps, f->leaves.size());
  if (!f->program) return f;
  f->program->name = "backward";
  std::vector<bool> free(g.sizes.size());
  for (const SizeLeaf& leaf : f->program->sizes.leaves) free[static_cast<size_t>(leaf.index)] = true;
  for (size_t k = 0; k < g.sizes.size(); ++k)
    if (!free[k]) f->fixed.emplace_back(static_cast<uint32_t>(k), g.sizes[k]);
  for (const JoinedStep& s : steps)
    f->edges_computed += std::ranges::count_if(s.edges, [](auto& e) { return e.to != JoinedStep::kNowhere; });
  ++joined_counters.joined;
  return f;
}

// The joined program for this graph, or null.
std::shared_ptr<const Form> find_form(Start& l, const Graph& g, uint32_t root_output) {
  for (const auto& f : l.forms)
    if (f->fits(g)) return f->program ? f : nullptr;
  ++l.failures;
  if (l.forms.size() >= kMostForms) return nullptr;
  if (join_after && l.seen != g.words) {
    l.seen = g.words;
    return nullptr;
  }
  std::shared_ptr<const Form> made = join(g, root_output);
  l.forms.push_back(made);
  return made->program ? made : nullptr;
}

// The walk notes which cotangents are zero, for explain(); a joined program cannot.
bool any_zero(Value* const* gradients, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if (!gradients[i] || looks_zero(gradients[i])) return true;
  return false;
}

void deliver(Node* leaf, Value* gradient, const WalkOptions& options, WalkResult& result) {
  if (options.accumulate) keep_grad(leaf, gradient);
  if (leaf->id && options.all_leaves) {
    result.leaves.emplace_back(leaf->id, gradient);
    retain(gradient);
  }
  release(gradient);
}

// Each source receives the gradient of its leaf.
void give_to_sources(const Graph& g, const Form& f, Value* const* gradients, WalkResult& result) {
  SmallArray<Value*, 64> of(g.nodes.size());
  for (size_t i = 0; i < f.leaves.size(); ++i) of[f.leaves[i]] = gradients[i];
  for (const uint32_t source : g.asked) {
    const bool reached = source != Graph::kNone;
    if (reached) retain(of[source]);
    result.sources.push_back(reached ? of[source] : nullptr);
    result.reached.push_back(reached);
  }
}

bool are_leaves(const std::vector<Edge>& sources) {
  return std::ranges::all_of(sources, [](const Edge& e) { return !e.node || e.node->leaf; });
}

bool is_plain_walk(const std::vector<Root>& roots, const WalkOptions& options) {
  const Node* root = roots.size() == 1 && roots[0].seed ? roots[0].value->node : nullptr;
  return join_after >= 0 && root && root->derivative && !options.record &&
         (!options.sources || are_leaves(*options.sources)) && !n_final_hooks && !profiling && !thread_state.replays &&
         !memory_pool.limit && join_steps;
}

}  // namespace

bool walk_joined(const std::vector<Root>& roots, const WalkOptions& options, WalkResult& result) {
  if (!is_plain_walk(roots, options)) return false;
  Node* root = roots[0].value->node;
  Start& l = start_of(root, options.sources);
  if (!comes_again(l, root)) return false;
  static Graph kept;  // static, so that its memory is reused
  Graph g = std::move(kept);
  struct GiveBack {
    Graph& g;
    ~GiveBack() { kept = std::move(g); }
  } give_back{g};
  if (!g.collect(roots[0], options.sources)) {
    ++l.failures;
    return false;
  }
  const int64_t joined_before = joined_counters.joined;
  const std::shared_ptr<const Form> form = find_form(l, g, roots[0].value->output);
  if (!form) return false;
  // Joining runs Python, and meanwhile another thread may have freed or overwritten what was collected.
  if (joined_counters.joined != joined_before && !g.collect(roots[0], options.sources)) return false;
  SmallArray<Value*, 32> out(form->leaves.size());
  const std::vector<SizeLeaf>& leaves = form->program->sizes.leaves;
  SmallArray<int64_t, 32> sizes(leaves.size());
  gather_sizes(leaves, g.inputs.data(), nullptr, g.sizes.data(), sizes.data());
  run(*form->program, g.inputs.data(), sizes.data(), out.data());
  if (any_zero(out.data(), form->leaves.size())) {
    for (size_t i = 0; i < form->leaves.size(); ++i)
      if (out[i]) release(out[i]);
    ++l.failures;
    return false;
  }
  result.nodes_run = static_cast<int64_t>(form->order.size());
  result.edges_computed = form->edges_computed;
  ++joined_counters.runs;
  l.failures = 0;
  retain(root);  // the root owns all nodes
  if (!options.retain_graph)
    for (uint32_t k : form->order) {
      free_saved(g.nodes[k]);
      g.nodes[k]->saving = Saving::freed_by_backward;
    }
  give_to_sources(g, *form, out.data(), result);
  for (size_t i = 0; i < form->leaves.size(); ++i) deliver(g.nodes[form->leaves[i]], out[i], options, result);
  release(root);
  if (!options.retain_graph) forget_unneeded();
  return true;
}

}  // namespace wengert
