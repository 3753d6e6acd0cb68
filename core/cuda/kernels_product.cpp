// Matrix products: by cuBLASLt, or by a kernel of ours where the call would cost more than the work.
#include "device.h"
#include "tasks.h"

namespace wengert::cuda {

namespace {

// A batch of matrices behind one stride, which not every batch of a strided view has.
bool one_batch_stride(const Value* v, int64_t& stride) {
  stride = 0;
  int64_t expected = -1;
  for (int i = v->ndim - 3; i >= 0; --i) {
    if (v->shape[i] == 1) continue;
    if (expected < 0)
      stride = v->strides[i];
    else if (v->strides[i] != expected)
      return false;
    expected = v->strides[i] * v->shape[i];
  }
  return true;
}

struct Factor {
  Ref value;
  MatrixOperand operand;
  Factor(Value* v, bool transposed, bool must_pack) : value(Ref::share(v)) {
    int64_t batch = 0;
    if (must_pack || !one_batch_stride(v, batch)) {
      value = Ref(contiguous(v));
      one_batch_stride(value.v, batch);
    }
    describe(transposed, batch);
  }
  void describe(bool transposed, int64_t batch) {
    const int64_t row = value->strides[value->ndim - 2], col = value->strides[value->ndim - 1];
    operand = {value->data, batch, transposed ? col : row, transposed ? row : col};
  }
  void stage(bool transposed) {
    Ref copy(empty(value->dtype, value->dims(), Category::workspace, value->device));
    copy_into(value.v, copy.v);
    value = std::move(copy);
    int64_t batch = 0;
    one_batch_stride(value.v, batch);
    describe(transposed, batch);
  }
};

void matmul(CudaDevice& gpu, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  multiply_into(gpu, in[0], attrs[0].i != 0, in[1], attrs[1].i != 0, out[0]);
}

}  // namespace

namespace {

// Whether a product is made by a kernel of ours: where the library's call costs more than the work; and where sums are
// short and there are enough tiles, but not more than a few for each multiprocessor, since elementwise work on the
// result is then done by the same kernel. By sizes alone: a product has the same bits wherever it stands.
bool is_ours(DType dtype, int64_t batch, int64_t m, int64_t n, int64_t k, bool tf32) {
  // Multiply-adds: of any sum, and of one that the warps of a block get through quickly.
  constexpr int64_t kTiny = int64_t{1} << 19, kSmall = int64_t{1} << 21, kLongSum = 512;
  constexpr int64_t kShortSum = 256, kFewestTiles = 128, kMostTiles = 1024;
  if (!is_inexact(dtype) || m * n * k <= (k <= kLongSum ? kSmall : kTiny)) return true;
  const int64_t tiles = batch * ((m + 63) / 64) * ((n + 63) / 64);
  return dtype == DType::Float32 && !tf32 && k <= kShortSum && tiles >= kFewestTiles && tiles <= kMostTiles;
}

}  // namespace

void multiply_into(CudaDevice& gpu, Value* x, bool ta, Value* z, bool tb, Value* y) {
  if (y->size == 0) return;
  const int64_t m = y->shape[y->ndim - 2], n = y->shape[y->ndim - 1], batch = y->size / (m * n);
  const int64_t k = x->shape[x->ndim - (ta ? 2 : 1)];
  if (k == 0) return fill_value(y, 0.0);
  const bool own = is_ours(y->dtype, batch, m, n, k, gpu.tf32);
  Factor a(x, ta, false), b(z, tb, false);
  if (!own && !fits_blas(a.operand, m, k)) a = Factor(x, ta, true);
  if (!own && !fits_blas(b.operand, k, n)) b = Factor(z, tb, true);
  // The library's nodes of a graph keep their addresses: what may be elsewhere in the next run is copied first.
  if (const Recording* r = gpu.recording(); r && !own) {
    if (r->is_staged(a.operand.data)) a.stage(ta);
    if (r->is_staged(b.operand.data)) b.stage(tb);
  }
  const Product p{y->dtype, batch, m, n, k, a.operand, b.operand, y->data, gpu.tf32};
  own ? gpu.own_product(p) : gpu.multiply(p);
}

void register_product_kernels() { add_kernel("matmul", matmul); }

}  // namespace wengert::cuda
