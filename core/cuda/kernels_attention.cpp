// Attention and its two derivatives, tile by tile.
#include <algorithm>
#include <cstring>

#include "../ops/computed.h"
#include "device.h"

namespace wengert::cuda {

namespace {

// The attributes, the same for all three ops.
enum { kScale, kCausal, kDropout, kKey, kCounter };
constexpr int kMatrixUnits = 80;  // the first architecture whose matrix units take what MatrixTile gives them

constexpr int kShared = 36 << 10;  // bytes
constexpr int64_t kWarps = 4;      // of a block that computes by warps
constexpr int kKeyWord = 12;

int64_t word_of(const void* p) { return reinterpret_cast<int64_t>(p); }
int64_t word_of(double x) {
  int64_t word;
  std::memcpy(&word, &x, sizeof(word));
  return word;
}

// The operands of one call as words: matrices whose columns are packed, with batches behind joined axes.
struct Call {
  CudaDevice& gpu;
  const Attrs& attrs;
  const Value *q, *v;
  DType dtype, computed;
  int64_t batch = 1, queries, keys, depth, width;
  std::vector<Ref> packed;
  std::vector<Value*> matrices;  // q, k, v, mask, then what the derivative has
  Ref mask;

  Call(CudaDevice& device, Value* const* in, const Attrs& a)
      : gpu(device), attrs(a), q(in[0]), v(in[2]), dtype(in[0]->dtype), computed(computed_in(in[0]->dtype)) {
    const int n = q->ndim;
    for (int i = 0; i < n - 2; ++i) batch *= q->shape[i];
    queries = q->shape[n - 2];
    keys = v->shape[n - 2];
    depth = q->shape[n - 1];
    width = v->shape[n - 1];
    for (int k = 0; k < 3; ++k) add(in[k]);
    mask = Ref::share(in[3]);
    matrices.push_back(in[3]);
  }

  void add(Value* x) {
    const bool columns_packed = x->strides[x->ndim - 1] == 1 || x->shape[x->ndim - 1] <= 1;
    if (!columns_packed) x = packed.emplace_back(contiguous(x)).v;
    matrices.push_back(x);
  }

  // Elements that threads load together: 16 bytes where everything lies so.
  int pack() const {
    const int64_t bytes = size_of(dtype), pack = 16 / bytes;
    if (depth % pack != 0 || width % pack != 0) return 1;
    for (const Value* m : matrices) {
      if (m == matrices[3]) continue;
      bool fits = word_of(m->data) % 16 == 0;
      for (int i = 0; i < m->ndim - 1 && fits; ++i) fits = m->shape[i] == 1 || m->strides[i] % pack == 0;
      if (!fits) return 1;
    }
    return static_cast<int>(pack);
  }
  bool by_matrix_units() const { return is_half(dtype) && gpu.architecture >= kMatrixUnits; }
  // Heads that a warp holds whole in registers.
  bool by_warps() const {
    if (gpu.architecture < kMatrixUnits) return false;
    return std::max(depth, width) <= (is_half(dtype) ? 128 : dtype == DType::Float32 ? 64 : 0);
  }
  std::string tile() const {
    const DType stored = by_matrix_units() ? dtype : computed;
    return std::string(by_matrix_units() ? "MatrixTile" : "ScalarTile") + "<Storage<" + dtype_text(stored) + ">>";
  }
  int64_t tile_size() const { return computed == DType::Float64 ? 32 : 64; }
  int batch_axes() const { return std::max(1, q->ndim - 2); }

  void add_batch(std::vector<int64_t>& words) const {
    if (q->ndim == 2) words.push_back(1);
    for (int i = 0; i < q->ndim - 2; ++i) words.push_back(q->shape[i]);
  }
  void add_matrix(std::vector<int64_t>& words, const Value* m) const {
    const int n = m->ndim;
    const auto stride = [&](int i) { return m->shape[i] == 1 ? 0 : m->strides[i]; };
    words.insert(words.end(), {word_of(m->data), stride(n - 2), stride(n - 1)});
    if (n == 2) words.push_back(0);
    for (int i = 0; i < n - 2; ++i) words.push_back(stride(i));
  }
  // As device_attention_call.h numbers them.
  int64_t kind_of_mask() const { return mask->dtype != DType::Bool ? 2 : mask->size == 1 ? 3 : 1; }

  std::vector<int64_t> words(Value* first, Value* second, const Value* lse, const Value* of_row) const {
    const Dims &key = attrs[kKey].dims, &counter = attrs[kCounter].dims;
    std::vector<int64_t> made = {word_of(first->data),
                                 second ? word_of(second->data) : 0,
                                 lse ? word_of(lse->data) : 0,
                                 of_row ? word_of(of_row->data) : 0,
                                 batch,
                                 queries,
                                 keys,
                                 depth,
                                 width,
                                 word_of(attrs[kScale].f),
                                 attrs[kCausal].i != 0,
                                 word_of(attrs[kDropout].f),
                                 key[0].raw,
                                 key[1].raw,
                                 counter[0].raw,
                                 kind_of_mask()};
    add_batch(made);
    for (const Value* m : matrices) add_matrix(made, m);
    return made;
  }
  void describe_draw() const {
    if (attrs[kDropout].f > 0) gpu.describe_draw(kKeyWord, kKey, kCounter);
  }
  std::string dropped() const { return attrs[kDropout].f > 0 ? "true" : "false"; }

