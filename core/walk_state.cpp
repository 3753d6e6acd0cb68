#include "walk_state.h"

#include <unordered_set>

#include "ledger.h"
#include "ops/elementwise.h"

namespace wengert {

std::vector<WalkInProgress> walking;
uint64_t last_walk = 0;
WalkLists spare_lists;

namespace {

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

}  // namespace

uint64_t new_walk_id() { return ++last_walk; }

uint64_t mark_paths(std::span<const Root> roots, const std::vector<Edge>& sources, std::vector<Node*>& nodes) {
  const uint64_t met = new_walk_id(), wanted = new_walk_id();
  uint64_t first = UINT64_MAX;  // nodes recorded before every source cannot lead to one, so the search stops there
  for (const Edge& e : sources)
    if (e.node) first = std::min(first, e.node->seq);
  nodes.clear();
  const auto meet = [&](Node* n) {
    if (!n || n->walk_id == met || n->seq < first) return;
    n->walk_id = met;
    nodes.push_back(n);
  };
  for (const Root& r : roots) meet(r.value->node);
  for (size_t i = 0; i < nodes.size(); ++i)
    for (int k = 0; k < nodes[i]->n_edges; ++k) meet(nodes[i]->edges[k].node);
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->seq > b->seq; });
  for (const Edge& e : sources)
    if (e.node && e.node->walk_id == met) e.node->walk_id = wanted;
  for (size_t i = nodes.size(); i-- > 0;)
    for (int k = 0; k < nodes[i]->n_edges && nodes[i]->walk_id != wanted; ++k)
      if (const Node* to = nodes[i]->edges[k].node; to && to->walk_id == wanted) nodes[i]->walk_id = wanted;
  return wanted;
}

// x + y, recorded if one of them is tracked. Takes x's reference, borrows y.
Value* add_recorded(Value* x, Value* y) {
  static const Op* add = find_op("add");
  Value* in[2] = {x, y};
  if (!any_tracked(in, 2)) return accumulate(x, y);
  Value* sum = apply_elementwise(*add, in, 2);
  release(x);
  return sum;
}

Value* Walk::add_checked(Node* of, Value* x, Value* y) {
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

void prune(Walk& w) {
  const uint64_t wanted = mark_paths(w.roots, *w.options.sources, w.lists.met);
  w.id = new_walk_id();  // the search has left marks with higher ids than before
  w.pruned = true;
  for (Node* n : w.lists.met) {
    const bool leads_there = n->walk_id == wanted;
    w.mark(n, static_cast<uint32_t>(w.lists.slots.size()));
    w.lists.slots.push_back({n, nullptr, kNone, leads_there, false});
  }
}

// A gradient that is computed without saved values may be a single broadcast number and is not counted.
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

}  // namespace wengert
