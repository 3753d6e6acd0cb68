// Bringing dropped values back: from where they were stored, or by running what made them again.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "replay.h"

namespace wengert {

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
    Ref place(place_in_block(made[k].v));
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
  all_blocks.position = b->made_at;
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

}  // namespace wengert
