// Views, copies into another layout, and their transposes. Apart from casts and as_strided_add, nothing here does
// arithmetic.
#include <algorithm>
#include <cstring>
#include <vector>

#include "../kernels/gather.h"
#include "../kernels/strided.h"
#include "../threads.h"
#include "check.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

// reshape
// ----------------------------------------------------------------------------------------------------

void infer_reshape(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  if (!countable(attrs[0].dims)) {
    fail(ErrorKind::shape, op.name.c_str(),
         "cannot reshape " + to_string(in[0]) + ", which has " + to_string(product(in[0].shape)) + " elements, to " +
             to_string(attrs[0].dims) + ", which is more than a tensor can hold");
  }
  const Dims& shape = shape_attr(op, attrs[0]);
  if (!(product(in[0].shape) == product(shape))) {
    fail(ErrorKind::shape, op.name.c_str(),
         "cannot reshape " + to_string(in[0]) + ", which has " + to_string(product(in[0].shape)) + " elements, to " +
             to_string(shape) + ", which has " + to_string(product(shape)));
  }
  *out = {in[0].dtype, shape};
}

// Strides of the new shape over the same memory, or false. Groups of old and new axes with equal products are
// matched from the left; within a group the old axes must be one run.
bool reshaped_strides(const Value* x, const Dims& shape, int64_t* strides) {
  int64_t old_shape[kMaxRank], old_strides[kMaxRank];
  int n = 0;
  for (int i = 0; i < x->ndim; ++i) {
    if (x->shape[i] == 1) continue;
    old_shape[n] = x->shape[i];
    old_strides[n++] = x->strides[i];
  }
  int i = 0, j = 0;
  while (j < shape.n) {
    if (shape[j].raw == 1) {
      strides[j++] = 1;
      continue;
    }
    int64_t size = old_shape[i], new_size = shape[j].raw;
    int i_end = i + 1, j_end = j + 1;
    while (size != new_size) {
      if (new_size < size) {
        new_size *= shape[j_end++].raw;
      } else {
        if (old_strides[i_end - 1] != old_strides[i_end] * old_shape[i_end]) return false;
        size *= old_shape[i_end++];
      }
    }
    int64_t stride = old_strides[i_end - 1];
    for (int k = j_end - 1; k >= j; stride *= shape[k--].raw) strides[k] = stride;
    i = i_end;
    j = j_end;
  }
  return true;
}

Value* view_reshape(const Op&, const Value* x, const Attrs&, const Type& out) {
  int64_t strides[kMaxRank], stride = 1;
  if (x->contiguous || x->size == 0) {
    for (int i = out.shape.n - 1; i >= 0; stride *= out.shape[i--].raw) strides[i] = stride;
  } else if (!reshaped_strides(x, out.shape, strides)) {
    return nullptr;
  }
  return view(x, out.shape, strides, 0);
}

void compute_pack(const Op&, Value* const* in, int, const Attrs&, Value** out) {
  const Value* x = in[0];
  copy_packed(out[0]->data, x->data, x->strides, x->ndim, x->shape, size_of(x->dtype));
}

// permute, broadcast_to
// --------------------------------------------------------------------------------------

void infer_permute(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  const Dims& axes = attrs[0].dims;
  const int n = in[0].shape.n;
  uint32_t seen = 0;
  Dims shape;
  for (Dim axis : axes) {
    if (axis.raw < 0 || axis.raw >= n) break;
    seen |= 1u << axis.raw;
    shape.push(in[0].shape[static_cast<int>(axis.raw)]);
  }
  if (axes.n != n || shape.n != n || seen != (1u << n) - 1) {
    fail(ErrorKind::shape, op.name.c_str(),
         "axes " + to_string(axes) + " are not a permutation of the " + std::to_string(n) + " axes of " +
             to_string(in[0]));
  }
  *out = {in[0].dtype, shape};
}

Value* view_permute(const Op&, const Value* x, const Attrs& attrs, const Type& out) {
  int64_t strides[kMaxRank];
  for (int i = 0; i < x->ndim; ++i) strides[i] = x->strides[attrs[0].dims[i].raw];
  return view(x, out.shape, strides, 0);
}

