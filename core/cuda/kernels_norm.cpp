#include "kernels_norm.h"

#include "tasks.h"

#include <algorithm>
#include <bit>

namespace wengert::cuda {

namespace {

int64_t word(const Value* v) { return reinterpret_cast<int64_t>(v->data); }
int64_t number(double x) { return std::bit_cast<int64_t>(x); }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
DType summed_in(DType t) { return is_half(t) ? DType::Float32 : t; }
bool is_aligned(const Value* v) { return reinterpret_cast<uintptr_t>(v->data) % 16 == 0; }

// How packed rows without members along them (layer norm) are shared between threads; each = 0: they are not.
struct PackedRows {
  int64_t rows, columns;
  int pack = 1, threads = 256, each = 0;

  PackedRows(const Value* x, const Value* y_bar, const Attrs& attrs) : rows(x->shape[0]), columns(x->shape[2]) {
    constexpr int64_t kMostElements = 16;  // of a row, that a thread holds in registers
    const bool packed = x->contiguous && y_bar->contiguous && x->shape[1] == 1 && x->shape[3] == 1;
    if (!packed || attrs[2].i != 0 || is_complex(x->dtype)) return;
    const int64_t most = 16 / size_of(x->dtype);
    if (columns % most == 0 && is_aligned(x) && is_aligned(y_bar)) pack = static_cast<int>(most);
    threads = columns <= 64 * pack ? 32 : 256;
    const int64_t wanted = ceil_div(columns, threads * pack);
    if (wanted * pack <= kMostElements) each = static_cast<int>(wanted);
  }
};

}  // namespace

// The derivative of packed rows by x and the parameters at once; the sums of blocks are then added up in their order.
bool packed_rows_cotangent(CudaDevice& gpu, Value* const* in, const Attrs& attrs, Value** out) {
  const PackedRows p(in[1], in[0], attrs);
  if (p.each == 0) return false;
  constexpr int64_t kBlocks = 512, kFewestRows = 4;  // whose sums one pass adds up
  const int64_t groups = 256 / p.threads;
  const int64_t wanted = std::max(kFewestRows, ceil_div(p.rows, kBlocks));
  const int64_t of_block = ceil_div(wanted, groups) * groups, blocks = ceil_div(p.rows, of_block);
  const DType dtype = in[1]->dtype, wide = summed_in(dtype);
  const Ref sums(empty(wide, Dims{blocks * groups, 2, p.columns}, Category::workspace, gpu.id));
  const Ref mean(contiguous(in[2])), variance(contiguous(in[3])), weight(contiguous(in[4]));
  const bool aligned = is_aligned(weight.v);
  const Ref packed(aligned ? Ref::share(weight.v).take() : empty(dtype, weight->dims(), Category::workspace, gpu.id));
  if (!aligned) copy_into(weight.v, packed.v);
  const std::string function = "norm_cotangent<" + dtype_text(dtype) + ", " + std::to_string(p.pack) + ", " +
                               std::to_string(p.each) + ", " + std::to_string(p.threads) + ", " +
                               (attrs[1].i != 0 ? "true" : "false") + ">";
  gpu.run_kernel("device_norm.h", function + "(words, block_number)",
                 {word(out[0]), word(sums.v), word(in[0]), word(in[1]), word(mean.v), word(variance.v), word(packed.v),
                  p.rows, p.columns, of_block, number(1.0 / static_cast<double>(p.columns)), number(attrs[0].f)},
                 blocks * 256, 2, 8 * 24);
  if (Recording* r = gpu.recording()) r->describe_ends({function, dtype, p.pack, p.rows * p.columns, 0, 2, {2, 3}});
  for (int k = 0; k < 2; ++k) {
    const int64_t strides[] = {2 * p.columns, 1};
    const Ref one(view(sums.v, Dims{blocks * groups, p.columns}, strides, k * p.columns));
    reduce_axes(gpu, Reduction::sum, one.v, 1u, out[1 + k]);
  }
  return true;
}

namespace {

// Rows as their runs of packed elements: (batch, groups, members, length), a row for each batch and group, or across
// the batch for each group. pack = 0: they do not lie so, or are short enough for one block.
struct LongRows {
  static constexpr int64_t kChunk = 2048, kLongestRow = 8192;
  int64_t run, segments, apart, rows, chunks;
  int pack = 0;

