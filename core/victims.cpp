#include "victims.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace wengert {

namespace {

// The block with the lowest score is dropped first: the square of cost / (bytes × √distance), where distance is the
// time until the block is used. The root makes the number of recomputations of a chain come close to the optimum
// (Griewank and Walther, 2000).
double score(const Resident& r) {
  return r.cost_per_byte / (std::abs(all_blocks.position - r.made_at) + kSecondsPerCall);
}

// Groups only grow, so an outdated cost is too low. The winner's cost is therefore updated and compared again.
Block* best_of(const std::vector<Block*>& candidates) {
  for (;;) {
    Resident* best = nullptr;
    double least = 0;
    for (const Block* b : candidates) {
      Resident& r = all_blocks.residents[b->place];
      const double s = score(r);
      if (!droppable(b) || (best && (s > least || (s == least && r.made_at >= best->made_at)))) continue;
      best = &r;
      least = s;
    }
    if (!best) return nullptr;
    const double known = std::exchange(best->cost_per_byte, squared_cost_per_byte(best->block));
    if (best->cost_per_byte <= known) return best->block;
  }
}

// Which blocks are looked at: those that the policy `full` limits, or those in the memory of a device, or the host's.
struct Wanted {
  bool limited;
  const Device* device;
  bool operator==(const Wanted&) const = default;
  bool has(const Block* b) const { return limited ? b->limited : b->device == device; }
};
Wanted shortlisted = {};
size_t shortlist_uses = 0;

// Scores all resident blocks. If there are many, the best few are kept as a shortlist for the next victims.
void list_candidates(const Wanted& wanted) {
  constexpr size_t kMany = 64;
  std::vector<std::pair<double, Block*>> found;
  for (const Resident& r : all_blocks.residents)
    if (droppable(r.block) && wanted.has(r.block)) found.emplace_back(score(r), r.block);
  const size_t n = found.size() < kMany ? found.size() : kMany / 2 + found.size() / (kMany / 2);
  std::nth_element(found.begin(), found.begin() + static_cast<ptrdiff_t>(n), found.end(), [](auto& a, auto& b) {
    return a.first < b.first || (a.first == b.first && a.second->made_at < b.second->made_at);
  });
  all_blocks.shortlist.clear();
  for (size_t i = 0; i < n; ++i) all_blocks.shortlist.push_back(found[i].second);
  shortlisted = wanted;
  shortlist_uses = 1 + found.size() / kMany;
}

Block* best_victim(const Wanted& wanted) {
  Block* best = shortlist_uses && shortlisted == wanted ? best_of(all_blocks.shortlist) : nullptr;
  if (!best) {
    list_candidates(wanted);
    best = best_of(all_blocks.shortlist);
  }
  if (shortlist_uses) --shortlist_uses;
  return best;
}

// Whether it takes few operations to recompute it from what is resident.
bool cheap(const Block* b) {
  if (b->most_flops <= 0) return true;
  double flops = 0;
  std::vector<const Recipe*> todo{b->recipe}, seen;
  while (!todo.empty()) {
    const Recipe* r = todo.back();
    todo.pop_back();
    if (std::find(seen.begin(), seen.end(), r) != seen.end()) continue;
    seen.push_back(r);
    flops += r->flops;
    if (flops >= b->most_flops) return false;
    for (const Ingredient& i : r->ingredients)
      if (i.block && !i.block->resident() && i.block->recipe) todo.push_back(i.block->recipe);
  }
  return true;
}

}  // namespace

size_t make_room_in(const Device* device, size_t bytes) {
  size_t freed = 0;
  while (freed < bytes) {
    Block* victim = best_victim({false, device});
    if (!victim) break;
    freed += victim->bytes;
    drop(victim);
  }
  return freed;
}

void do_without(Block* b) {
  b->waits = true;
  b->waiting = all_blocks.pending.insert(all_blocks.pending.end(), b);
}

void drop_unwanted(size_t most) {
  for (size_t n = std::min(all_blocks.pending.size(), most); n--;) {
    Block* b = all_blocks.pending.front();
    if (b->resident() && b->recipe && !droppable(b)) {  // the user sees it: try again later
      all_blocks.pending.splice(all_blocks.pending.end(), all_blocks.pending, all_blocks.pending.begin());
      continue;
    }
    stop_waiting(b);
    if (droppable(b) && cheap(b)) drop(b);
  }
}

void limit(Block* b) {
  b->limited = true;
  ++all_blocks.n_limited;
  all_blocks.largest_limited = std::max(all_blocks.largest_limited, b->bytes);
}

void drop_limited() {
  if (!all_blocks.n_limited) return;
  const size_t most = all_blocks.largest_limited * static_cast<size_t>(4 + std::log2(all_blocks.n_limited));
  while (all_blocks.limited_bytes > most) {
    Block* victim = best_victim({true, nullptr});
    if (!victim) return;
    drop(victim);
  }
}

size_t fixed_bytes(const Device* device) {
  size_t fixed = device ? device->live_bytes : memory_pool.stats.live_bytes;
  for (const Resident& r : all_blocks.residents)
    if (droppable(r.block) && r.block->device == device) fixed -= r.block->bytes;
  return fixed;
}

}  // namespace wengert
