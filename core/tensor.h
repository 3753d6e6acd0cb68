// What Python holds: a name for a value. Writing in place gives the name a new value. Views of one buffer form a group,
// so that a write through one of them is seen, and differentiated, through the others.
#pragma once
#include "tape.h"

namespace wengert {

struct Tensor {
  Value* value = nullptr;  // null for tensors that are not plain (duals, traced values)
  Alias* alias = nullptr;  // null: shares its buffer with nobody
  uint32_t seen = 0;       // alias version that `value` reflects
  int64_t offset = 0;      // of a view: bytes from the start of its base
  bool is_base = false;
  bool detached = false;                             // a view that carries no gradient
  bool overlaps = false;                             // a view of a tensor whose elements share memory
  Tensor *previous = nullptr, *following = nullptr;  // of the same alias
};

void destroy(Tensor& t);

// The value, brought up to date if another view was written to.
Value* refresh(Tensor& t);
inline Value* current(Tensor& t) {
  if (t.alias && t.alias->version != t.seen) return refresh(t);
  return t.value;
}

// Adds t to an alias group, or removes it.
void enter_group(Tensor& t, Alias* a);
void leave_group(Tensor& t);

// Geometry of a view within its base, in elements, as attributes of the as_strided ops: shape, strides, offset.
Attrs geometry(const Tensor& view);
// The base with its axes permuted into memory order, hence contiguous. A new reference, or null if its memory has gaps.
Value* base_in_memory_order(const Alias& a);

// Makes `view` a member of `base`'s alias group, with its current value.
void join(Tensor& base, Tensor& view, bool detached);

// Whether writing one element of t could change another element of t, or of a tensor that t is a view of.
bool has_shared_elements(Tensor& t);

// Gives every element its own memory if t shares its buffer with no other tensor. A gradient may be one number seen
// through strides of zero, and a view of such a tensor could not be written.
void separate_elements(Tensor& t);

// Throws for a leaf, or a view of one, while recording is on: its gradient would be meaningless after the write.
void refuse_leaf(Tensor& t, const char* op);

// Throws what `assign` would throw for a result of t's type, and what in-place ops throw for a leaf that requires a
// gradient while recording is on.
void require_assignable(Tensor& t, bool recorded, const char* op);

// Whether the old contents may be overwritten: no graph needs them, and every view would notice the change.
bool writable(const Tensor& t);

// t = result, in place. Takes the result's reference; the types are equal. The buffer is taken over, copied or written
// through, so that views stay in step and saved values stay intact. After a write to a pinned buffer that the tape
// needs, backward raises. If the write is not recorded, t keeps its edge.
void assign(Tensor& t, Value* result, const char* op, bool recorded);

}  // namespace wengert
