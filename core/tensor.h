// What Python holds: a name for a value. Writing in place gives the name a new value; views of one buffer are kept
// together so that a write through one of them is seen, and differentiated, through the others.
#pragma once
#include "tape.h"

namespace wengert {

struct Tensor {
  Value* value = nullptr;  // null for tensors that are not plain (duals, traced values)
  Alias* alias = nullptr;  // null: shares with nobody
  uint32_t seen = 0;       // alias version that `value` reflects
  int64_t offset = 0;      // of a view: bytes from the start of its base
  bool is_base = false;
  bool detached = false;                             // a view that carries no gradient
  bool overlaps = false;                             // a view of a tensor that has several elements at one place
  Tensor *previous = nullptr, *following = nullptr;  // of the same alias
};

void destroy(Tensor& t);

// The value, brought up to date if another view was written to.
Value* refresh(Tensor& t);
inline Value* current(Tensor& t) {
  if (t.alias && t.alias->version != t.seen) return refresh(t);
  return t.value;
}

// t becomes, or ceases to be, one of the names that stand for one buffer.
void enter_group(Tensor& t, Alias* a);
void leave_group(Tensor& t);

// Geometry of a view within its base, in elements, as attributes of the as_strided ops: shape, strides, offset.
Attrs geometry(const Tensor& view);
// The base with its axes in the order of memory, and so contiguous: a new reference, or null if its memory has gaps.
Value* base_in_memory_order(const Alias& a);

// `v` becomes a view in t's alias group. Takes v's value as it is.
void join(Tensor& base, Tensor& view, bool detached);

// Whether writing one element of t could change another one, of t or of a tensor that t is a view of.
bool has_shared_elements(Tensor& t);

// A tensor whose memory no other one shares gets a place for every element: a gradient may be one number, seen through
// strides of zero. Without it, a view of such a tensor could not be written.
void separate_elements(Tensor& t);

// A leaf, or a view of one, may be written only where nothing is recorded: its gradient would have no meaning.
void refuse_leaf(Tensor& t, const char* op);

// Throws what `assign` would throw for a result of t's type, and what in-place ops do: a leaf that requires a gradient
// is written only where nothing is recorded.
void require_assignable(Tensor& t, bool recorded, const char* op);

// Whether new contents may be written over the old: no graph needs these, and no view would miss that they changed.
bool writable(const Tensor& t);

// t = result, in place. Takes the result's reference; its type is t's type. The buffer is taken over, copied or written
// through, so that neither other views nor saved values see anything wrong; writing through a pinned buffer
// that the tape needs raises when that backward runs. Where the write is not recorded, t keeps the edge that it had.
void assign(Tensor& t, Value* result, const char* op, bool recorded);

}  // namespace wengert