void infer_broadcast_to(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  const Dims& x = in[0].shape;
  const Dims& shape = shape_attr(op, attrs[0]);
  const int lead = shape.n - x.n;
  bool fits = lead >= 0;
  for (int i = 0; fits && i < x.n; ++i) fits = x[i].raw == 1 || x[i] == shape[lead + i] || x[i] == Dim(1);
  if (!fits) {
    fail(ErrorKind::shape, op.name.c_str(),
         "cannot broadcast " + to_string(in[0]) + " to " + to_string(shape) +
             ": counted from the last, each of its sizes must be 1 or equal to the new one");
  }
  *out = {in[0].dtype, shape};
}

Value* view_broadcast_to(const Op&, const Value* x, const Attrs&, const Type& out) {
  int64_t strides[kMaxRank];
  const int lead = out.shape.n - x->ndim;
  for (int i = 0; i < out.shape.n; ++i) {
    const bool repeats = i < lead || (x->shape[i - lead] == 1 && out.shape[i].raw != 1);
    strides[i] = repeats ? 0 : x->strides[i - lead];
  }
  return view(x, out.shape, strides, 0);
}

// slice, unslice, slice_update
// -------------------------------------------------------------------------------

// Checks the axes whose numbers are all known. It runs when shapes are inferred, and again on the numbers of
// a run: what was symbolic in a trace must not read past the end.
void check_slice(const Op& op, const Dims& shape, const Dims& starts, const Dims& sizes, const Dims& steps) {
  for (int i = 0; i < shape.n; ++i) {
    const Dim n = shape[i], start = starts[i], size = sizes[i], step = steps[i];
    if (n.symbolic() || start.symbolic() || size.symbolic() || step.symbolic()) continue;
    if (step.raw == 0) fail(ErrorKind::value, op.name.c_str(), "the step of a slice must not be 0");
    if (size.raw == 0) continue;
    int64_t last;
    const bool overflows =
        __builtin_mul_overflow(size.raw - 1, step.raw, &last) || __builtin_add_overflow(last, start.raw, &last);
    if (size.raw < 0 || overflows || std::min(start.raw, last) < 0 || std::max(start.raw, last) >= n.raw) {
      fail(ErrorKind::index, op.name.c_str(),
           to_string(size) + " elements from " + to_string(start) + " in steps of " + to_string(step) +
               " are out of range for axis " + std::to_string(i) + " with size " + to_string(n) + " of shape " +
               to_string(shape));
    }
  }
}

// Where the slice lies in an array of the given strides.
int64_t slice_strides(const int64_t* strides, const Dims& starts, const Dims& steps, int64_t* sliced) {
  int64_t offset = 0;
  for (int i = 0; i < starts.n; ++i) {
    offset += starts[i].raw * strides[i];
    sliced[i] = steps[i].raw * strides[i];
  }
  return offset;
}

void write_slice(Value* y, const Dims& starts, const Dims& steps, const Value* v) {
  if (v->size == 0) return;
  int64_t strides[kMaxRank];
  const int64_t element = size_of(y->dtype), offset = slice_strides(y->strides, starts, steps, strides);
  copy_strided(y->data + offset * element, strides, v->data, v->strides, v->ndim, v->shape, element);
}

void infer_slice(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  for (int k = 0; k < 3; ++k) require_entries(op, op.attrs[k], attrs[k], in[0].shape.n);
  check_slice(op, in[0].shape, attrs[0].dims, attrs[1].dims, attrs[2].dims);
  *out = {in[0].dtype, shape_attr(op, attrs[1])};
}

Value* view_slice(const Op& op, const Value* x, const Attrs& attrs, const Type& out) {
  check_slice(op, x->dims(), attrs[0].dims, out.shape, attrs[2].dims);
  int64_t strides[kMaxRank];
  if (product(out.shape).raw == 0) return view(x, out.shape, x->strides, 0);
  const int64_t offset = slice_strides(x->strides, attrs[0].dims, attrs[2].dims, strides);
  return view(x, out.shape, strides, offset);
}

