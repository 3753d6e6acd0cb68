// Blocks: the memory of results that can be dropped, and the recipes that fill it again. Which of them are dropped is
// decided in victims.cpp, what becomes a block in replay.cpp.
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

// A block that has memory, with the fields that the search for victims reads.
struct Resident {
  Block* block;
  double made_at;
  double cost_per_byte;  // cost of recomputing it, squared, as of the last update
};

inline constexpr double kSecondsPerCall = 3e-7;

struct AllBlocks {
  Block* latest = nullptr;
  std::vector<Resident> residents;
  std::vector<Block*> shortlist;  // residents among which the next victims are chosen
  std::list<Block*> pending;      // unwanted blocks, to be dropped when the user no longer sees them
  size_t n_limited = 0, limited_bytes = 0, largest_limited = 0;
  double work_clock = 0;  // seconds of work remembered so far
  double position = 0;    // where on that clock values are being used: at the end, or where the walk is
};
extern AllBlocks all_blocks;

struct ReplayCounters {
  uint64_t dropped, recomputed;        // blocks dropped; calls that ran again
  uint64_t stored, loaded;             // blocks written to a store; read back from it
  size_t dropped_bytes;                // in all
  size_t kept_bytes;                   // of resident blocks
  double seconds_made, seconds_again;  // estimated time of the remembered calls, and of those that ran again
};
extern ReplayCounters replay_counters;

// The block of a buffer, or null.
Block* block_of(const Buffer* b);
Block* new_block(Recipe* recipe, size_t result, Buffer* buffer);
void release(Block* b);
void count_resident(Block* b);  // a new one
// Detaches the block from its buffer, which becomes an ordinary one.
void separate(Block* b);
void join_dropped(Block* b);  // its contents are gone
void arrived(Block* b);       // waits on the device for what is on its way there
// Nothing is left to be decided about the block: its memory is gone, or stays.
void stop_waiting(Block* b);
// Whether only recorded instructions hold it; each of these has a separate value.
bool droppable(const Block* b);
void drop(Block* b);
// Gives a block its recomputed memory; if others still hold its old buffer, that buffer takes the memory over.
void attach(Block* b, Buffer* fresh);
double squared_cost_per_byte(const Block* b);
void destroy_managed(Buffer* buffer);
void forget_unneeded();

// A value with the same axes but no memory; `data` is the offset in its buffer.
Value* place_in_block(const Value* v);
Value* at_place(const Value* place, Buffer* buffer);
// A hash of the contents, never 0.
uint64_t digest_of(const Value* v);
uint64_t digest_of(const Block* b);

}  // namespace wengert
