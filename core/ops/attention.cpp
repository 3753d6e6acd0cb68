// Scaled dot-product attention over equal batch dimensions, and the two ops that its derivatives are. Scores and the
// logarithms of their sums are float32 where operands have 16 bits: an error in the exponent of a weight is relative.
#include "../kernels/attention.h"

#include "batch.h"
#include "check.h"
#include "computed.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

// Of all three ops.
enum { kScale, kCausal, kDropout, kKey, kCounter };
const std::vector<AttrSpec> kAttrs = {{"scale", Kind::real},
                                      {"causal", Kind::integer},
                                      {"dropout", Kind::real},
                                      {"key", Kind::sizes},
                                      {"counter", Kind::sizes}};

Dims leading(const Dims& d, int n) {
  Dims some;
  for (int i = 0; i < n; ++i) some.push(d[i]);
  return some;
}

Dims with(Dims d, Dim size) {
  d.push(size);
  return d;
}

bool is_one(Dim d) { return !d.symbolic() && d.raw == 1; }

[[noreturn]] void refuse_shapes(const Op& op, const Type* in, const char* rule) {
  fail(ErrorKind::shape, op.name.c_str(),
       std::string(rule) + ", got q " + to_string(in[0]) + ", k " + to_string(in[1]) + " and v " + to_string(in[2]));
}

// Checks q, k, v and the mask, which start at `in`; returns the shape of the scores.
Dims check_operands(const Op& op, const Type* in, const Attrs& attrs) {
  const Dims &q = in[0].shape, &k = in[1].shape, &v = in[2].shape;
  if (!is_floating(in[0].dtype) || in[1].dtype != in[0].dtype || in[2].dtype != in[0].dtype) {
    fail(ErrorKind::dtype, op.name.c_str(),
         "q, k and v must have the same real floating dtype, got " + operands(in, 3) + "; cast them");
  }
  const int n = q.n;
  if (n < 2 || k.n != n || v.n != n)
    refuse_shapes(op, in, "q, k and v must have the same number of axes, at least two");
  for (int i = 0; i < n - 2; ++i) {
    if (!(q[i] == k[i]) || !(q[i] == v[i])) refuse_shapes(op, in, "batch dimensions must be equal");
  }
  if (!(q[n - 1] == k[n - 1])) refuse_shapes(op, in, "q and k must have the same last size");
  if (!(k[n - 2] == v[n - 2])) refuse_shapes(op, in, "k and v must hold equally many keys");
  const Dims scores = with(with(leading(q, n - 2), q[n - 2]), k[n - 2]);
  const Type& mask = in[3];
  if (mask.dtype != DType::Bool && mask.dtype != computed_in(in[0].dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(),
         "the mask must be bool or have the dtype of the scores, " + std::string(name_of(computed_in(in[0].dtype))) +
             ", got " + to_string(mask) + "; cast it");
  }
  bool fits = mask.shape.n == n;
  for (int i = 0; i < n && fits; ++i) fits = is_one(mask.shape[i]) || mask.shape[i] == scores[i];
  if (!fits) {
    fail(ErrorKind::shape, op.name.c_str(),
         "the mask " + to_string(mask) + " does not broadcast to the scores " + to_string(scores));
  }
  require_entries(op, op.attrs[kKey], attrs[kKey], 2);
  require_entries(op, op.attrs[kCounter], attrs[kCounter], 1);
  if (!(attrs[kDropout].f >= 0 && attrs[kDropout].f < 1)) {
    fail(ErrorKind::value, op.name.c_str(), "dropout must be in [0, 1), got " + std::to_string(attrs[kDropout].f));
  }
  return scores;
}

void check_like(const Op& op, const Type& x, DType dtype, const Dims& shape, const char* what) {
  if (x.dtype != dtype || !(x.shape == shape)) {
    fail(ErrorKind::shape, op.name.c_str(),
         std::string(what) + " must be " + to_string(Type{dtype, shape}) + ", got " + to_string(x));
  }
}

void infer_attention(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  const Dims scores = check_operands(op, in, attrs), rows = leading(scores, scores.n - 1);
  out[0] = {in[0].dtype, with(rows, in[2].shape[scores.n - 1])};
  out[1] = {computed_in(in[0].dtype), rows};
}

// q_dot, k_dot, v_dot, q, k, v, mask, o, lse
void infer_tangent(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  infer_attention(op, in + 3, n, attrs, out);
  for (int i = 0; i < 3; ++i) check_like(op, in[i], in[i + 3].dtype, in[i + 3].shape, "a tangent");
  check_like(op, in[7], out[0].dtype, out[0].shape, "o");
  check_like(op, in[8], out[1].dtype, out[1].shape, "lse");
}

// o_bar, lse_bar, q, k, v, mask, o, lse
void infer_cotangent(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  infer_attention(op, in + 2, n, attrs, out);
  for (int i = 0; i < 2; ++i) check_like(op, in[i], out[i].dtype, out[i].shape, "a cotangent");
  check_like(op, in[6], out[0].dtype, out[0].shape, "o");
  check_like(op, in[7], out[1].dtype, out[1].shape, "lse");
  for (int i = 0; i < 3; ++i) out[i] = in[i + 2];
}

// A value as rows with packed columns: itself, or a copy.
struct Matrices {
  Ref value;
  std::vector<int64_t> offset;

