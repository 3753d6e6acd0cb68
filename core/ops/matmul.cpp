// Matrix products over equal batch dimensions. Broadcasting and vectors are composed before they come here.
#include <algorithm>
#include <cstring>
#include <vector>

#include "../kernels/gemm.h"
#include "../kernels/number.h"
#include "../threads.h"
#include "batch.h"
#include "check.h"

namespace wengert {

namespace {

void infer_matmul(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  const char* name = op.name.c_str();
  const Dims &a = in[0].shape, &b = in[1].shape;
  require_same_dtype(op, in, 0, 1, n);
  require_number(op, in[0]);
  if (a.n != b.n || a.n < 2) {
    fail(ErrorKind::shape, name,
         "operands must have the same number of axes, at least two, got " + operands(in, n) +
             "; broadcast the batch dimensions first");
  }
  const int rank = a.n, row = rank - 2, col = rank - 1;
  const bool ta = attrs[0].i != 0, tb = attrs[1].i != 0;
  Dims shape;
  for (int i = 0; i < rank - 2; ++i) {
    if (!(a[i] == b[i])) {
      fail(ErrorKind::shape, name, "batch dimensions must be equal, got " + operands(in, n) + "; broadcast them first");
    }
    shape.push(a[i]);
  }
  const Dim k = a[ta ? row : col];
  if (!(k == b[tb ? col : row])) {
    auto described = [](const Type& t, bool transposed) { return to_string(t) + (transposed ? " transposed" : ""); };
    fail(ErrorKind::shape, name,
         described(in[0], ta) + " and " + described(in[1], tb) +
             " do not fit: the first must have as many columns as the second has rows");
  }
  shape.push(a[ta ? col : row]);
  shape.push(b[tb ? row : col]);
  *out = {in[0].dtype, shape};
}

MatrixView matrix(const Value* v, bool transposed) {
  const int64_t row = v->strides[v->ndim - 2], col = v->strides[v->ndim - 1];
  return transposed ? MatrixView{v->data, col, row} : MatrixView{v->data, row, col};
}

// Whether all batches are rows of one tall product: b is the same in each, and a's batches follow each other
// like rows.
bool is_tall(const Value* a, MatrixView rows, int64_t m, const Value* b) {
  int64_t stride = rows.row * m;
  for (int i = a->ndim - 3; i >= 0; --i) {
    if (a->shape[i] == 1) continue;
    if (b->strides[i] != 0 || a->strides[i] != stride) return false;
    stride *= a->shape[i];
  }
  return true;
}

// Integers wrap; products of them are rare, so the loop is plain.
template <class T>
void multiply_integers(const T* a, MatrixView va, const T* b, MatrixView vb, T* c, int64_t n, int64_t k) {
  for (int64_t j = 0; j < n; ++j) {
    uint64_t sum = 0;
    for (int64_t p = 0; p < k; ++p) {
      sum += static_cast<uint64_t>(a[p * va.col]) * static_cast<uint64_t>(b[p * vb.row + j * vb.col]);
    }
    c[j] = static_cast<T>(sum);
  }
}

struct Problem {
  int64_t batch, m, n, k;
  MatrixView a, b;
  const int64_t *a_offset, *b_offset;
};

void matmul_integers(const Problem& p, Value* y) {
  const int64_t group = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, p.n * p.k)), rows = p.batch * p.m;
  with_number(y->dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      parallel_for((rows + group - 1) / group, [&](int64_t tile) {
        for (int64_t r = tile * group; r < std::min(rows, (tile + 1) * group); ++r) {
          const T* a = static_cast<const T*>(p.a.data) + (p.a_offset[r / p.m] + r % p.m * p.a.row);
          const T* b = static_cast<const T*>(p.b.data) + p.b_offset[r / p.m];
          multiply_integers(a, p.a, b, p.b, reinterpret_cast<T*>(y->data) + r * p.n, p.n, p.k);
        }
      });
    }
  });
}

void compute_matmul(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value *a = in[0], *b = in[1];
  Value* y = out[0];
  if (y->size == 0) return;
  const MatrixView va = matrix(a, attrs[0].i != 0), vb = matrix(b, attrs[1].i != 0);
  const int64_t m = y->shape[y->ndim - 2], n = y->shape[y->ndim - 1], batch = y->size / (m * n);
  const int64_t k = a->shape[a->ndim - (attrs[0].i ? 2 : 1)];
  if (is_inexact(y->dtype) && is_tall(a, va, m, b)) return gemm(y->dtype, batch * m, n, k, va, vb, y->data, n);
  const std::vector<int64_t> a_offset = batch_offsets(a, batch), b_offset = batch_offsets(b, batch);
  if (!is_inexact(y->dtype)) {
    return matmul_integers({batch, m, n, k, va, vb, a_offset.data(), b_offset.data()}, y);
  }
  std::vector<int64_t> y_offset(static_cast<size_t>(batch));
  for (int64_t i = 0; i < batch; ++i) y_offset[i] = i * m * n;
  gemm_batched(y->dtype, batch, a_offset.data(), b_offset.data(), y_offset.data(), m, n, k, va, vb, y->data, n);
}

}  // namespace

static void add_ops() {
  add_op({.name = "matmul",
          .n_inputs = 2,
          .attrs = {{"transpose_a", Attr::Kind::integer}, {"transpose_b", Attr::Kind::integer}},
          .infer = infer_matmul,
          .compute = compute_matmul,
          .matrix_product = true});
}
static const OpFamily family(add_ops);

}  // namespace wengert
