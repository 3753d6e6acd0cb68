// Saved values that can be dropped and recomputed. While a budget or a policy asks for it, each result of a call is
// remembered as a block: its memory, and the recipe that fills it. A block held only by recorded instructions can be
// dropped; it is recomputed when the backward walk reaches one of them. All of this runs under the GIL.
#pragma once
#include <list>

#include "calls.h"
#include "offload.h"

namespace wengert {

struct Block;
struct Group;

// An operand of a recipe: part of another block, or an outside value, which the recipe holds.
struct Ingredient {
  Block* block;  // null: an outside value
  Value* value;  // for part of a block: its axes, with the byte offset in place of `data`
  uint32_t version;
  uint64_t digest;  // of memory that others can write unseen; else 0
};

// How to compute the results of one call.
struct Recipe {
  uint32_t refs;   // one per block that it makes
  uint64_t order;  // order of execution: a recipe comes after everything it reads
  double cost;     // in seconds, estimated
  double flops;
  Work work;
  std::vector<Ingredient> ingredients;
  std::vector<Block*> results;  // null: not a block, or not any more
  SourceLine line;
};

struct Block {
  uint32_t refs;  // its buffer and the recipes that read it
  uint16_t result;
  uint8_t size_class;  // of the memory, while it has any
  // Set by the policy: dropped as soon as the user no longer sees it, until when it stands at `waiting`; or limited to
  // a few of its kind.
  bool waits, limited;
  bool needed;    // scratch mark, used to find blocks that are no longer needed
  bool arriving;  // its contents are on their way back to the device
  Codec codec;
  DType dtype;
  Device* device;  // whose memory it is; null: the host's
  Buffer* buffer;  // null: nobody holds it. If it has no memory, the block is dropped
  Recipe* recipe;  // null: it cannot be recomputed
  size_t bytes;
  size_t place;       // index among the resident blocks
  double most_flops;  // a waiting block is kept if recomputing it from what is resident takes more than this
  double made_at;     // time, measured in work done
  Group* group;       // dropped blocks that are computed from each other; null if resident
  uint64_t digest;    // of memory that others can write unseen; else 0
  std::vector<Recipe*> readers;
  std::shared_ptr<Store> store;    // where its contents go when it is dropped; null: they are recomputed instead
  std::unique_ptr<Stored> stored;  // there
  std::list<Block*>::iterator waiting;
  Block *previous, *following;  // the list of all blocks
  bool resident() const { return buffer && buffer->data; }
};

// The block of a buffer, or null.
Block* block_of(const Buffer* b);

// Called after a call: its results become blocks if they can be recomputed. Returns their recipe, or null.
const Recipe* remember(Work&& work, SourceLine line, Value* const* in, int n_in, Value* const* results, int n_results);

// Called after a cast that was not remembered: whoever keeps its result keeps its operand instead.
void keep_source(const Op& cast, int64_t to, Value* from, Value* made);
// Drops the blocks that policies do not want and the user no longer sees.
void drop_unwanted();

// The value that a recorded instruction keeps in place of v: a reference into its block, without an edge. Its data
// pointer is an offset, so it must be read through `restored`. A new reference.
Value* place_to_keep(const Value* v);
// The kept value, recomputed if it was dropped. A new reference, without an edge.
Ref restored(const Value* kept);

// Called before memory is written in place: its old contents can still be recomputed, but are no longer resident.
void forget_contents(Buffer* b);
inline void before_write(Buffer* b) {
  if (is_managed(b)) [[unlikely]]
    forget_contents(b);
}
// Called before memory is shared with others who may write to it unseen: replays that read it will check its digest.
void before_export(Buffer* b);

// Called after a walk that freed the nodes it visited: forgets the recipes that are no longer needed.
void forget_unneeded();

struct ReplayPolicy {
  enum class Kind : uint8_t { none, budget, selective, block, full } kind = Kind::none;
  int64_t every = 1;          // for `block`: keep one of this many recorded results
  double flops_per_byte = 0;  // for `selective`: results that take more than this are kept
  std::shared_ptr<Store> store = {};
  Codec codec = Codec::none;
};
const ReplayPolicy& current_policy();  // the policy of this thread
void set_policy(const ReplayPolicy& policy);

struct ReplayCounters {
  uint64_t dropped, recomputed;        // blocks dropped; calls that ran again
  uint64_t stored, loaded;             // blocks written to a store; read back from it
  size_t dropped_bytes;                // in all
  size_t kept_bytes;                   // of resident blocks
  double seconds_made, seconds_again;  // estimated time of the remembered calls, and of those that ran again
};
extern ReplayCounters replay_counters;
void set_replay_hooks();  // once, at start

// Bytes that cannot be dropped now: live bytes minus the blocks held only by recorded instructions. Of the host, or of
// a device.
size_t fixed_bytes(const Device* device = nullptr);

}  // namespace wengert