  // By the kernels of device_attention.h.
  void run(const char* part, Value* first, Value* second, const Value* lse, const Value* of_row, bool rows_are_keys,
           int64_t columns) const {
    if (first->size == 0 && (!second || second->size == 0)) return;
    const int64_t rows = rows_are_keys ? keys : queries, size = tile_size();
    const int64_t tiles = (rows + size - 1) / size, across = std::max<int64_t>(1, (columns + size - 1) / size);
    gpu.run_kernel("device_attention.h",
                   "attention<" + dtype_text(dtype) + ", AttentionPart::" + part + ", " + tile() + ", " +
                       std::to_string(batch_axes()) + ", " + std::to_string(pack()) + ", " + dropped() +
                       ">(words, block_number)",
                   words(first, second, lse, of_row), batch * tiles * across * 256, second ? 2 : 1, kShared);
    describe_draw();
  }

  // By the kernels of device_matrix_attention.h, which has the same sums of bytes.
  void run_warps(const char* kernel, Value* first, Value* second, const Value* lse, const Value* of_row,
                 bool rows_are_keys) const {
    if (first->size == 0 && (!second || second->size == 0)) return;
    const int64_t head = std::max<int64_t>(32, (std::max(depth, width) + 31) / 32 * 32), warps = kWarps;
    const int64_t row_bytes = (head + 8) * size_of(dtype);
    const int64_t staged = rows_are_keys && (head > 96 || dtype == DType::Float32) ? 32 : 64;
    const int64_t shared =
        rows_are_keys ? (2 * 16 * warps + 4 * staged) * row_bytes + 4 * staged * 4 : 4 * staged * row_bytes;
    const int64_t rows = rows_are_keys ? keys : queries, tiles = (rows + 16 * warps - 1) / (16 * warps);
    std::string call = kernel;
    call += "<" + dtype_text(dtype);
    for (int64_t n : {head, warps, int64_t{batch_axes()}, int64_t{pack()}}) call += ", " + std::to_string(n);
    call += ", AttentionMask{" + std::to_string(kind_of_mask()) + "}, " + dropped() + ", " + std::to_string(shared);
    gpu.run_blocks("device_matrix_attention.h", call + ">(words, block_number)", words(first, second, lse, of_row),
                   batch * tiles, {.threads = static_cast<int>(32 * warps), .dynamic_shared = static_cast<int>(shared)},
                   second ? 2 : 1);
    describe_draw();
  }
};

void attention(CudaDevice& gpu, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Call call(gpu, in, attrs);
  if (call.by_warps()) return call.run_warps("matrix_attention", out[0], out[1], nullptr, nullptr, false);
  call.run("forward", out[0], out[1], nullptr, nullptr, false, call.width);
}

// q_dot, k_dot, v_dot, q, k, v, mask, o, lse
void tangent(CudaDevice& gpu, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  Call call(gpu, in + 3, attrs);
  for (int k = 0; k < 3; ++k) call.add(in[k]);
  const Ref o(contiguous(in[7])), lse(contiguous(in[8]));
  call.run("tangent", out[0], out[1], lse.v, o.v, false, call.width);
}

// lse_bar − Σ o_bar ∘ o of each row.
Ref shifts(const Call& call, const Value* lse_bar, const Value* o) {
  const int64_t rows = call.batch * call.queries, each = 16 / size_of(call.dtype);
  Ref shift(empty(call.computed, Dims{rows}, Category::workspace, call.gpu.id));
  std::vector<int64_t> words = {word_of(shift->data), word_of(lse_bar->data), word_of(o->data), rows, call.width};
  call.add_batch(words);
  words.push_back(std::max<int64_t>(1, call.queries));
  call.add_matrix(words, call.matrices.back());
  int64_t lanes = 1;
  while (lanes < 32 && lanes * each < call.width) lanes *= 2;
  const bool packed = call.pack() > 1 && word_of(o->data) % 16 == 0;
  std::string kernel = "attention_shift<" + dtype_text(call.dtype);
  for (int64_t n : {int64_t{call.batch_axes()}, lanes}) kernel += ", " + std::to_string(n);
  call.gpu.run_kernel("device_attention.h", kernel + (packed ? ", true" : ", false") + ">(words, block_number)", words,
                      rows * lanes);
  return shift;
}

// o_bar, lse_bar, q, k, v, mask, o, lse
void cotangent(CudaDevice& gpu, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  Call call(gpu, in + 2, attrs);
  call.add(in[0]);
  const Ref lse_bar(contiguous(in[1])), o(contiguous(in[6])), lse(contiguous(in[7]));
  const Ref shift = shifts(call, lse_bar.v, o.v);
  if (call.by_warps()) {
    call.run_warps("matrix_attention_queries", out[0], nullptr, lse.v, shift.v, false);
    call.run_warps("matrix_attention_keys", out[1], out[2], lse.v, shift.v, true);
    return;
  }
  call.run("queries", out[0], nullptr, lse.v, shift.v, false, call.depth);
  call.run("keys", out[1], nullptr, lse.v, shift.v, true, call.depth);
  call.run("values", out[2], nullptr, lse.v, shift.v, true, call.width);
}

}  // namespace

void register_attention_kernels() {
  add_kernel("attention", attention);
  add_kernel("attention_tangent", tangent);
  add_kernel("attention_cotangent", cotangent);
}

}  // namespace wengert::cuda
