// Sorting, the k largest, and positions in a sorted vector. NaN cannot be ordered and is refused.
#include "../kernels/sort.h"

#include "check.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

void require_ordered(const Op& op, const Type& x) {
  if (x.dtype == DType::Bool || is_complex(x.dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(),
         std::string(is_complex(x.dtype) ? "complex numbers" : "bools") + " are not ordered, got " + to_string(x) +
             (is_complex(x.dtype) ? "; sort abs(x)" : "; cast to an integer dtype first"));
  }
}

// "[3, 0]"
std::string position_of(const Value* x, int64_t flat) {
  int64_t at[kMaxRank];
  for (int i = x->ndim - 1; i >= 0; flat /= x->shape[i--]) at[i] = flat % x->shape[i];
  std::string s = "[";
  for (int i = 0; i < x->ndim; ++i) s += (i == 0 ? "" : ", ") + std::to_string(at[i]);
  return s + "]";
}

[[noreturn]] void refuse_nan(const Op& op, const Value* x, const Packed& packed) {
  fail(ErrorKind::value, op.name.c_str(),
       to_string(x->type()) + " holds NaN at " + position_of(x, find_nan(x->dtype, packed.data(), x->size)) +
           ", which has no place in an order; replace it first, e.g. where(isnan(x), inf, x)");
}

void sort(const Op& op, const Value* x, int axis, int64_t keep, bool descending, bool nan_last, Value* values,
          Value* indices) {
  if (x->shape[axis] > int64_t{0xffffffff}) {
    fail(ErrorKind::value, op.name.c_str(),
         to_string(x->type()) + ": an axis of 2^32 elements or more cannot be sorted");
  }
  const Packed packed(x);
  const bool nan = sort_lines(x->dtype, packed.data(), around_axis(x->shape, x->ndim, axis), keep, descending,
                              values == nullptr ? nullptr : values->data,
                              indices == nullptr ? nullptr : reinterpret_cast<int64_t*>(indices->data));
  if (nan && !nan_last) refuse_nan(op, x, packed);
}

// sort (values), argsort (indices) and sort_with_indices (both)
// ---------------------------------------------------------------------------------

template <bool values, bool indices>
void infer_sort(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  normalize_axis(op.name.c_str(), attrs[0].i, in[0].shape.n);
  require_ordered(op, in[0]);
  if (values) *out++ = in[0];
  if (indices) *out = {DType::Int64, in[0].shape};
}

template <bool values, bool indices>
void compute_sort(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value* x = in[0];
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, x->ndim);
  const bool nan_last = !values && attrs[2].i != 0;
  sort(op, x, axis, x->shape[axis], attrs[1].i != 0, nan_last, values ? out[0] : nullptr,
       indices ? out[values ? 1 : 0] : nullptr);
}

void infer_topk(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  const Type& x = in[0];
  require_ordered(op, x);
  require_entries(op, op.attrs[0], attrs[0], 1);
  const Dim k = attrs[0].dims[0];
  const int axis = normalize_axis(op.name.c_str(), attrs[1].i, x.shape.n);
  if (k < Dim(0) || x.shape[axis] < k) {
    fail(ErrorKind::value, op.name.c_str(),
         "k must be between 0 and the size of axis " + std::to_string(axis) + ", got k = " + to_string(k) + " for " +
             to_string(x));
  }
  Dims shape = x.shape;
  shape[axis] = k;
  out[0] = {x.dtype, shape};
  out[1] = {DType::Int64, shape};
}

void compute_topk(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value* x = in[0];
  const int axis = normalize_axis(op.name.c_str(), attrs[1].i, x->ndim);
  sort(op, x, axis, out[0]->shape[axis], attrs[2].i != 0, false, out[0], out[1]);
}

void infer_searchsorted(const Op& op, const Type* in, int n, const Attrs&, Type* out) {
  require_same_dtype(op, in, 0, 1, n);
  require_ordered(op, in[0]);
  const int rows = in[0].shape.n - 1;
  bool fits = rows == 0 || (rows > 0 && in[1].shape.n >= rows);
  for (int i = 0; i < rows && fits; ++i) fits = in[0].shape[i] == in[1].shape[i];
  if (!fits) {
    fail(ErrorKind::shape, op.name.c_str(),
         "needs a sorted vector, or one for each row of the values, got " + operands(in, n));
  }
  *out = {DType::Int64, in[1].shape};
}

// Only the ends of the sorted vector are checked for NaN, because searching is faster than reading all of it.
void compute_searchsorted(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Packed x(in[0]), y(in[1]);
  const int64_t n = in[0]->shape[in[0]->ndim - 1], element = size_of(in[0]->dtype);
  int64_t rows = 1;
  for (int i = 0; i + 1 < in[0]->ndim; ++i) rows *= in[0]->shape[i];
  const int64_t each = rows ? in[1]->size / rows : 0;
  if (attrs[1].i == 0) {
    if (find_nan(in[1]->dtype, y.data(), in[1]->size) >= 0) refuse_nan(op, in[1], y);
    for (int64_t row = 0; row < rows && n > 0; ++row) {
      for (int64_t end : {row * n, row * n + n - 1}) {
        if (find_nan(in[0]->dtype, x.data() + end * element, 1) == 0) refuse_nan(op, in[0], x);
      }
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    search_sorted(in[0]->dtype, x.data() + row * n * element, n, y.data() + row * each * element, each, attrs[0].i != 0,
                  reinterpret_cast<int64_t*>(out[0]->data) + row * each);
  }
}

}  // namespace

static void add_ops() {
  const std::vector<AttrSpec> order = {{"axis", Kind::integer}, {"descending", Kind::integer}};
  add_op({.name = "sort", .attrs = order, .infer = infer_sort<true, false>, .compute = compute_sort<true, false>});
  add_op({.name = "argsort",
          .attrs = {{"axis", Kind::integer}, {"descending", Kind::integer}, {"nan_last", Kind::integer}},
          .infer = infer_sort<false, true>,
          .compute = compute_sort<false, true>,
          .differentiable = false});
  add_op({.name = "sort_with_indices",
          .n_outputs = 2,
          .attrs = order,
          .infer = infer_sort<true, true>,
          .compute = compute_sort<true, true>});
  add_op({.name = "topk",
          .n_outputs = 2,
          .attrs = {{"k", Kind::sizes}, {"axis", Kind::integer}, {"largest", Kind::integer}},
          .infer = infer_topk,
          .compute = compute_topk});
  add_op({.name = "searchsorted",
          .n_inputs = 2,
          .attrs = {{"right", Kind::integer}, {"nan_last", Kind::integer}},
          .infer = infer_searchsorted,
          .compute = compute_searchsorted,
          .differentiable = false});
}
static const OpFamily family(add_ops);

}  // namespace wengert
