// Sorting, the k largest, and places in sorted lines.
#include "kernels_sort.h"

#include "../kernels/indices.h"

namespace wengert::cuda {

namespace {

constexpr int64_t kPiece = 256;  // elements that a block sorts at once

int64_t word_of(const void* p) { return reinterpret_cast<int64_t>(p); }

}  // namespace

SortedLines sort_lines(CudaDevice& gpu, const Op& op, const Value* x, const AxisExtents& e, bool descending,
                       bool nan_is_refused) {
  const Ref from(contiguous(x));
  const int64_t lines = e.outer * e.inner, n = e.size, pieces = (n + kPiece - 1) / kPiece;
  const std::string types = std::string(descending ? "<true, " : "<false, ") + dtype_text(x->dtype) + ">";
  const auto room = [&] {
    return SortedLines{Ref(empty(x->dtype, Dims{lines, n}, Category::workspace, gpu.id)),
                       Ref(empty(DType::UInt32, Dims{lines, n}, Category::workspace, gpu.id))};
  };
  SortedLines sorted = room();
  std::vector<int64_t> words = {
      word_of(sorted.values->data), word_of(sorted.positions->data), word_of(from->data), n, e.inner, pieces};
  if (nan_is_refused)
    gpu.note_index(op, words);
  else
    words.insert(words.end(), {0, 0});
  gpu.run_kernel("device_sort.h", "sort_pieces" + types + "(words, block_number)", words, lines * pieces * kPiece, 2,
                 kPiece * 8);
  for (int64_t run = kPiece; run < n; run *= 2) {
    SortedLines merged = room();
    gpu.run_kernel("device_sort.h", "merge_runs" + types + "(words, block_number)",
                   {word_of(merged.values->data), word_of(merged.positions->data), word_of(sorted.values->data),
                    word_of(sorted.positions->data), n, run, lines * n},
                   lines * n, 2);
    sorted = std::move(merged);
  }
  return sorted;
}

namespace {

void sort(CudaDevice& gpu, const Op& op, const Value* x, int64_t axis, int64_t keep, bool descending,
          bool nan_is_refused, Value* values, Value* indices) {
  const AxisExtents e = around_axis(x->shape, x->ndim, normalize_axis(op.name.c_str(), axis, x->ndim));
  if (e.size > int64_t{0xffffffff})
    fail(ErrorKind::value, op.name.c_str(),
         to_string(x->type()) + ": an axis of 2^32 elements or more cannot be sorted");
  const int64_t kept = e.outer * keep * e.inner;
  if (x->size == 0 || kept == 0) return;
  const SortedLines sorted = sort_lines(gpu, op, x, e, descending, nan_is_refused);
  gpu.run_kernel("device_sort.h", "sorted_lines<" + dtype_text(x->dtype) + ">(words, block_number)",
                 {values ? word_of(values->data) : 0, indices ? word_of(indices->data) : 0,
                  word_of(sorted.values->data), word_of(sorted.positions->data), e.size, e.inner, keep, kept},
                 kept, 2);
}

template <bool kValues, bool kIndices>
void sort_all(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value* x = in[0];
  const bool nan_last = !kValues && attrs[2].i != 0;
  sort(gpu, op, x, attrs[0].i, x->shape[normalize_axis(op.name.c_str(), attrs[0].i, x->ndim)], attrs[1].i != 0,
       !nan_last, kValues ? out[0] : nullptr, kIndices ? out[kValues ? 1 : 0] : nullptr);
}

void topk(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const int axis = normalize_axis(op.name.c_str(), attrs[1].i, in[0]->ndim);
  sort(gpu, op, in[0], axis, out[0]->shape[axis], attrs[2].i != 0, true, out[0], out[1]);
}

void searchsorted(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Ref x(contiguous(in[0])), y(contiguous(in[1]));
  if (y->size == 0) return;
  const int64_t n = x->shape[x->ndim - 1];
  int64_t rows = 1;
  for (int i = 0; i + 1 < x->ndim; ++i) rows *= x->shape[i];
  std::vector<int64_t> words = {word_of(out[0]->data), word_of(x->data), word_of(y->data), n,
                                y->size / rows,        y->size,          attrs[0].i != 0};
  if (attrs[1].i == 0)
    gpu.note_index(op, words);
  else
    words.insert(words.end(), {0, 0});
  gpu.run_kernel("device_sort.h", "search_lines<" + dtype_text(x->dtype) + ">(words, block_number)", words, y->size);
}

}  // namespace

void register_sort_kernels() {
  add_kernel("sort", sort_all<true, false>);
  add_kernel("argsort", sort_all<false, true>);
  add_kernel("sort_with_indices", sort_all<true, true>);
  add_kernel("topk", topk);
  add_kernel("searchsorted", searchsorted);
}

}  // namespace wengert::cuda
