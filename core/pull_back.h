// One step of a backward walk: from the cotangents of a node's outputs to those of its edges. The usual path is inline.
#pragma once
#include "small_array.h"
#include "walk_state.h"

namespace wengert {

inline void release_all(Value** values, int from, int to) {
  for (int i = from; i < to; ++i)
    if (values[i]) release(values[i]);
}

void fill_with_zeros(const Node* n, Value** bars);
// For a node of which only some outputs have a cotangent: the vjp program that takes just those. They are moved to the
// front of the operands, before the saved values. If there is no such program, zeros are filled in for the others.
Derived& without_missing(const Walk& w, Derived& vjp, const Node* n, Value** in, int& n_bars);
void run_custom(const Walk& w, Node* n, Value** bars, Value** out);
// Applies the vjp program and records it. Returns false if no operand is tracked; then it can simply be run.
bool pull_back_recorded(Derived& vjp, Node* n, Value** in, int n_bars, Value** out);
// Runs the vjp program and checks its results.
void run_checked(Derived& vjp, Node* n, Value** in, int n_bars, Value** out);

inline Derived& vjp_for(Walk& w, Node* n) {
  Derived& vjp = *n->derivative->vjp;
  if (!w.pruned || n->n_edges > 63) return vjp;
  uint64_t mask = wanted_edges(w, n), all = (uint64_t{1} << n->n_edges) - 1;
  return mask == all ? vjp : find_narrowed(vjp, mask);
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
void pull_back_replayed(Walk& w, Node* n, uint32_t slot, Value** out);

}  // namespace wengert
