#include "replay.h"

#include <algorithm>
#include <cmath>

namespace wengert {

namespace {

constexpr size_t kLeastBytes = 256;  // smaller results are always kept, since their recipe would take more memory
constexpr size_t kHeldBytes = 4096;  // an outside value up to this size is held even if nobody else holds it
constexpr double kSecondsPerProductFlop = 7.5e-12, kSecondsPerFlop = 4e-11;
constexpr double kFlopsPerElement = 8;  // for ops other than products
constexpr size_t kPendingPerCall = 16;

thread_local ReplayPolicy policy;
thread_local int64_t results_seen = 0;  // results seen by the policy
uint64_t last_order = 0;                // order of the last recipe

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
    case ReplayPolicy::Kind::full: limit(b); break;
    default: break;
  }
  if (unwanted) do_without(b);
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
      r->ingredients.push_back({b, place_in_block(in[i]), 0, 0});
      b->readers.push_back(r);
      ++b->refs;
    } else {
      note_saved(from);
      r->ingredients.push_back({nullptr, alias(in[i]), from->version, from->pinned ? digest_of(in[i]) : 0});
    }
  }
  all_blocks.work_clock += r->cost;
  all_blocks.position = all_blocks.work_clock;
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

void make_room(size_t bytes) { make_room_in(nullptr, bytes); }
bool make_room_on(Device& device, size_t bytes) { return make_room_in(&device, bytes) > 0; }

}  // namespace

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

Value* place_to_keep(const Value* v) {
  Value* kept = alias(v);
  kept->data = reinterpret_cast<char*>(v->data - v->buffer->data);
  return kept;
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

const ReplayPolicy& current_policy() { return policy; }

void set_policy(const ReplayPolicy& p) {
  drop_unwanted();
  policy = p;
  results_seen = 0;
}

void set_replay_hooks() {
  memory_hooks.make_room = make_room;
  memory_hooks.make_room_on = make_room_on;
  memory_hooks.destroy_managed = destroy_managed;
}

}  // namespace wengert
