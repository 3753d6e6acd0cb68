#include "replay.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace wengert {

ReplayCounters replay_counters = {};

// Dropped blocks that are computed from each other, joined by union-find. Bringing one of them back costs about as much
// as recomputing the whole group (Kirisame et al., 2021).
struct Group {
  Group* parent;
  double cost;
  uint32_t refs;
};

namespace {

constexpr size_t kLeastBytes = 256;  // smaller results are always kept, since their recipe would take more memory
constexpr size_t kHeldBytes = 4096;  // an outside value up to this size is held even if nobody else holds it
constexpr double kSecondsPerCall = 3e-7, kSecondsPerProductFlop = 7.5e-12, kSecondsPerFlop = 4e-11;
constexpr double kFlopsPerElement = 8;  // for ops other than products
constexpr size_t kPendingPerCall = 16;

// A block that has memory, with the fields that the search for victims reads.
struct Resident {
  Block* block;
  double made_at;
  double cost_per_byte;  // cost of recomputing it, squared, as of the last update
};

thread_local ReplayPolicy policy;
thread_local int64_t results_seen = 0;  // results seen by the policy
Block* blocks = nullptr;                // the most recent block
std::vector<Resident> residents;        // blocks that have memory
std::vector<Block*> shortlist;          // residents among which the next victims are chosen
size_t shortlist_uses = 0;
uint64_t last_order = 0;  // order of the last recipe
size_t n_limited = 0, limited_bytes = 0, largest_limited = 0;
double work_clock = 0;      // seconds of work remembered so far
double position = 0;        // where on that clock values are being used: at the end, or where the walk is
std::list<Block*> pending;  // unwanted blocks, to be dropped when the user no longer sees them

// The buffer of values that only refer into a block.
Buffer nowhere = [] {
  Buffer b = {};
  b.refs = 1;
  b.pinned = true;
  b.size_class = kForeign;
  return b;
}();

void dropped_is_gone(void* owner);

// ---------------------------------------------------------------------------------------------- groups of dropped ones

void release(Group* g) {
  while (g && --g->refs == 0) {
    Group* parent = g->parent;
    delete g;
    g = parent;
  }
}

Group* root_of(Block* b) {
  Group*& g = b->group;
  while (g->parent) {
    Group* parent = g->parent;
    ++parent->refs;
    release(g);
    g = parent;
  }
  return g;
}

void unite(Group* a, Group* b) {
  if (a == b) return;
  b->parent = a;
  ++a->refs;
  a->cost += b->cost;
}

// Calls f with every dropped block that is a direct input or a direct result of this one.
template <class F>
void for_dropped_neighbours(const Block* b, F&& f) {
  if (b->recipe)
    for (const Ingredient& i : b->recipe->ingredients)
      if (i.block && i.block->group && !i.block->store) f(i.block);
  for (const Recipe* r : b->readers)
    for (Block* made : r->results)
      if (made && made->group && !made->store) f(made);
}

double own_cost(const Block* b) { return b->recipe ? b->recipe->cost : 0; }

void join_dropped(Block* b) {
  b->group = new Group{nullptr, own_cost(b), 1};
  if (b->store) return;  // read back from the store, independently of others
  for_dropped_neighbours(b, [b](Block* other) { unite(root_of(b), root_of(other)); });
}

void leave_dropped(Block* b) {
  if (!b->group) return;
  root_of(b)->cost -= own_cost(b);
  release(std::exchange(b->group, nullptr));
}

double cost_to_bring_back(const Block* b) {
  constexpr size_t kMostSeen = 32;  // groups; beyond that, groups are not distinguished
  Group* seen[kMostSeen];
  size_t n = 0;
  double cost = own_cost(b);
  for_dropped_neighbours(b, [&](Block* other) {
    Group* g = root_of(other);
    if (n == kMostSeen || std::find(seen, seen + n, g) != seen + n) return;
    seen[n++] = g;
    cost += g->cost;
  });
  return cost;
}

// ------------------------------------------------------------------------------------------------------------- blocks

void manage(Block* b, Buffer* buffer) {
  buffer->size_class = b->device ? kManagedOnDevice : kManaged;
  buffer->owner = b;
}

// The buffer is an ordinary one again.
void unmanage(const Block* b, Buffer* buffer) {
  buffer->size_class = b->size_class;
  buffer->owner = b->device;
}

Block* new_block(Recipe* recipe, size_t result, Buffer* buffer) {
  Block* b = new Block{};
  b->refs = 1;
  b->result = static_cast<uint16_t>(result);
  b->size_class = buffer->size_class;
  b->device = buffer->size_class == kOnDevice ? static_cast<Device*>(buffer->owner) : nullptr;
  b->buffer = buffer;
  b->recipe = recipe;
  b->bytes = buffer->bytes;
  b->made_at = work_clock;
  b->previous = blocks;
  if (blocks) blocks->following = b;
  blocks = b;
  manage(b, buffer);
  return b;
}

double squared_cost_per_byte(const Block* b) {
  // Reading a block back from a store costs about as much as copying it.
  constexpr double kSecondsPerByte = 1e-9;
  const double cost = b->store ? kSecondsPerByte : cost_to_bring_back(b) / static_cast<double>(b->bytes);
  return cost * cost;
}

void look_again_at(const Block* b) {
  if (b->resident()) residents[b->place].cost_per_byte = squared_cost_per_byte(b);
}

// Updates the cost of the resident blocks that are direct inputs or results of this one.
void look_again_around(const Block* b) {
  if (b->recipe)
    for (const Ingredient& i : b->recipe->ingredients)
      if (i.block) look_again_at(i.block);
  for (const Recipe* r : b->readers)
    for (const Block* made : r->results)
      if (made) look_again_at(made);
}

void count_resident(Block* b) {
  b->place = residents.size();
  residents.push_back({b, b->made_at, squared_cost_per_byte(b)});
  replay_counters.kept_bytes += b->bytes;
  if (b->limited) limited_bytes += b->bytes;
}

void count_gone(Block* b) {
  std::erase(shortlist, b);
  residents[b->place] = residents.back();
  residents[b->place].block->place = b->place;
  residents.pop_back();
  replay_counters.kept_bytes -= b->bytes;
  if (b->limited) limited_bytes -= b->bytes;
}

void release(Block* b);

// Nothing is left to be decided about the block: its memory is gone, or stays.
void stop_waiting(Block* b) {
  if (!b->waits) return;
  b->waits = false;
  pending.erase(b->waiting);
}

void unlist(Block* b) {
  if (b->previous) b->previous->following = b->following;
  (b->following ? b->following->previous : blocks) = b->previous;
}

void remove_reader(Block* b, const Recipe* r) {
  auto it = std::find(b->readers.rbegin(), b->readers.rend(), r);
  if (it == b->readers.rend()) return;
  *it = b->readers.back();
  b->readers.pop_back();
}

// A block gives up the recipe that makes it. Blocks that nobody needs afterwards are added to `doomed`.
void let_go(Recipe* r, std::vector<Block*>& doomed) {
  if (--r->refs) return;
  for (const Ingredient& i : r->ingredients) {
    if (i.block) {
      remove_reader(i.block, r);
      if (--i.block->refs == 0) doomed.push_back(i.block);
    } else {
      note_unsaved(i.value->buffer);
    }
    wengert::release(i.value);
  }
  if (r->line.code) drop_source_line(r->line);
  delete r;
}

void delete_all(std::vector<Block*>& doomed) {
  while (!doomed.empty()) {
    Block* b = doomed.back();
    doomed.pop_back();
    leave_dropped(b);
    unlist(b);
    if (b->limited && --n_limited == 0) largest_limited = 0;  // the next graph may have smaller results
    if (Recipe* r = std::exchange(b->recipe, nullptr)) {
      r->results[b->result] = nullptr;
      let_go(r, doomed);
    }
    delete b;
  }
}

void release(Block* b) {
  if (--b->refs) return;
  std::vector<Block*> doomed{b};
  delete_all(doomed);
}

// What is on its way to the device is waited for there.
void arrived(Block* b) {
  if (!std::exchange(b->arriving, false)) return;
  b->stored->arrive();
  b->stored = nullptr;
}

// Detaches the block from its buffer, which becomes an ordinary one.
void separate(Block* b) {
  stop_waiting(b);
  Buffer* buffer = std::exchange(b->buffer, nullptr);
  count_gone(b);
  unmanage(b, buffer);
  arrived(b);
}

void destroy_managed(Buffer* buffer) {
  Block* b = static_cast<Block*>(buffer->owner);
  separate(b);
  buffer->written = {};  // was dropped before
  destroy(buffer);
  if (b->refs > 1) join_dropped(b);  // recomputing its results may need it again
  release(b);
}

void dropped_is_gone(void* owner) {
  Block* b = static_cast<Block*>(owner);
  stop_waiting(b);
  b->buffer = nullptr;
  b->stored = nullptr;
  release(b);
}

// Whether only recorded instructions hold it; each of these has a separate value.
bool droppable(const Block* b) {
  const Buffer* buffer = b->buffer;
  return b->resident() && b->recipe && buffer->refs == buffer->saved && !buffer->pinned;
}

void drop(Block* b) {
  if (b->store && !b->stored) {
    b->stored = std::make_unique<Stored>(b->store, b->dtype, b->codec, b->device, b->buffer->data, b->bytes);
    ++replay_counters.stored;
  }
  b->arriving = false;  // it was fetched too early
  Buffer *buffer = b->buffer, *memory = static_cast<Buffer*>(memory_pool.headers.take());
  *memory = *buffer;
  unmanage(b, memory);
  memory->written = {};
  memory->saved = 0;
  if (!b->device) note_dropped(buffer);
  if (std::exchange(buffer->written.counted, 0)) memory_hooks.uncount(buffer);
  buffer->data = nullptr;
  buffer->size_class = kForeign;
  buffer->release = dropped_is_gone;
  destroy(memory);
  count_gone(b);
  join_dropped(b);
  look_again_around(b);
  ++replay_counters.dropped;
  replay_counters.dropped_bytes += b->bytes;
}

// Gives a block its recomputed memory; if others still hold its old buffer, that buffer takes the memory over.
void attach(Block* b, Buffer* fresh) {
  leave_dropped(b);
  b->size_class = fresh->size_class;
  if (Buffer* held = b->buffer) {
    set_category(fresh, held->category);
    held->data = std::exchange(fresh->data, nullptr);
    held->release = nullptr;
    manage(b, held);
    fresh->size_class = kForeign;
    fresh->owner = nullptr;
    fresh->release = nullptr;
    if (!b->device) note_back(held);
    set_written(held, std::exchange(fresh->written, {}));  // it was recomputed here
  } else {
    manage(b, fresh);
    b->buffer = fresh;
    ++b->refs;
  }
  count_resident(b);
  look_again_around(b);
}

// ------------------------------------------------------------------------------------------------------------ victims

// The block with the lowest score is dropped first: the square of cost / (bytes × √distance), where distance is the
// time until the block is used. The root makes the number of recomputations of a chain come close to the optimum
// (Griewank and Walther, 2000).
double score(const Resident& r) { return r.cost_per_byte / (std::abs(position - r.made_at) + kSecondsPerCall); }

// Groups only grow, so an outdated cost is too low. The winner's cost is therefore updated and compared again.
Block* best_of(const std::vector<Block*>& candidates) {
  for (;;) {
    Resident* best = nullptr;
    double least = 0;
    for (const Block* b : candidates) {
      Resident& r = residents[b->place];
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

// Scores all resident blocks. If there are many, the best few are kept as a shortlist for the next victims.
void list_candidates(const Wanted& wanted) {
  constexpr size_t kMany = 64;
  std::vector<std::pair<double, Block*>> found;
  for (const Resident& r : residents)
    if (droppable(r.block) && wanted.has(r.block)) found.emplace_back(score(r), r.block);
  const size_t n = found.size() < kMany ? found.size() : kMany / 2 + found.size() / (kMany / 2);
  std::nth_element(found.begin(), found.begin() + static_cast<ptrdiff_t>(n), found.end(), [](auto& a, auto& b) {
    return a.first < b.first || (a.first == b.first && a.second->made_at < b.second->made_at);
  });
  shortlist.clear();
  for (size_t i = 0; i < n; ++i) shortlist.push_back(found[i].second);
  shortlisted = wanted;
  shortlist_uses = 1 + found.size() / kMany;
}

Block* best_victim(const Wanted& wanted) {
  Block* best = shortlist_uses && shortlisted == wanted ? best_of(shortlist) : nullptr;
  if (!best) {
    list_candidates(wanted);
    best = best_of(shortlist);
  }
  if (shortlist_uses) --shortlist_uses;
  return best;
}

// Returns how many bytes were dropped.
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

void make_room(size_t bytes) { make_room_in(nullptr, bytes); }
bool make_room_on(Device& device, size_t bytes) { return make_room_in(&device, bytes) > 0; }

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

// Drops unwanted blocks that the user no longer sees, looking at no more than `most` of them.
void drop_unwanted(size_t most) {
  for (size_t n = std::min(pending.size(), most); n--;) {
    Block* b = pending.front();
    if (b->resident() && b->recipe && !droppable(b)) {  // the user sees it: try again later
      pending.splice(pending.end(), pending, pending.begin());
      continue;
    }
    stop_waiting(b);
    if (droppable(b) && cheap(b)) drop(b);
  }
}

// Of the blocks that `full` limits, a logarithmic number stays.
void drop_limited() {
  if (!n_limited) return;
  const size_t most = largest_limited * static_cast<size_t>(4 + std::log2(n_limited));
  while (limited_bytes > most) {
    Block* victim = best_victim({true, nullptr});
    if (!victim) return;
    drop(victim);
  }
}

// ------------------------------------------------------------------------------------------------------------ recipes

// A hash of the contents, never 0.
uint64_t digest_of(const char* data, size_t bytes) {
  uint64_t sum = 1469598103934665603u;
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data + i, std::min<size_t>(8, bytes - i));
    sum = (sum ^ word) * 1099511628211u;
    sum ^= sum >> 29;
  }
  return sum | 1;
}

uint64_t digest_of(const Value* v) {
  const Ref host(on_device(v, kCpu)), packed(contiguous(host.v));
  return digest_of(packed->data, static_cast<size_t>(packed->bytes()));
}

uint64_t digest_of(const Block* b) {
  if (!b->device) return digest_of(b->buffer->data, b->bytes);
  Ref bytes(new_value(1));
  bytes->buffer = b->buffer;
  retain(b->buffer);
  bytes->data = b->buffer->data;
  bytes->device = b->device->id;
  bytes->dtype = DType::UInt8;
  bytes->shape[0] = bytes->size = static_cast<int64_t>(b->bytes);
  bytes->strides[0] = 1;
  bytes->contiguous = true;
  return digest_of(bytes.v);
}

// A value with the same axes but no memory; `data` is the offset in its buffer.
Value* place_of(const Value* v) {
  Value* place = alias(v);
  wengert::release(place->buffer);
  place->buffer = &nowhere;
  retain(&nowhere);
  place->data = reinterpret_cast<char*>(v->data - v->buffer->data);
  return place;
}

Value* at_place(const Value* place, Buffer* buffer) {
  Value* v = alias(place);
  wengert::release(v->buffer);
  v->buffer = buffer;
  retain(buffer);
  v->data = buffer->data + reinterpret_cast<intptr_t>(place->data);
  return v;
}

// Whether a recipe may hold an outside value: others keep it alive anyway, or it is no larger than the result.
bool lasts(const Value* v, size_t made) {
  const Buffer* b = v->buffer;
  const bool kept = b->saved || b->refs > 1 || b->category == Category::parameter || v->made == Value::kLiteral;
  return kept || b->size_class == kForeign || b->bytes <= std::max(kHeldBytes, made);
}

bool runs_again(const Work& work) { return work.op ? work.op->owned.expired() : work.ran && !work.ran->calls_back; }

bool can_be_block(const Value* v, Value* const* in, int n_in) {
  if (!v) return false;  // a symbolic zero
  const Buffer* b = v->buffer;
  if (is_managed(b) || b->size_class == kForeign || b->pinned || b->bytes < kLeastBytes) return false;
  return std::none_of(in, in + n_in, [b](const Value* x) { return x->buffer == b; });
}

struct Estimate {
  double flops = 0, seconds = kSecondsPerCall;
};

// A product of matrices with mk, kn and mn elements takes mkn multiplications, the square root of the product of the
// three sizes. The same estimate is used for other ops that combine two arrays.
Estimate estimate(const Work& work, Value* const* in, int n_in, Value* const* results, int n_results) {
  double elements = 0, products = 0;
  for (int i = 0; i < n_results; ++i)
    if (results[i]) elements += static_cast<double>(results[i]->size);
  const Op* op = work.op;
  const int n = op ? !op->elementwise && op->n_inputs >= 2 : work.ran->n_products;
  if (n && n_in >= 2) {
    std::vector<double> sizes;
    for (int i = 0; i < n_in; ++i)
      if (is_inexact(in[i]->dtype)) sizes.push_back(static_cast<double>(in[i]->size));
    for (int i = 0; i < n_results; ++i)
      if (results[i]) sizes.push_back(static_cast<double>(results[i]->size));
    std::sort(sizes.rbegin(), sizes.rend());
    if (sizes.size() >= 3) products = 2 * n * std::sqrt(sizes[0] * sizes[1] * sizes[2]);
  }
  const double steps =
      op ? 1 : static_cast<double>(work.ran->steps.size() - std::min<size_t>(n, work.ran->steps.size()));
  const double others = kFlopsPerElement * elements * (n && op ? 0 : steps);
  Estimate e;
  e.flops = products + others;
  e.seconds += products * kSecondsPerProductFlop + others * kSecondsPerFlop;
  return e;
}

// Marks a block to be dropped as soon as the user no longer sees it.
void do_without(Block* b) {
  b->waits = true;
  b->waiting = pending.insert(pending.end(), b);
}

// Applies the policy of this thread to a new block.
void decide(Block* b, const Estimate& e, bool first) {
  bool unwanted = false;
  results_seen += first;
  b->store = policy.store;
  b->codec = policy.codec;
  switch (policy.kind) {
    case ReplayPolicy::Kind::block: unwanted = results_seen % policy.every != 0; break;
    case ReplayPolicy::Kind::selective:
      b->most_flops = policy.flops_per_byte * static_cast<double>(b->bytes);
      unwanted = e.flops < b->most_flops;
      break;
    case ReplayPolicy::Kind::full: b->limited = true; break;
    default: break;
  }
  if (unwanted) do_without(b);
  if (b->limited) {
    ++n_limited;
    largest_limited = std::max(largest_limited, b->bytes);
  }
}

template <class Decide>
const Recipe* new_recipe(Work&& work, SourceLine line, Value* const* in, int n_in, Value* const* results, int n_results,
                         Decide&& decided) {
  const Estimate e = estimate(work, in, n_in, results, n_results);
  Recipe* r = new Recipe{.refs = 0,
                         .order = ++last_order,
                         .cost = e.seconds,
                         .flops = e.flops,
                         .work = std::move(work),
                         .ingredients = {},
                         .results = {},
                         .line = line};
  for (int i = 0; i < n_in; ++i) {
    Buffer* from = in[i]->buffer;
    if (Block* b = block_of(from)) {
      r->ingredients.push_back({b, place_of(in[i]), 0, 0});
      b->readers.push_back(r);
      ++b->refs;
    } else {
      note_saved(from);
      r->ingredients.push_back({nullptr, alias(in[i]), from->version, from->pinned ? digest_of(in[i]) : 0});
    }
  }
  work_clock += r->cost;
  position = work_clock;
  replay_counters.seconds_made += r->cost;
  for (int i = 0; i < n_results; ++i) {
    r->results.push_back(nullptr);
    if (!can_be_block(results[i], in, n_in)) continue;
    Block* b = r->results.back() = new_block(r, static_cast<size_t>(i), results[i]->buffer);
    b->dtype = results[i]->dtype;
    decided(b, e, r->refs++ == 0);
    count_resident(b);
  }
  return r;
}

}  // namespace

Block* block_of(const Buffer* b) {
  const bool dropped = b->size_class == kForeign && b->release == dropped_is_gone;
  return is_managed(b) || dropped ? static_cast<Block*>(b->owner) : nullptr;
}

const Recipe* remember(Work&& work, SourceLine line, Value* const* in, int n_in, Value* const* results, int n_results) {
  // Only blocks of earlier calls: this call's node does not refer to its blocks yet.
  drop_unwanted(kPendingPerCall);
  drop_limited();
  const bool any = std::any_of(results, results + n_results, [&](const Value* v) { return can_be_block(v, in, n_in); });
  size_t made = 0;
  for (int i = 0; i < n_results; ++i)
    if (results[i]) made += results[i]->buffer->bytes;
  const bool lasting =
      std::all_of(in, in + n_in, [=](const Value* v) { return is_managed(v->buffer) || lasts(v, made); });
  if (!any || !lasting || !runs_again(work)) {
    if (line.code) drop_source_line(line);
    return nullptr;
  }
  return new_recipe(std::move(work), line, in, n_in, results, n_results, decide);
}

void keep_source(const Op& cast, int64_t to, Value* from, Value* made) {
  drop_unwanted(kPendingPerCall);
  if (from->buffer->pinned || !can_be_block(made, &from, 1)) return;
  Work work;
  work.op = &cast;
  work.attrs.push_back({.kind = Attr::Kind::integer, .i = to});
  new_recipe(std::move(work), {}, &from, 1, &made, 1, [](Block* b, const Estimate&, bool) { do_without(b); });
}

void drop_unwanted() { drop_unwanted(pending.size()); }

Value* place_to_keep(const Value* v) {
  Value* kept = alias(v);
  kept->data = reinterpret_cast<char*>(v->data - v->buffer->data);
  return kept;
}

namespace {

[[noreturn]] void fail_changed(const Recipe& r, const Value* v) {
  const std::string name = r.work.op ? r.work.op->name : "a program";
  throw Error(
      ErrorKind::in_place,
      "backward: a value that was dropped to save memory cannot be computed again, because a tensor that " + name +
          " read, " + to_string(v->type()) +
          ", was changed in place since. Write to a copy (clone()), or do not share its memory with NumPy while a "
          "memory budget or a checkpoint strategy is set");
}

Ref read(const Recipe& r, const Ingredient& i) {
  if (i.block) {
    arrived(i.block);
    Ref v(at_place(i.value, i.block->buffer));
    if (i.block->digest && digest_of(i.block) != i.block->digest) fail_changed(r, v.v);
    return v;
  }
  if (i.value->buffer->version != i.version || (i.digest && digest_of(i.value) != i.digest)) fail_changed(r, i.value);
  return Ref(alias(i.value));
}

// Whether fresh memory is of the kind that the block had.
bool can_replace(const Block* b, const Buffer* fresh) {
  const bool same =
      b->device ? fresh->size_class == kOnDevice && fresh->owner == b->device : fresh->size_class < kManaged;
  return same && fresh->bytes == b->bytes;
}

// Runs a recipe. The blocks that come back stay resident while somebody holds them; the returned references are one for
// each.
std::vector<std::pair<Block*, Ref>> run_recipe(const Recipe& r, const std::vector<Ref>& operands) {
  const int n_in = static_cast<int>(operands.size());
  std::vector<Value*> in, out(r.results.size(), nullptr);
  for (const Ref& v : operands) in.push_back(v.v);
  DeviceId device = kCpu;  // of what has no operands, such as draws
  for (const Block* b : r.results)
    if (b && b->device) device = b->device->id;
  const Placement here(device);
  run_again(r.work, in.data(), n_in, out.data());
  std::vector<Ref> made;
  for (Value* v : out) made.emplace_back(v);
  std::vector<std::pair<Block*, Ref>> held;
  for (size_t k = 0; k < r.results.size(); ++k) {
    Block* b = r.results[k];
    if (!b || b->resident()) continue;
    if (!made[k] || !can_replace(b, made[k]->buffer))
      throw Error(ErrorKind::gradient, "backward: an operation that ran again gave a result of another kind");
    Ref place(place_of(made[k].v));
    attach(b, made[k]->buffer);
    held.emplace_back(b, at_place(place.v, b->buffer));
  }
  ++replay_counters.recomputed;
  replay_counters.seconds_again += r.cost;
  return held;
}

// Starts to read a block back from its store into the buffer that is held.
void fetch(Block* b) {
  Buffer* fresh =
      b->device ? allocate_on(*b->device, b->bytes, Category::activation) : allocate(b->bytes, Category::activation);
  try {
    b->stored->fetch(fresh->data);
  } catch (...) {
    release(fresh);
    throw;
  }
  attach(b, fresh);
  release(fresh);
  b->arriving = true;
  ++replay_counters.loaded;
}

// The walk goes from what was made last to what was made first: what is needed next on a device comes while it
// computes, as long as nothing has to be dropped for it.
void fetch_ahead(const Block* needed) {
  constexpr int kAhead = 2, kMostSeen = 64;
  int ahead = 0, seen = 0;
  for (Block* b = needed->previous; b && ahead < kAhead && seen < kMostSeen; b = b->previous, ++seen) {
    if (b->device != needed->device || !b->buffer || !b->stored || b->resident()) continue;
    if (b->device->limit && b->device->live_bytes + b->bytes > b->device->limit) return;
    fetch(b);
    ++ahead;
  }
}

void read_back(Block* b) {
  fetch(b);
  if (b->device) fetch_ahead(b);
  arrived(b);
}

// The recipes that must run to bring a block back, in their original order, so that no more is resident at a time than
// there was originally. Each result is held until its last reader has run.
class Plan {
  struct Intermediate {
    size_t readers = 0;
    Ref value = {};
  };
  std::vector<const Recipe*> order_;
  size_t next_ = 0;
  std::unordered_map<const Block*, Intermediate> intermediates_;

