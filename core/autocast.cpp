#include "autocast.h"

namespace wengert {

namespace {

const Op& cast_op() {
  static const Op& op = *find_op("cast");
  return op;
}

struct CastOfLeaf {
  Ref leaf;  // held, so that its address is not another value's
  uint32_t version;
  Ref cast;
};

// Not destroyed with the thread, which does not hold the GIL then.
thread_local std::unordered_map<const Value*, CastOfLeaf>* casts = nullptr;

// A cast that backward reads is not kept beside what it was made from, where that is there anyway or takes fewer bytes:
// a leaf, or a result in half precision. It is made again.
Value* recorded_cast(Value* v, DType t) {
  Value* made = cast_value(v, t);
  const bool leaf = v->node && v->node->leaf;
  if (thread_state.grad_enabled && !thread_state.replays && tracked(v) && (leaf || size_of(v->dtype) < size_of(t)))
    keep_source(cast_op(), static_cast<int64_t>(t), v, made);
  return made;
}

constexpr size_t kMostCasts = 4096;  // leaves that nobody uses any more are found out by nothing else

// A cast that was made without recording cannot serve where the leaf is tracked; nor one that backward has passed.
bool serves(const CastOfLeaf& known, const Value* leaf, DType t) {
  if (known.version != leaf->buffer->version || known.cast->dtype != t) return false;
  if (!thread_state.grad_enabled || !tracked(leaf)) return true;
  const Node* n = known.cast->node;
  return n && !is_freed(n);
}

}  // namespace

void set_autocast(const CastPolicy* policy) {
  thread_state.autocast = policy;
  thread_state.update();
}

Value* cast_value(Value* v, DType t) {
  Attrs attrs;
  attrs.add(Attr::Kind::integer).i = static_cast<int64_t>(t);
  Value* out;
  apply(cast_op(), &v, 1, attrs, &out);
  return out;
}

Value* cast_operand(Value* v, DType t) {
  if (!v->node || !v->node->leaf) return recorded_cast(v, t);
  if (!casts) casts = new std::unordered_map<const Value*, CastOfLeaf>;
  auto known = casts->find(v);
  if (known == casts->end() || !serves(known->second, v, t)) {
    if (casts->size() >= kMostCasts) casts->clear();
    Ref made(recorded_cast(v, t));
    known = casts->insert_or_assign(v, CastOfLeaf{Ref::share(v), v->buffer->version, std::move(made)}).first;
  }
  retain(known->second.cast.v);
  return known->second.cast.v;
}

void forget_casts() {
  if (casts) casts->clear();
  drop_unwanted();
}

}  // namespace wengert
