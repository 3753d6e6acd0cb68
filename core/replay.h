// Saved values that can go and come back. While a budget or a policy asks for it, what a call made is remembered as a
// block: the memory, and the recipe that fills it. A block that only recorded instructions hold can be dropped, and is
// computed again when one of them is walked. All of it runs under the GIL.
#pragma once
#include "calls.h"
#include "offload.h"

namespace wengert {

struct Block;
struct Group;

// What a recipe reads: a place in another block, or a value from outside, which it holds.
struct Ingredient {
  Block* block;  // null: from outside
  Value* value;  // of a place in a block: the axes, and the offset in bytes as `data`
  uint32_t version;
  uint64_t digest;  // of memory that others can write unseen; else 0
};

// How the results of one call are computed.
struct Recipe {
  uint32_t refs;   // blocks that it makes
  uint64_t order;  // of what ran first: a recipe comes after all that it reads
  double cost;     // in seconds, estimated
  double flops;
  Work work;
  std::vector<Ingredient> ingredients;
  std::vector<Block*> results;  // null: not a block, or no longer one
  SourceLine line;
};

struct Block {
  uint32_t refs;  // its buffer, and the recipes that read it
  uint16_t result;
  uint8_t size_class;  // of the memory, while there is some
  // By the policy: it goes as soon as nobody sees it; or, only few of its kind stay.
  bool unwanted, limited;
  bool needed;  // while those that are not are looked for
  Codec codec;
  DType dtype;
  Buffer* buffer;  // null: nobody holds it. Without memory: dropped
  Recipe* recipe;  // null: it cannot be computed again
  size_t bytes;
  size_t place;       // among those that are there
  double most_flops;  // of an unwanted one: where it takes more to compute it again, from what is there, it is kept
  double made_at;     // on the clock of work done
  Group* group;       // of dropped blocks that are computed from each other; null: it is there
  uint64_t digest;    // of memory that others can write unseen; else 0
  std::vector<Recipe*> readers;
  std::shared_ptr<Store> store;    // where its contents go when it is dropped; null: they are computed again
  std::unique_ptr<Stored> stored;  // there
  Block *previous, *following;     // all of them
  bool resident() const { return buffer && buffer->data; }
};

// The block of a buffer; null: it has none.
Block* block_of(const Buffer* b);

// After a call: its results become blocks, where they can be computed again. Returns their recipe, or null.
const Recipe* remember(Work&& work, SourceLine line, Value* const* in, int n_in, Value* const* results, int n_results);

// After a cast that was not remembered: who keeps its result keeps what it was made from.
void keep_source(const Op& cast, int64_t to, Value* from, Value* made);
// Drops what policies do not want and nobody sees any more.
void drop_unwanted();

// A value for a recorded instruction to keep: the place in its block, without an edge. A new reference; its data is an
// offset, so that it must be read through `restored`.
Value* place_to_keep(const Value* v);
// The value that was kept, computed again if it was dropped. A new reference, without an edge.
Ref restored(const Value* kept);

// Before memory is written in place: what it held can still be computed again, but is not there any more.
void forget_contents(Buffer* b);
inline void before_write(Buffer* b) {
  if (b->size_class == kManaged) [[unlikely]]
    forget_contents(b);
}
// Before others may write to the memory unseen: replays that read it will look whether they did.
void before_export(Buffer* b);

// After a walk that freed what it visited: forgets how to compute what nobody will need to be computed again.
void forget_unneeded();

struct ReplayPolicy {
  enum class Kind : uint8_t { none, budget, selective, block, full } kind = Kind::none;
  int64_t every = 1;          // of `block`: how many recorded results there are for one that is kept
  double flops_per_byte = 0;  // of `selective`: what takes more is kept
  std::shared_ptr<Store> store = {};
  Codec codec = Codec::none;
};
const ReplayPolicy& current_policy();  // of this thread
void set_policy(const ReplayPolicy& policy);

struct ReplayCounters {
  uint64_t dropped, recomputed;        // blocks; calls that ran again
  uint64_t stored, loaded;             // blocks that were put away; that were read back
  size_t dropped_bytes;                // in all
  size_t kept_bytes;                   // of blocks that are there now
  double seconds_made, seconds_again;  // estimated: of calls that were remembered; of those that ran again
};
extern ReplayCounters replay_counters;
void set_replay_hooks();  // once, at start

// What cannot be dropped now: live bytes without the blocks that only recorded instructions hold.
size_t fixed_bytes();

}  // namespace wengert