void infer_unslice(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  for (int k = 0; k < 3; ++k) require_entries(op, op.attrs[k], attrs[k], in[0].shape.n);
  check_slice(op, shape_attr(op, attrs[0]), attrs[1].dims, in[0].shape, attrs[2].dims);
  *out = {in[0].dtype, attrs[0].dims};
}

alignas(16) constexpr char kZero[16] = {};

// Zeroes everything around a slice without gaps: axis by axis, the parts before and after it.
void zero_around(Value* y, const Dims& starts, const int64_t* sizes) {
  const int64_t element = size_of(y->dtype), repeated[kMaxRank] = {};
  int64_t shape[kMaxRank];
  std::copy_n(y->shape, y->ndim, shape);
  char* to = y->data;
  for (int i = 0; i < y->ndim; ++i) {
    const int64_t start = starts[i].raw, end = start + sizes[i], stride = y->strides[i] * element;
    shape[i] = start;
    copy_strided(to, y->strides, kZero, repeated, y->ndim, shape, element);
    shape[i] = y->shape[i] - end;
    copy_strided(to + end * stride, y->strides, kZero, repeated, y->ndim, shape, element);
    shape[i] = sizes[i];
    to += start * stride;
  }
}

void compute_unslice(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Dims &starts = attrs[1].dims, &steps = attrs[2].dims;
  Value* y = out[0];
  check_slice(op, y->dims(), starts, in[0]->dims(), steps);
  const bool dense = in[0]->size > 0 && std::all_of(steps.begin(), steps.end(), [](Dim d) { return d.raw == 1; });
  if (dense) {
    zero_around(y, starts, in[0]->shape);
  } else {
    fill(y->data, kZero, size_of(y->dtype), y->size);
  }
  write_slice(y, starts, steps, in[0]);
}

void infer_slice_update(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_same_dtype(op, in, 0, 1, n);
  if (in[0].shape.n != in[1].shape.n) {
    fail(ErrorKind::shape, op.name.c_str(),
         "operands must have the same number of axes, got " + operands(in, n) + "; reshape the new values");
  }
  for (int k = 0; k < 2; ++k) require_entries(op, op.attrs[k], attrs[k], in[0].shape.n);
  check_slice(op, in[0].shape, attrs[0].dims, in[1].shape, attrs[1].dims);
  *out = in[0];
}

void compute_slice_update(const Op& op, Value* const* in, int n, const Attrs& attrs, Value** out) {
  check_slice(op, in[0]->dims(), attrs[0].dims, in[1]->dims(), attrs[1].dims);
  compute_pack(op, in, n, attrs, out);
  write_slice(out[0], attrs[0].dims, attrs[1].dims, in[1]);
}

// concat
// -----------------------------------------------------------------------------------------------------

void infer_concat(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  const char* name = op.name.c_str();
  if (n == 0) fail(ErrorKind::value, name, "needs at least one operand");
  const int axis = normalize_axis(name, attrs[0].i, in[0].shape.n);
  *out = in[0];
  for (int k = 1; k < n; ++k) {
    require_same_dtype(op, in, 0, k, n);
    bool fits = in[k].shape.n == in[0].shape.n;
    for (int i = 0; fits && i < in[0].shape.n; ++i) fits = i == axis || in[k].shape[i] == in[0].shape[i];
    if (!fits) {
      fail(ErrorKind::shape, name,
           "sizes must be equal on every axis but axis " + std::to_string(axis) + ", got " + operands(in, n));
    }
    out->shape[axis] = out->shape[axis] + in[k].shape[axis];
  }
}

