// Values made from attributes alone.
#include <algorithm>
#include <cmath>

#include "../kernels/strided.h"
#include "../threads.h"
#include "check.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

void infer_full(const Op& op, const Type*, int, const Attrs& attrs, Type* out) {
  *out = {dtype_attr(op, attrs[1]), shape_attr(op, attrs[0])};
}

void compute_full(const Op&, Value* const*, int, const Attrs& attrs, Value** out) {
  alignas(16) char one[16];
  set_scalar(out[0]->dtype, one, attrs[2].f);
  fill(out[0]->data, one, size_of(out[0]->dtype), out[0]->size);
}

void infer_iota(const Op& op, const Type*, int, const Attrs& attrs, Type* out) {
  require_entries(op, op.attrs[0], attrs[0], 1);
  *out = {dtype_attr(op, attrs[1]), shape_attr(op, attrs[0])};
}

// Element i is start + i·step, rounded once to the dtype: errors do not add up along the range.
template <class T>
void fill_iota(DType computed, Value* y, T start, T step) {
  constexpr int64_t kTile = 4096;
  const CastFn cast = kernels().cast[static_cast<int>(computed)][static_cast<int>(y->dtype)];
  parallel_for((y->size + kTile - 1) / kTile, [&](int64_t tile) {
    const int64_t first = tile * kTile, n = std::min(kTile, y->size - first);
    T block[kTile];
    for (int64_t i = 0; i < n; ++i) block[i] = start + static_cast<T>(first + i) * step;
    cast(y->data + first * size_of(y->dtype), block, n);
  });
}

// Whole numbers that a double holds exactly and whose range cannot overflow int64.
bool is_whole(double x) { return std::trunc(x) == x && std::abs(x) <= 0x1p53; }

void compute_iota(const Op&, Value* const*, int, const Attrs& attrs, Value** out) {
  Value* y = out[0];
  const double start = attrs[2].f, step = attrs[3].f;
  const bool exact = is_whole(start) && is_whole(step) && std::abs(step) * static_cast<double>(y->size) < 0x1p62;
  if (exact && !is_inexact(y->dtype)) {
    fill_iota(DType::Int64, y, static_cast<int64_t>(start), static_cast<int64_t>(step));
  } else {
    fill_iota(DType::Float64, y, start, step);
  }
}

void infer_size_scalar(const Op& op, const Type*, int, const Attrs& attrs, Type* out) {
  require_entries(op, op.attrs[0], attrs[0], 1);
  *out = {dtype_attr(op, attrs[1]), {}};
}

void compute_size_scalar(const Op&, Value* const*, int, const Attrs& attrs, Value** out) {
  set_scalar_int(out[0]->dtype, out[0]->data, attrs[0].dims[0].raw);
}

}  // namespace

static void add_ops() {
  add_op({.name = "full",
          .n_inputs = 0,
          .attrs = {{"shape", Kind::sizes}, {"dtype", Kind::integer}, {"value", Kind::real}},
          .infer = infer_full,
          .compute = compute_full,
          .placing = Placing::fill,
          .differentiable = false});
  add_op({.name = "iota",
          .n_inputs = 0,
          .attrs = {{"shape", Kind::sizes}, {"dtype", Kind::integer}, {"start", Kind::real}, {"step", Kind::real}},
          .infer = infer_iota,
          .compute = compute_iota,
          .differentiable = false});
  add_op({.name = "size_scalar",
          .n_inputs = 0,
          .attrs = {{"size", Kind::sizes}, {"dtype", Kind::integer}},
          .infer = infer_size_scalar,
          .compute = compute_size_scalar,
          .placing = Placing::size,
          .differentiable = false,
          .on_host = true});
}
static const OpFamily family(add_ops);

}  // namespace wengert
