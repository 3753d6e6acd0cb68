#include "blocks.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace wengert {

AllBlocks all_blocks;
ReplayCounters replay_counters = {};

// Dropped blocks that are computed from each other, joined by union-find. Bringing one of them back costs about as much
// as recomputing the whole group (Kirisame et al., 2021).
struct Group {
  Group* parent;
  double cost;
  uint32_t refs;
};

namespace {

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

// -------------------------------------------------------------------------------------------------- memory and lists

void manage(Block* b, Buffer* buffer) {
  buffer->size_class = b->device ? kManagedOnDevice : kManaged;
  buffer->owner = b;
}

// The buffer is an ordinary one again.
void unmanage(const Block* b, Buffer* buffer) {
  buffer->size_class = b->size_class;
  buffer->owner = b->device;
}

void look_again_at(const Block* b) {
  if (b->resident()) all_blocks.residents[b->place].cost_per_byte = squared_cost_per_byte(b);
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

void count_gone(Block* b) {
  std::erase(all_blocks.shortlist, b);
  all_blocks.residents[b->place] = all_blocks.residents.back();
  all_blocks.residents[b->place].block->place = b->place;
  all_blocks.residents.pop_back();
  replay_counters.kept_bytes -= b->bytes;
  if (b->limited) all_blocks.limited_bytes -= b->bytes;
}

void unlist(Block* b) {
  if (b->previous) b->previous->following = b->following;
  (b->following ? b->following->previous : all_blocks.latest) = b->previous;
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
    if (b->limited && --all_blocks.n_limited == 0)
      all_blocks.largest_limited = 0;  // the next graph may have smaller results
    if (Recipe* r = std::exchange(b->recipe, nullptr)) {
      r->results[b->result] = nullptr;
      let_go(r, doomed);
    }
    delete b;
  }
}

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

}  // namespace

void join_dropped(Block* b) {
  b->group = new Group{nullptr, own_cost(b), 1};
  if (b->store) return;  // read back from the store, independently of others
  for_dropped_neighbours(b, [b](Block* other) { unite(root_of(b), root_of(other)); });
}

Block* block_of(const Buffer* b) {
  const bool dropped = b->size_class == kForeign && b->release == dropped_is_gone;
  return is_managed(b) || dropped ? static_cast<Block*>(b->owner) : nullptr;
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
  b->made_at = all_blocks.work_clock;
  b->previous = all_blocks.latest;
  if (all_blocks.latest) all_blocks.latest->following = b;
  all_blocks.latest = b;
  manage(b, buffer);
  return b;
}

double squared_cost_per_byte(const Block* b) {
  // Reading a block back from a store costs about as much as copying it.
  constexpr double kSecondsPerByte = 1e-9;
  const double cost = b->store ? kSecondsPerByte : cost_to_bring_back(b) / static_cast<double>(b->bytes);
  return cost * cost;
}

void count_resident(Block* b) {
  b->place = all_blocks.residents.size();
  all_blocks.residents.push_back({b, b->made_at, squared_cost_per_byte(b)});
  replay_counters.kept_bytes += b->bytes;
  if (b->limited) all_blocks.limited_bytes += b->bytes;
}

void stop_waiting(Block* b) {
  if (!b->waits) return;
  b->waits = false;
  all_blocks.pending.erase(b->waiting);
}

void release(Block* b) {
  if (--b->refs) return;
  std::vector<Block*> doomed{b};
  delete_all(doomed);
}

void arrived(Block* b) {
  if (!std::exchange(b->arriving, false)) return;
  b->stored->arrive();
  b->stored = nullptr;
}

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

namespace {

void dropped_is_gone(void* owner) {
  Block* b = static_cast<Block*>(owner);
  stop_waiting(b);
  b->buffer = nullptr;
  b->stored = nullptr;
  release(b);
}

}  // namespace

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

void forget_unneeded() {
  std::vector<Block*> todo, unneeded;
  for (Block* b = all_blocks.latest; b; b = b->previous) {
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
  for (Block* b = all_blocks.latest; b; b = b->previous)
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

Value* place_in_block(const Value* v) {
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

}  // namespace wengert