// Packed operands are runs of bytes that alternate in the result. The result is written in a single pass, in tiles of
// its memory; copying one operand after the other would be slower.
void join_packed(char* to, Value* const* in, int n, int64_t outer) {
  constexpr int64_t kTile = int64_t{1} << 16;
  std::vector<int64_t> ends(static_cast<size_t>(n));
  int64_t row = 0;
  for (int k = 0; k < n; ++k) ends[k] = row += in[k]->bytes() / outer;
  const int64_t total = outer * row, tile_bytes = total < 8 * kTile ? total : kTile;
  parallel_for(total == 0 ? 0 : (total + tile_bytes - 1) / tile_bytes, [&](int64_t tile) {
    const int64_t end = std::min(total, (tile + 1) * tile_bytes);
    int64_t at = tile * tile_bytes, o = at / row, skip = at % row;  // in the result, and in its row
    size_t k = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), skip) - ends.begin());
    while (at < end) {
      const int64_t start = k == 0 ? 0 : ends[k - 1], count = std::min(ends[k] - skip, end - at);
      std::memcpy(to + at, in[k]->data + (o * (ends[k] - start) + skip - start), static_cast<size_t>(count));
      at += count;
      skip += count;
      while (k < ends.size() && ends[k] <= skip) ++k;
      if (k < ends.size()) continue;
      ++o;
      skip = 0;
      for (k = 0; ends[k] == 0;) ++k;
    }
  });
}

void compute_concat(const Op& op, Value* const* in, int n, const Attrs& attrs, Value** out) {
  Value* y = out[0];
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, y->ndim);
  if (y->size == 0) return;
  if (std::all_of(in, in + n, [](const Value* x) { return x->contiguous; })) {
    int64_t outer = 1;
    for (int i = 0; i < axis; ++i) outer *= y->shape[i];
    return join_packed(y->data, in, n, outer);
  }
  char* to = y->data;
  for (int k = 0; k < n; ++k) {
    const Value* x = in[k];
    copy_strided(to, y->strides, x->data, x->strides, x->ndim, x->shape, size_of(x->dtype));
    to += x->shape[axis] * y->strides[axis] * size_of(x->dtype);
  }
}

// as_strided, as_strided_add
// ---------------------------------------------------------------------------------

void infer_as_strided(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  require_entries(op, op.attrs[1], attrs[1], attrs[0].dims.n);
  require_entries(op, op.attrs[2], attrs[2], 1);
  *out = {in[0].dtype, shape_attr(op, attrs[0])};
}

Value* view_as_strided(const Op& op, const Value* x, const Attrs& attrs, const Type& out) {
  const int64_t offset = attrs[2].dims[0].raw;
  check_strided(op, out.shape, attrs[1].dims, offset, x->size);
  if (!x->contiguous) return nullptr;
  int64_t strides[kMaxRank];
  for (int i = 0; i < out.shape.n; ++i) strides[i] = attrs[1].dims[i].raw;
  return view(x, out.shape, strides, offset);
}

void compute_as_strided(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  Ref packed(contiguous(in[0]));
  int64_t strides[kMaxRank];
  for (int i = 0; i < out[0]->ndim; ++i) strides[i] = attrs[1].dims[i].raw;
  Ref seen(view(packed.v, out[0]->dims(), strides, attrs[2].dims[0].raw));
  copy_into(seen.v, out[0]);
}

// The elements of x, as if packed, with those at the strided positions replaced by v.
void infer_as_strided_update(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  require_entries(op, op.attrs[1], attrs[1], attrs[0].dims.n);
  require_entries(op, op.attrs[2], attrs[2], 1);
  if (in[0].dtype != in[1].dtype || !(in[1].shape == attrs[0].dims)) {
    fail(ErrorKind::shape, op.name.c_str(),
         to_string(in[1]) + " does not fit the place " + to_string(attrs[0].dims) + " in " + to_string(in[0]));
  }
  *out = in[0];
}

void compute_as_strided_update(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const int64_t offset = attrs[2].dims[0].raw;
  check_strided(op, in[1]->dims(), attrs[1].dims, offset, out[0]->size);
  copy_into(in[0], out[0]);
  int64_t strides[kMaxRank];
  for (int i = 0; i < in[1]->ndim; ++i) strides[i] = attrs[1].dims[i].raw;
  if (has_overlap(in[1]->ndim, in[1]->shape, strides))
    fail(ErrorKind::value, op.name.c_str(),
         "places of shape " + to_string(attrs[0].dims) + " with strides " + to_string(attrs[1].dims) +
             " overlap, so which element would be written is not defined");
  Ref place(view(out[0], in[1]->dims(), strides, offset));
  copy_into(in[1], place.v);
}

