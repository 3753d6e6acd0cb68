// Saved values that can be dropped and recomputed. While a budget or a policy asks for it, each result of a call is
// remembered as a block: its memory, and the recipe that fills it. A block held only by recorded instructions can be
// dropped; it is recomputed when the backward walk reaches one of them. All of this runs under the GIL.
#pragma once
#include "victims.h"

namespace wengert {

// Called after a call: its results become blocks if they can be recomputed. Returns their recipe, or null.
const Recipe* remember(Work&& work, SourceLine line, Value* const* in, int n_in, Value* const* results, int n_results);

// Called after a cast that was not remembered: whoever keeps its result keeps its operand instead.
void keep_source(const Op& cast, int64_t to, Value* from, Value* made);

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

struct ReplayPolicy {
  enum class Kind : uint8_t { none, budget, selective, block, full } kind = Kind::none;
  int64_t every = 1;          // for `block`: keep one of this many recorded results
  double flops_per_byte = 0;  // for `selective`: results that take more than this are kept
  std::shared_ptr<Store> store = {};
  Codec codec = Codec::none;
};
const ReplayPolicy& current_policy();  // the policy of this thread
void set_policy(const ReplayPolicy& policy);

void set_replay_hooks();  // once, at start

}  // namespace wengert