  Matrices(Value* v, DType computed, int64_t batch) : value(as_computed(v, computed)) {
    const int64_t rows = v->shape[v->ndim - 2], cols = v->shape[v->ndim - 1];
    const int64_t row = value->strides[v->ndim - 2], col = value->strides[v->ndim - 1];
    if ((col != 1 && cols > 1) || (row < cols && rows > 1)) value = Ref(contiguous(value.v));
    offset = batch_offsets(value.v, batch);
  }
  BatchedRows rows() const {
    const Value* v = value.v;
    const int64_t cols = v->shape[v->ndim - 1];
    return {v->data, offset.data(), v->shape[v->ndim - 2] > 1 ? v->strides[v->ndim - 2] : std::max<int64_t>(cols, 1)};
  }
};

// q, k, v and the mask as the kernels take them; keeps what they point to.
struct Operands {
  DType computed;
  int64_t batch;
  Matrices q, k, v;
  Ref mask;
  std::vector<int64_t> mask_offset;

  explicit Operands(Value* const* in)
      : computed(computed_in(in[0]->dtype)),
        batch(count_batches(in[0])),
        q(in[0], computed, batch),
        k(in[1], computed, batch),
        v(in[2], computed, batch),
        mask(in[3]->dtype == DType::Bool ? Ref::share(in[3]) : as_computed(in[3], computed)) {}

  static int64_t count_batches(const Value* q) {
    int64_t n = 1;
    for (int i = 0; i < q->ndim - 2; ++i) n *= q->shape[i];
    return n;
  }

  AttentionProblem problem(const Attrs& attrs) {
    const Value *query = q.value.v, *key = k.value.v, *value = v.value.v;
    const int n = query->ndim;
    const Dims &random_key = attrs[kKey].dims, &counter = attrs[kCounter].dims;
    return {.dtype = computed,
            .batch = batch,
            .queries = query->shape[n - 2],
            .keys = key->shape[n - 2],
            .depth = query->shape[n - 1],
            .width = value->shape[n - 1],
            .q = q.rows(),
            .k = k.rows(),
            .v = v.rows(),
            .mask = seen(query),
            .scale = attrs[kScale].f,
            .causal = attrs[kCausal].i != 0,
            .dropout = attrs[kDropout].f,
            .stream = {static_cast<uint32_t>(random_key[0].raw), static_cast<uint32_t>(random_key[1].raw),
                       static_cast<uint64_t>(counter[0].raw)}};
  }

 private:
  AttentionMask seen(const Value* query) {
    const Value* m = mask.v;
    if (m->dtype == DType::Bool && m->size == 1 && *reinterpret_cast<const uint8_t*>(m->data) != 0) return {};
    int64_t strides[kMaxRank];
    for (int i = 0; i < m->ndim; ++i) strides[i] = m->shape[i] == 1 ? 0 : m->strides[i];
    mask_offset = batch_offsets(query->shape, strides, m->ndim, batch);
    return {m->data, mask_offset.data(), strides[m->ndim - 2], strides[m->ndim - 1], m->dtype == DType::Bool};
  }
};

void compute_attention(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  Operands given(in);
  Result o(out[0], given.computed), lse(out[1], given.computed);
  attention(given.problem(attrs), o.data(), lse.data());
  o.finish();
  lse.finish();
}

void compute_tangent(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  Operands given(in + 3);
  const DType computed = given.computed;
  const Matrices q_dot(in[0], computed, given.batch), k_dot(in[1], computed, given.batch),
      v_dot(in[2], computed, given.batch);
  const Ref o = packed(in[7], computed), lse = packed(in[8], computed);
  Result o_dot(out[0], computed), lse_dot(out[1], computed);
  attention_tangent(given.problem(attrs), o->data, lse->data, q_dot.rows(), k_dot.rows(), v_dot.rows(), o_dot.data(),
                    lse_dot.data());
  o_dot.finish();
  lse_dot.finish();
}

void compute_cotangent(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  Operands given(in + 2);
  const DType computed = given.computed;
  const Matrices o_bar(in[0], computed, given.batch);
  const Ref lse_bar = packed(in[1], computed), o = packed(in[6], computed), lse = packed(in[7], computed);
  Result q_bar(out[0], computed), k_bar(out[1], computed), v_bar(out[2], computed);
  attention_cotangent(given.problem(attrs), o->data, lse->data, o_bar.rows(), lse_bar->data, q_bar.data(), k_bar.data(),
                      v_bar.data());
  for (Result* r : {&q_bar, &k_bar, &v_bar}) r->finish();
}

}  // namespace

static void add_ops() {
  add_op({.name = "attention",
          .n_inputs = 4,
          .n_outputs = 2,
          .attrs = kAttrs,
          .infer = infer_attention,
          .compute = compute_attention});
  add_op({.name = "attention_tangent",
          .n_inputs = 9,
          .n_outputs = 2,
          .attrs = kAttrs,
          .infer = infer_tangent,
          .compute = compute_tangent});
  add_op({.name = "attention_cotangent",
          .n_inputs = 8,
          .n_outputs = 3,
          .attrs = kAttrs,
          .infer = infer_cotangent,
          .compute = compute_cotangent});
}
static const OpFamily family(add_ops);

}  // namespace wengert