void infer_as_strided_add(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  require_number(op, in[0]);
  require_entries(op, op.attrs[1], attrs[1], in[0].shape.n);
  require_entries(op, op.attrs[2], attrs[2], 1);
  *out = {in[0].dtype, shape_attr(op, attrs[0])};
}

void compute_as_strided_add(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const int64_t offset = attrs[2].dims[0].raw;
  check_strided(op, in[0]->dims(), attrs[1].dims, offset, out[0]->size);
  int64_t strides[kMaxRank];
  for (int i = 0; i < in[0]->ndim; ++i) strides[i] = attrs[1].dims[i].raw;
  add_strided(in[0]->dtype, out[0]->data, out[0]->size, strides, offset, in[0]);
}

// cast
// -------------------------------------------------------------------------------------------------------

void infer_cast(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  const DType to = dtype_attr(op, attrs[0]);
  if (is_complex(in[0].dtype) && !is_complex(to) && to != DType::Bool) {
    fail(ErrorKind::dtype, op.name.c_str(),
         to_string(in[0]) + " to " + name_of(to) + " would drop the imaginary part; take real(x) or abs(x) first");
  }
  *out = {to, in[0].shape};
}

void infer_bitcast(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  const DType to = dtype_attr(op, attrs[0]);
  if (size_of(to) != size_of(in[0].dtype) || to == DType::Bool) {
    fail(ErrorKind::dtype, op.name.c_str(),
         std::string("the bits of ") + to_string(in[0]) + " cannot be read as " + name_of(to) +
             (to == DType::Bool ? "; compare with 0 instead" : ": the sizes of the elements differ"));
  }
  *out = {to, in[0].shape};
}

void compute_bitcast(const Op&, Value* const* in, int, const Attrs&, Value** out) {
  copy_packed(out[0]->data, in[0]->data, in[0]->strides, in[0]->ndim, in[0]->shape, size_of(in[0]->dtype));
}

void compute_cast(const Op&, Value* const* in, int, const Attrs&, Value** out) {
  constexpr int64_t kTile = 16384, kBlock = 512;
  const Value* x = in[0];
  const CastFn cast = kernels().cast[static_cast<int>(x->dtype)][static_cast<int>(out[0]->dtype)];
  const int64_t from_size = size_of(x->dtype), to_size = size_of(out[0]->dtype);
  parallel_for((x->size + kTile - 1) / kTile, [&](int64_t tile) {
    const int64_t first = tile * kTile, end = std::min(x->size, first + kTile);
    char* to = out[0]->data + first * to_size;
    if (x->contiguous) return cast(to, x->data + first * from_size, end - first);
    alignas(16) char block[kBlock * 16];
    for (int64_t i = first; i < end; i += kBlock) {
      const int64_t n = std::min(kBlock, end - i);
      gather_block(block, x->data, x->strides, x->ndim, x->shape, from_size, i, n);
      cast(to + (i - first) * to_size, block, n);
    }
  });
}

// contiguous, triu, tril
// -------------------------------------------------------------------------------------

void infer_same(const Op&, const Type* in, int, const Attrs&, Type* out) { *out = in[0]; }

void infer_replace_value(const Op& op, const Type* in, int n, const Attrs&, Type* out) {
  require_same_dtype(op, in, 0, 1, n);
  if (!(in[0].shape == in[1].shape))
    fail(ErrorKind::shape, op.name.c_str(), "operands must have the same shape, got " + operands(in, n));
  *out = in[0];
}

void compute_replace_value(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  compute_pack(op, in + 1, 1, attrs, out);
}

void infer_triangle(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  if (in[0].shape.n < 2) {
    fail(ErrorKind::shape, op.name.c_str(), "needs at least two axes, got " + to_string(in[0]));
  }
  *out = in[0];
}

