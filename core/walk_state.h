// The state of one backward walk: a slot for each node that it has met, with the cotangents that have arrived so far,
// and the order in which nodes are visited.
#pragma once
#include <algorithm>
#include <span>
#include <utility>

#include "tape.h"

namespace wengert {

inline constexpr uint32_t kNone = UINT32_MAX;

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
Value* add_recorded(Value* x, Value* y);

// The lists of a walk. A finished walk leaves them to the next one, so that their memory is reused.
struct WalkLists {
  std::vector<Slot> slots;
  std::vector<Value*> more;
  std::vector<std::pair<uint64_t, uint32_t>> heap;  // (seq, slot), latest on top
  std::vector<uint32_t> leaves;                     // slots
  std::vector<Node*> met;                           // in search of the sources
};
// A walk in progress. Hooks and regions start nested ones, and while large work runs without the GIL, other threads
// begin walks of their own, perhaps over the same nodes.
struct WalkInProgress {
  uint64_t begun;  // its first id
  const void* thread;
};
extern std::vector<WalkInProgress> walking;
extern uint64_t last_walk;
extern WalkLists spare_lists;
uint64_t new_walk_id();  // marks left by walks with lower ids are invalid

// Marks the nodes that lead from the roots to a source, both included, and returns the mark. `nodes` are those that
// were looked at, latest first.
uint64_t mark_paths(std::span<const Root> roots, const std::vector<Edge>& sources, std::vector<Node*>& nodes);

struct Walk {
  const WalkOptions& options;
  const std::vector<Root>& roots;
  uint64_t id;
  const uint64_t begun = id;
  uint64_t oldest = id;  // the first id of the other threads' walks that were in progress then, if there were any
  WalkLists lists;
  // Holds the roots' nodes, which own every node that the walk will meet: a hook may drop the tensors that held them.
  std::vector<Node*> owned;
  uint32_t latest = kNone;  // the scheduled slot that comes next; the others are in the heap
  bool pruned = false;
  bool counting = false;  // contributions to leaves are counted, and a leaf is visited when its last one has arrived
  Checks checks = thread_state.checks;
  std::vector<Node*> ran;  // nodes that keep their saved values until the gradients have been checked

  Walk(const std::vector<Root>& from, const WalkOptions& o);
  ~Walk();
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  Slot& slot(uint32_t s) { return lists.slots[s]; }

  // Another walk may have overwritten our mark: one that began later, or one of another thread that was in progress
  // when we began and has come back to the node since. Then the slot has to be searched for.
  uint32_t find(Node* n) {
    if (n->walk_id == id) return n->walk_slot;
    if (n->walk_id >= oldest)
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
  Value* add_checked(Node* of, Value* x, Value* y);

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

inline Walk::Walk(const std::vector<Root>& from, const WalkOptions& o) : options(o), roots(from), id(++last_walk) {
  for (const WalkInProgress& other : walking)
    if (other.thread != &thread_state) oldest = std::min(oldest, other.begun);
  walking.push_back({begun, &thread_state});
  std::swap(lists, spare_lists);
  owned.reserve(roots.size());
  for (const Root& r : roots) {
    if (!r.value->node) continue;
    retain(r.value->node);
    owned.push_back(r.value->node);
  }
}

inline Walk::~Walk() {
  std::erase_if(walking, [this](const WalkInProgress& w) { return w.begun == begun; });
  for (Slot& s : lists.slots)
    if (s.bar) release(s.bar);
  for (Value* v : lists.more)
    if (v) release(v);
  for (Node* n : owned) release(n);
  lists.slots.clear();
  lists.more.clear();
  lists.heap.clear();
  lists.leaves.clear();
  constexpr size_t kMostSpare = 1 << 16;  // slots
  const size_t room = lists.slots.capacity();
  if (room > spare_lists.slots.capacity() && room <= kMostSpare) std::swap(lists, spare_lists);
}

inline bool is_wanted(Walk& w, Node* n) {
  const uint32_t slot = n ? w.find(n) : kNone;
  return slot != kNone && w.slot(slot).wanted;
}

// Which edges of a node lead to a source; those from the 64th on share a bit.
uint64_t wanted_edges(Walk& w, const Node* n);
// Gives slots to nodes that may lead to a source. Only those that do are wanted.
void prune(Walk& w);
// Checks a budget before computing anything: at the end of the walk the gradients of all leaves are live, whatever is
// dropped.
void require_gradients(Walk& w);
// Counts the contributions that each leaf will get, if any leaf asks to be told about its last one.
void count_contributions(Walk& w);

}  // namespace wengert