 public:
  Block* target;

  explicit Plan(Block* b) : order_{b->recipe}, target(b) {
    std::unordered_set<const Recipe*> seen{b->recipe};
    for (size_t k = 0; k < order_.size(); ++k)
      for (const Ingredient& i : order_[k]->ingredients) {
        if (!i.block || i.block->resident() || i.block->stored) continue;
        ++intermediates_[i.block].readers;
        if (seen.insert(i.block->recipe).second) order_.push_back(i.block->recipe);
      }
    ++intermediates_[target].readers;
    std::sort(order_.begin(), order_.end(), [](auto* a, auto* c) { return a->order < c->order; });
  }

  bool done() const { return next_ == order_.size(); }
  const Recipe& upcoming() const { return *order_[next_]; }
  Ref take() { return std::move(intermediates_.at(target).value); }

  // Collects the operands of the next recipe. Returns a block that is missing because it was dropped in the meantime.
  Block* gather(std::vector<Ref>& operands) const {
    for (const Ingredient& i : upcoming().ingredients) {
      if (i.block && i.block->stored && !i.block->resident()) read_back(i.block);
      if (i.block && !i.block->resident()) return i.block;
      operands.push_back(read(upcoming(), i));
    }
    return nullptr;
  }

  // Holds the block that was missing.
  void hold(const Block* b, Ref value) {
    Intermediate& h = intermediates_[b];
    h.readers = 0;
    for (size_t k = next_; k < order_.size(); ++k)
      for (const Ingredient& i : order_[k]->ingredients) h.readers += i.block == b;
    h.value = std::move(value);
  }