// Copies, then zeroes the part of each row on the other side of diagonal k.
template <bool upper>
void compute_triangle(const Op& op, Value* const* in, int n, const Attrs& attrs, Value** out) {
  compute_pack(op, in, n, attrs, out);
  Value* y = out[0];
  if (y->size == 0) return;
  const int64_t rows = y->shape[y->ndim - 2], cols = y->shape[y->ndim - 1], element = size_of(y->dtype);
  const int64_t k = std::clamp(attrs[0].i, -rows, cols);
  for (int64_t r = 0; r < y->size / cols; ++r) {
    const int64_t diagonal = r % rows + k;
    const int64_t from = upper ? 0 : std::clamp<int64_t>(diagonal + 1, 0, cols);
    const int64_t to = upper ? std::clamp<int64_t>(diagonal, 0, cols) : cols;
    std::memset(y->data + (r * cols + from) * element, 0, static_cast<size_t>((to - from) * element));
  }
}

}  // namespace

static void add_ops() {
  const std::vector<AttrSpec> shape = {{"shape", Kind::sizes}}, diagonal = {{"k", Kind::integer}};
  add_op({.name = "reshape",
          .attrs = shape,
          .infer = infer_reshape,
          .compute = compute_pack,
          .view = view_reshape,
          .fusion = FusionRole::alias});
  add_op({.name = "permute", .attrs = {{"axes", Kind::integers}}, .infer = infer_permute, .view = view_permute});
  add_op({.name = "broadcast_to",
          .attrs = shape,
          .infer = infer_broadcast_to,
          .view = view_broadcast_to,
          .fusion = FusionRole::expand});
  add_op({.name = "slice",
          .attrs = {{"starts", Kind::sizes}, {"sizes", Kind::sizes}, {"steps", Kind::sizes}},
          .infer = infer_slice,
          .view = view_slice});
  add_op({.name = "unslice",
          .attrs = {{"shape", Kind::sizes}, {"starts", Kind::sizes}, {"steps", Kind::sizes}},
          .infer = infer_unslice,
          .compute = compute_unslice,
          .placing = Placing::in_zeros});
  add_op({.name = "slice_update",
          .n_inputs = 2,
          .attrs = {{"starts", Kind::sizes}, {"steps", Kind::sizes}},
          .infer = infer_slice_update,
          .compute = compute_slice_update,
          .placing = Placing::in_a_copy});
  add_op({.name = "concat",
          .n_inputs = -1,
          .attrs = {{"axis", Kind::integer}},
          .infer = infer_concat,
          .compute = compute_concat,
          .placing = Placing::join});
  const std::vector<AttrSpec> strided = {{"shape", Kind::sizes}, {"strides", Kind::sizes}, {"offset", Kind::sizes}};
  add_op({.name = "as_strided",
          .attrs = strided,
          .infer = infer_as_strided,
          .compute = compute_as_strided,
          .view = view_as_strided});
  add_op({.name = "as_strided_update",
          .n_inputs = 2,
          .attrs = strided,
          .infer = infer_as_strided_update,
          .compute = compute_as_strided_update});
  add_op(
      {.name = "as_strided_add", .attrs = strided, .infer = infer_as_strided_add, .compute = compute_as_strided_add});
  add_op({.name = "cast",
          .attrs = {{"dtype", Kind::integer}},
          .infer = infer_cast,
          .compute = compute_cast,
          .fusion = FusionRole::map,
          .placing = Placing::convert});
  add_op({.name = "bitcast",
          .attrs = {{"dtype", Kind::integer}},
          .infer = infer_bitcast,
          .compute = compute_bitcast,
          .differentiable = false});
  add_op({.name = "stop_gradient",
          .attrs = {},
          .infer = infer_same,
          .view = [](const Op&, const Value* x, const Attrs&, const Type&) { return alias(x); },
          .differentiable = false});
  add_op({.name = "replace_value", .n_inputs = 2, .infer = infer_replace_value, .compute = compute_replace_value});
  add_op({.name = "contiguous", .attrs = {}, .infer = infer_same, .compute = compute_pack, .placing = Placing::copy});
  add_op({.name = "triu", .attrs = diagonal, .infer = infer_triangle, .compute = compute_triangle<true>});
  add_op({.name = "tril", .attrs = diagonal, .infer = infer_triangle, .compute = compute_triangle<false>});
}
static const OpFamily family(add_ops);

}  // namespace wengert
