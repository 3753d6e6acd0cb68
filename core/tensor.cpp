#include "tensor.h"

#include <algorithm>

namespace wengert {

namespace {

void set_value(Tensor& t, Value* v) {
  release(t.value);
  t.value = v;
}

// Geometry of a view within its base, as attributes of the as_strided ops.
Attrs geometry(const Value* view, const Value* base) {
  Attrs a;
  Attr& shape = a.add(Attr::Kind::sizes);
  Attr& strides = a.add(Attr::Kind::sizes);
  Attr& offset = a.add(Attr::Kind::sizes);
  shape.dims.n = strides.dims.n = view->ndim;
  for (int i = 0; i < view->ndim; ++i) {
    shape.dims[i] = view->shape[i];
    strides.dims[i] = view->strides[i];
  }
  offset.dims.n = 1;
  offset.dims[0] = (view->data - base->data) / size_of(base->dtype);
  return a;
}

void share_edge(Value* to, const Value* from) {
  if (to->node) release(to->node);
  to->node = from->node;
  to->output = from->output;
  if (to->node) retain(to->node);
}

// The axes in memory order, largest stride first; empty if the elements do not fill their memory without gaps.
Dims memory_order(const Value* v) {
  Dims axes;
  axes.n = v->ndim;
  for (int i = 0; i < v->ndim; ++i) axes[i] = i;
  auto step = [v](Dim axis) { return v->shape[axis.raw] > 1 ? v->strides[axis.raw] : INT64_MAX; };
  std::stable_sort(axes.v, axes.v + axes.n, [&](Dim a, Dim b) { return step(a) > step(b); });
  int64_t expected = 1;
  for (int i = v->ndim - 1; i >= 0 && v->size > 0; --i) {
    const int64_t axis = axes[i].raw;
    if (v->shape[axis] > 1 && v->strides[axis] != expected) return {};
    expected *= v->shape[axis];
  }
  return axes;
}

// The tape needs the buffer's contents, so the base gets a copy and the old buffer is left to the tape. Views keep
// their positions if the copy has the same layout.
void copy_on_write(Alias& a) {
  Ref copy(empty_like(a.base, a.base->dtype));
  if (!a.base->contiguous && memory_order(a.base).n == a.base->ndim) {
    std::copy_n(a.base->strides, a.base->ndim, copy->strides);
    copy->contiguous = false;
  } else {
    a.repacked |= !a.base->contiguous;
  }
  copy_into(a.base, copy.v);
  share_edge(copy.v, a.base);
  copy->made = a.base->made;
  std::swap(a.base, copy.v);
}

// The view of the current base (which may have moved to another buffer). Not tracked.
Value* place_in_base(const Tensor& t) {
  if (t.alias->repacked)
    throw Error(ErrorKind::in_place, "a view of a tensor with gaps in its memory, " + to_string(t.value->type()) +
                                         ", cannot follow a write that gave that tensor new memory; clone() it first");
  Value* v = alias(t.value);
  v->made = 0;
  release(v->buffer);
  v->buffer = t.alias->base->buffer;
  retain(v->buffer);
  v->data = t.alias->base->data + t.offset;
  return v;
}

// A view of x, with an edge to x if x has one. How a view relates to its base does not depend on whether its reader
// records, nor on whether the tape or transformation in which it was written is still running.
Value* linked(const Op& op, Value* x, const Attrs& attrs) {
  Value* out;
  if (x->node)
    apply_derivative(*find_derivative(op, &x, 1, attrs, 1).held, &x, 1, &attrs, &out);
  else
    apply(op, &x, 1, attrs, &out);
  return out;
}

Value* permuted(Value* x, const Dims& axes) {
  static const Op* permute = find_op("permute");
  Attrs attrs;
  attrs.add(Attr::Kind::integers).dims = axes;
  return linked(*permute, x, attrs);
}

// The base with its axes permuted into memory order, so that it is contiguous and offset and strides identify a view.
Ref in_memory_order(Value* base, Dims& axes) {
  if (base->contiguous) return Ref::share(base);
  axes = memory_order(base);
  if (axes.n != base->ndim)
    throw Error(ErrorKind::in_place, "views of a tensor that needs a gradient and has gaps in its memory, " +
                                         to_string(base->type()) + ", cannot be written in place; clone() it first");
  return Ref(permuted(base, axes));
}

Ref in_order_of(const Value* base, Value* packed, const Dims& axes) {
  if (base->contiguous) return Ref::share(packed);
  Dims back = axes;
  for (int i = 0; i < axes.n; ++i) back[static_cast<int>(axes[i].raw)] = i;
  return Ref(permuted(packed, back));
}

// The same if nothing is tracked, so that tapes still know what the base consists of.
void log_update(Alias& a, const Value* view, Value* result) {
  static const Op* update = find_op("as_strided_update");
  if (!thread_state.logs) return;
  Value* in[2] = {a.base, result};
  if (a.base->contiguous)
    log_op(*update, in, 2, geometry(view, a.base), &a.base);
  else
    a.base->made = 0;
}

// Records the new base after `result` was written to `view`, a part of its buffer.
void record_update(Alias& a, const Value* view, Value* result) {
  static const Op* update = find_op("as_strided_update");
  Value* tracked_by[2] = {a.base, result};
  if (!any_tracked(tracked_by, 2)) return log_update(a, view, result);
  Dims axes;
  Ref packed = in_memory_order(a.base, axes);
  Value* in[2] = {packed.v, result};
  uint64_t mask = (tracked(in[0]) ? 1 : 0) | (tracked(in[1]) ? 2 : 0);
  Attrs attrs = geometry(view, packed.v);
  const Handle<const Derivative> d = find_derivative(*update, in, 2, attrs, mask);
  Ref updated(alias(packed.v));
  record_op(*update, *d.held, in, 2, attrs, &updated.v);
  Ref base = in_order_of(a.base, updated.v, axes);
  std::swap(a.base, base.v);
}

bool repeats_elements(const Value* v) { return !v->contiguous && has_overlap(v->ndim, v->shape, v->strides); }

// Elements that share memory would overwrite each other, and the last one would win.
[[noreturn]] void fail_overlapping(const Value* v, const char* op) {
  fail(
      ErrorKind::in_place, op,
      "elements of this view, " + to_string(v->type()) +
          ", or of one that it was taken from share memory (it was broadcast, or its strides overlap), so it cannot be "
          "written in place; clone() it first");
}

void mark_written(Buffer* b) {
  before_write(b);
  ++b->version;
  set_written(b, tape_hooks.source_line());
}

}  // namespace

void enter_group(Tensor& t, Alias* a) {
  retain(a);
  t.alias = a;
  t.previous = nullptr;
  t.following = a->names;
  if (a->names) a->names->previous = &t;
  a->names = &t;
}

void leave_group(Tensor& t) {
  (t.previous ? t.previous->following : t.alias->names) = t.following;
  if (t.following) t.following->previous = t.previous;
  t.previous = t.following = nullptr;
  release(t.alias);
  t.alias = nullptr;
}

Attrs geometry(const Tensor& view) {
  if (view.is_base) return geometry(view.alias->base, view.alias->base);
  Attrs attrs = geometry(view.value, view.alias->base);
  attrs.v[2].dims[0] = view.offset / size_of(view.value->dtype);
  return attrs;
}

Value* base_in_memory_order(const Alias& a) {
  if (a.repacked || memory_order(a.base).n != a.base->ndim) return nullptr;
  Dims axes;
  return in_memory_order(a.base, axes).take();
}

void destroy(Tensor& t) {
  if (t.alias) leave_group(t);
  if (t.value) release(t.value);
}

Value* refresh(Tensor& t) {
  static const Op* as_strided = find_op("as_strided");
  Alias& a = *t.alias;
  if (t.is_base) {
    retain(a.base);
    set_value(t, a.base);
  } else {
    Ref here(place_in_base(t));
    if (t.detached || !a.base->node) {
      if (thread_state.logs && a.base->contiguous) log_op(*as_strided, &a.base, 1, geometry(here.v, a.base), &here.v);
      set_value(t, here.take());
    } else {
      Dims axes;
      Ref packed = in_memory_order(a.base, axes);
      set_value(t, linked(*as_strided, packed.v, geometry(here.v, packed.v)));
    }
  }
  t.seen = a.version;
  return t.value;
}

void join(Tensor& base, Tensor& view, bool detached) {
  if (!base.alias) {
    enter_group(base, new Alias{0, 0, base.value});
    retain(base.value);
    base.is_base = true;
    base.seen = 0;
  }
  enter_group(view, base.alias);
  view.seen = view.alias->version;
  view.offset = view.value->data - view.alias->base->data;
  view.is_base = false;
  view.detached = detached || base.detached;
  view.overlaps = base.overlaps || repeats_elements(base.value);
}

bool has_shared_elements(Tensor& t) { return repeats_elements(current(t)) || t.overlaps; }

void refuse_leaf(Tensor& t, const char* op) {
  const Value* old = current(t);
  if (!t.is_base && t.alias && !t.detached) old = t.alias->base;
  if (lasting_leaf(old))
    fail(ErrorKind::in_place, op,
         "a leaf that requires a gradient, " + to_string(old->type()) +
             ", cannot be changed in place while recording; do it under wengert.no_grad()");
}

namespace {

// Whether t is an argument of a function being differentiated. Its memory belongs to the caller, who must not see what
// the function writes.
bool borrowed(const Tensor& t) {
  const Value* v = t.alias ? t.alias->base : t.value;
  return v->node && v->node->leaf && !lasting_leaf(v);
}

bool writes_through(const Tensor& t) { return t.value->buffer->pinned && !borrowed(t); }

bool alone(const Tensor& t) { return (!t.alias || t.alias->refs == 1) && !writes_through(t); }

bool needs_own_memory(const Tensor& t, bool repeats) {
  const Buffer& b = *t.value->buffer;
  return t.alias && (b.saved || b.shared || repeats || borrowed(t)) && !writes_through(t);
}

void refuse_places(const Tensor& t, const char* op) {
  // A gradient may be one element seen through strides of zero; it gets its own memory first. A view of a tensor does
  // not.
  const bool repeats = repeats_elements(t.value);
  if (t.overlaps || (repeats && (!t.is_base || writes_through(t)))) fail_overlapping(t.value, op);
  const Value* base = t.alias ? t.alias->base : nullptr;
  if (needs_own_memory(t, repeats) && !t.is_base && !base->contiguous && memory_order(base).n != base->ndim)
    fail(ErrorKind::in_place, op,
         "this is a view of a tensor with gaps in its memory, " + to_string(base->type()) +
             ", whose contents are needed elsewhere; clone() that tensor first");
}

}  // namespace

void separate_elements(Tensor& t) {
  if (t.alias || !repeats_elements(t.value) || !alone(t)) return;
  Ref packed(contiguous(t.value));
  share_edge(packed.v, t.value);
  packed->made = t.value->made;
  set_value(t, packed.take());
}

void require_assignable(Tensor& t, bool recorded, const char* op) {
  if (recorded && thread_state.grad_enabled) refuse_leaf(t, op);
  current(t);
  if (!alone(t)) refuse_places(t, op);
}

bool writable(const Tensor& t) {
  const Buffer& b = *t.value->buffer;
  return t.value->contiguous && b.saved == 0 && !b.shared && !(t.alias && t.alias->refs > 1);
}

void assign(Tensor& t, Value* owned, const char* op, bool recorded) {
  Ref result(owned);
  Value* old = current(t);
  if (result->dtype != old->dtype || !same_shape(result.v, old))
    fail(ErrorKind::shape, op,
         "the result " + to_string(result->type()) + " does not fit in place of " + to_string(old->type()));
  if (result->device == kCpu && old->device != kCpu && !result->node && is_uniform(result.v))
    result = Ref(on_device(result.v, old->device));  // a number
  if (result->device != old->device)
    fail(ErrorKind::device, op,
         "the result is on " + device_name(result->device) + " and does not fit in place of a tensor on " +
             device_name(old->device) + "; move it with to()");
  const bool keeps_edge = !recorded || (lasting_leaf(old) && !(result->node && tracked(result.v)));
  if (alone(t)) {
    Value* v;
    if (result->refs == 1 && result->buffer->refs == 1 && result->contiguous) {
      v = result.take();
    } else {  // never share the source's buffer
      v = empty_like(result.v, result->dtype);
      copy_into(result.v, v);
      share_edge(v, result.v);
      v->made = result->made;
    }
    if (keeps_edge) share_edge(v, old);
    carry_category(old->buffer, v->buffer);
    if (t.alias) {
      leave_group(t);
      t.is_base = false;
    }
    set_value(t, v);
    return;
  }
  refuse_places(t, op);
  if (needs_own_memory(t, repeats_elements(old))) {
    copy_on_write(*t.alias);
    Value* v = t.is_base ? Ref::share(t.alias->base).take() : place_in_base(t);
    if (!t.is_base) share_edge(v, old);
    set_value(t, v);
    old = v;
  }
  // If memory overlaps, as in a[1:] = a[:-1], the source is read completely before writing.
  Ref packed;
  if (share_memory(result.v, old)) {
    packed = Ref(empty_like(result.v, result->dtype));
    copy_into(result.v, packed.v);
  }
  copy_into(packed ? packed.v : result.v, old);
  mark_written(old->buffer);
  Value* v = alias(old);
  v->made = result->made;
  share_edge(v, keeps_edge || t.detached ? old : result.v);
  if (t.alias) {
    Alias& a = *t.alias;
    if (t.is_base) {
      retain(v);
      release(a.base);
      a.base = v;
    } else if (recorded && !t.detached) {
      record_update(a, v, v);
    } else {
      log_update(a, v, v);
    }
    t.seen = ++a.version;
  }
  set_value(t, v);
}

}  // namespace wengert