  // Called after the next recipe has run.
  void keep(std::vector<std::pair<Block*, Ref>> made) {
    for (auto& [block, value] : made)
      if (auto h = intermediates_.find(block); h != intermediates_.end()) h->second.value = std::move(value);
    for (const Ingredient& i : upcoming().ingredients)
      if (auto h = intermediates_.find(i.block); i.block && h != intermediates_.end() && --h->second.readers == 0)
        intermediates_.erase(h);
    ++next_;
  }
};

// Brings a block back; the returned value holds it.
Ref bring_back(Block* block) {
  std::vector<Plan> plans;  // each plan brings back what the previous one is missing
  plans.emplace_back(block);
  for (;;) {
    Plan& plan = plans.back();
    if (plan.done()) {
      Block* target = plan.target;
      Ref made = plan.take();
      plans.pop_back();
      if (plans.empty()) return made;
      plans.back().hold(target, std::move(made));
      continue;
    }
    std::vector<Ref> operands;
    if (Block* missing = plan.gather(operands)) {
      plans.emplace_back(missing);
      continue;
    }
    auto made = run_recipe(plan.upcoming(), operands);
    operands.clear();
    plan.keep(std::move(made));
    drop_limited();
  }
}

}  // namespace

Ref restored(const Value* kept) {
  Block* b = block_of(kept->buffer);
  if (!b) return Ref(alias(kept));
  position = b->made_at;
  Ref held;
  if (!b->resident()) {
    if (b->stored)
      read_back(b);
    else
      held = bring_back(b);
  }
  arrived(b);
  Ref v(at_place(kept, kept->buffer));
  held = {};
  drop_limited();
  return v;
}

void forget_contents(Buffer* buffer) {
  Block* b = static_cast<Block*>(buffer->owner);
  if (buffer->pinned) return;  // its digest detects changes
  separate(b);
  if (b->refs > 1) join_dropped(b);
  release(b);
}

void before_export(Buffer* buffer) {
  if (Block* b = block_of(buffer); b && !buffer->pinned) b->digest = digest_of(b);
}

void forget_unneeded() {
  std::vector<Block*> todo, unneeded;
  for (Block* b = blocks; b; b = b->previous) {
    b->needed = b->buffer && b->buffer->saved;
    if (b->needed) todo.push_back(b);
  }
  while (!todo.empty()) {
    const Recipe* r = todo.back()->recipe;
    todo.pop_back();
    if (!r) continue;
    for (const Ingredient& i : r->ingredients)
      if (i.block && !std::exchange(i.block->needed, true)) todo.push_back(i.block);
  }
  for (Block* b = blocks; b; b = b->previous)
    if (!b->needed) unneeded.push_back(b);
  for (Block* b : unneeded) ++b->refs;
  for (Block* b : unneeded) {
    if (b->resident()) {
      separate(b);
      --b->refs;
    }
    release(b);
  }
}

const ReplayPolicy& current_policy() { return policy; }

void set_policy(const ReplayPolicy& p) {
  drop_unwanted();
  policy = p;
  results_seen = 0;
}

size_t fixed_bytes(const Device* device) {
  size_t fixed = device ? device->live_bytes : memory_pool.stats.live_bytes;
  for (const Resident& r : residents)
    if (droppable(r.block) && r.block->device == device) fixed -= r.block->bytes;
  return fixed;
}

void set_replay_hooks() {
  memory_hooks.make_room = make_room;
  memory_hooks.make_room_on = make_room_on;
  memory_hooks.destroy_managed = destroy_managed;
}

}  // namespace wengert