  LongRows(std::initializer_list<const Value*> arrays, bool across) {
    const Value* x = *arrays.begin();
    const int64_t* n = x->shape;
    run = n[2] * n[3];
    segments = across ? n[0] : 1;
    apart = n[1] * run;
    rows = across ? n[1] : n[0] * n[1];
    chunks = ceil_div(run * segments, kChunk);
    if (is_complex(x->dtype) || (!across && run <= kLongestRow)) return;
    const int64_t most = std::min<int64_t>(8, 16 / size_of(x->dtype));
    bool packs = run % most == 0;
    for (const Value* v : arrays) {
      if (!v->contiguous) return;
      packs = packs && is_aligned(v);
    }
    pack = packs ? static_cast<int>(most) : 1;
  }
  int64_t threads() const { return rows * chunks * 256; }
  void add_words(std::vector<int64_t>& words, double eps) const {
    words.insert(words.end(),
                 {run, segments, apart, run, chunks, number(1.0 / static_cast<double>(run * segments)), number(eps)});
  }
  std::string call(const char* kernel, DType dtype, const char* more) const {
    return std::string(kernel) + "<" + dtype_text(dtype) + ", " + std::to_string(pack) + more +
           ">(words, block_number)";
  }
};

constexpr int kSharedOfSums = 3 * 8 * 24;  // of three reductions over the warps of a block, of three doubles at most
constexpr char kLongRows[] = "device_long_rows.h";
const char* centred(const Attrs& attrs) { return attrs[1].i != 0 ? ", true" : ", false"; }

}  // namespace

// x, weight, bias
bool standardise_long_rows(CudaDevice& gpu, Value* const* in, const Attrs& attrs, Value** out) {
  const LongRows rows({in[0], out[0]}, attrs[2].i != 0);
  if (rows.pack == 0) return false;
  const DType dtype = in[0]->dtype;
  const Ref moments(empty(summed_in(dtype), Dims{rows.rows, rows.chunks, 2}, Category::workspace, gpu.id));
  const Ref weight(contiguous(in[1])), bias(contiguous(in[2]));
  std::vector<int64_t> words = {word(moments.v), word(in[0])};
  rows.add_words(words, attrs[0].f);
  gpu.run_kernel(kLongRows, rows.call("long_row_moments", dtype, centred(attrs)), words, rows.threads(), 1,
                 kSharedOfSums);
  words = {word(out[0]),   word(out[1]), word(out[2]),    word(moments.v), word(in[0]),
           word(weight.v), word(bias.v), in[0]->shape[1], in[0]->shape[2], in[0]->shape[3]};
  rows.add_words(words, attrs[0].f);
  gpu.run_kernel(kLongRows, rows.call("long_row_standardise", dtype, centred(attrs)), words, rows.threads(), 3,
                 kSharedOfSums);
  return true;
}

// y_bar, x, mean, variance, weight
bool long_rows_cotangent(CudaDevice& gpu, Value* const* in, const Attrs& attrs, Value** out) {
  const bool across = attrs[2].i != 0;
  const LongRows rows({in[1], in[0], out[0]}, across);
  if (rows.pack == 0 || !across || in[1]->shape[2] != 1) return false;
  const DType dtype = in[1]->dtype;
  const Ref sums(empty(summed_in(dtype), Dims{rows.rows, rows.chunks, 3}, Category::workspace, gpu.id));
  const Ref mean(contiguous(in[2])), variance(contiguous(in[3])), weight(contiguous(in[4]));
  std::vector<int64_t> words = {word(sums.v), word(in[0]), word(in[1]), word(mean.v), word(variance.v)};
  rows.add_words(words, attrs[0].f);
  gpu.run_kernel(kLongRows, rows.call("long_row_sums", dtype, ""), words, rows.threads(), 1, kSharedOfSums);
  words = {word(out[0]), word(out[1]), word(out[2]),     word(sums.v),  word(in[0]),
           word(in[1]),  word(mean.v), word(variance.v), word(weight.v)};
  rows.add_words(words, attrs[0].f);
  gpu.run_kernel(kLongRows, rows.call("long_row_cotangent", dtype, centred(attrs)), words, rows.threads(), 3,
                 kSharedOfSums);
  return true;
}

}  // namespace wengert::cuda
