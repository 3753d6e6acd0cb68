// Matrix products: by cuBLASLt, or by a kernel of ours where the call would cost more than the work.
#include <algorithm>

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

// Into how many parts a long sum is cut, each made by blocks of its own, where the result is thin, or so small that its
// tiles would leave most of the GPU idle: a part is long enough for the threads of a block, and all are equally long.
// By sizes alone, as above.
int64_t parts_of_sum(DType dtype, int64_t batch, int64_t m, int64_t n, int64_t k, bool tf32) {
  constexpr int64_t kLongSum = 512, kPacks = 4;
  if (batch != 1 || k < kLongSum || (dtype != DType::Float32 && dtype != DType::Float64)) return 1;
  const int64_t tiles = ((m + 63) / 64) * ((n + 63) / 64);
  int64_t parts = 1;
  if (std::min(m, n) <= 32 && m * n * k <= int64_t{1} << 23)
    parts = std::min<int64_t>(16, k / 64);
  else if (dtype == DType::Float32 && !tf32 && tiles <= 64 && m * n * k <= int64_t{1} << 27)
    parts = std::min({int64_t{8}, 256 / tiles, k / 96});
  while (parts > 1 && k % (parts * kPacks) != 0) --parts;
  return std::max<int64_t>(1, parts);
}

// y = the sum of the parts, as a chain: what is done with it next joins it in a graph.
void add_parts(CudaDevice& gpu, const Value* parts, Value* y) {
  static const Op& op = *find_op("matmul");
  const auto count = static_cast<int>(parts->shape[0]);
  PreparedChain& prepared = gpu.prepared(op, static_cast<int>(y->dtype) << 8 | count, [&](PreparedChain& made) {
    Chain& chain = made.chain;
    for (int k = 0; k < count; ++k) chain.registers.push_back({y->dtype, false, true});
    for (int k = 1, sum = 0; k < count; ++k) {
      Chain::Instruction i{Chain::Instruction::Kind::map};
      i.op = Elementwise::add;
      i.n_in = 2;
      i.in[0] = static_cast<int16_t>(sum);
      i.in[1] = static_cast<int16_t>(k);
      i.out = static_cast<int16_t>(sum = static_cast<int>(chain.registers.size()));
      chain.registers.push_back({y->dtype});
      chain.code.push_back(i);
    }
    chain.registers.back().output = true;
  });
  static constexpr int64_t kPacked[] = {1};
  std::vector<Operand> in;
  for (int k = 0; k < count; ++k) in.push_back({parts->data + k * y->size * size_of(y->dtype), kPacked});
  void* to = y->data;
  gpu.run_chain(prepared, {1, &y->size}, in.data(), &to);
}

}  // namespace

void multiply_into(CudaDevice& gpu, Value* x, bool ta, Value* z, bool tb, Value* y) {
  if (y->size == 0) return;
  const int64_t m = y->shape[y->ndim - 2], n = y->shape[y->ndim - 1], batch = y->size / (m * n);
  const int64_t k = x->shape[x->ndim - (ta ? 2 : 1)];
  if (k == 0) return fill_value(y, 0.0);
  const int64_t parts = parts_of_sum(y->dtype, batch, m, n, k, gpu.tf32);
  const bool own = parts > 1 || is_ours(y->dtype, batch, m, n, k, gpu.tf32);
  Factor a(x, ta, false), b(z, tb, false);
  if (!own && !fits_blas(a.operand, m, k)) a = Factor(x, ta, true);
  if (!own && !fits_blas(b.operand, k, n)) b = Factor(z, tb, true);
  // The library's nodes of a graph keep their addresses: what may be elsewhere in the next run is copied first.
  if (const Recording* r = gpu.recording(); r && !own) {
    if (r->is_staged(a.operand.data)) a.stage(ta);
    if (r->is_staged(b.operand.data)) b.stage(tb);
  }
  if (parts > 1) {
    const int64_t length = k / parts;
    a.operand.batch = length * a.operand.col;
    b.operand.batch = length * b.operand.row;
    const Ref made(empty(y->dtype, Dims{parts, m, n}, Category::workspace, gpu.id));
    gpu.own_product({y->dtype, parts, m, n, length, a.operand, b.operand, made->data});
    return add_parts(gpu, made.v, y);
  }
  const Product p{y->dtype, batch, m, n, k, a.operand, b.operand, y->data, gpu.tf32};
  own ? gpu.own_product(p) : gpu.multiply(p);
}

void register_product_kernels() { add_kernel("matmul", matmul); }

}  // namespace wengert::cuda
