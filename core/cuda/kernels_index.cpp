// Reading and writing at indices that are data. Sums at equal indices are taken in the order of the indices, so that
// results repeat to the bit.
#include <algorithm>

#include "../kernels/indices.h"
#include "../ops/check.h"
#include "kernels_sort.h"

namespace wengert::cuda {

namespace {

// Packed operands, and the words that all kernels of device_index.h have.
struct IndexCall {
  CudaDevice& gpu;
  const Op& op;
  AxisExtents around;
  int64_t count;  // of indices along the axis
  Ref from, index;
  std::vector<int64_t> words;

  IndexCall(CudaDevice& device, const Op& called, const Value* shaped, int axis, int64_t n, const Value* x,
            const Value* i, const Value* to)
      : gpu(device),
        op(called),
        around(around_axis(shaped->shape, shaped->ndim, axis)),
        count(n),
        from(contiguous(x)),
        index(contiguous(i)) {
    words = {reinterpret_cast<int64_t>(to->data),
             reinterpret_cast<int64_t>(from->data),
             reinterpret_cast<int64_t>(index->data),
             around.outer,
             around.size,
             around.inner,
             count};
    gpu.note_index(op, words);
  }
  void run(const std::string& kernel, int64_t threads) { gpu.run_kernel("device_index.h", kernel, words, threads); }
};

std::string flag(bool along) { return along ? "<true, " : "<false, "; }
std::string bytes_text(const Value* v) { return std::to_string(size_of(v->dtype)) + ">(words, block_number)"; }
std::string type_text(const Value* v) { return dtype_text(v->dtype) + ">(words, block_number)"; }

template <bool kAlong>
void take(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, in[0]->ndim);
  IndexCall call(gpu, op, in[0], axis, kAlong ? in[1]->shape[axis] : in[1]->size, in[0], in[1], out[0]);
  call.run("take" + flag(kAlong) + bytes_text(out[0]), out[0]->size);
}

// Indices along an axis of all lines alike, in order, and which they were.
SortedLines sorted_indices(CudaDevice& gpu, const Op& op, const Value* index, int64_t size) {
  const Ref from(contiguous(index));
  const Ref checked(empty(DType::Int64, Dims{index->size}, Category::workspace, gpu.id));
  std::vector<int64_t> words = {reinterpret_cast<int64_t>(checked->data), reinterpret_cast<int64_t>(from->data),
                                index->size, size};
  gpu.note_index(op, words);
  gpu.run_kernel("device_index.h", "check_indices(words, block_number)", words, index->size);
  return sort_lines(gpu, op, checked.v, {1, index->size, 1}, false, false);
}

void run_by_place(CudaDevice& gpu, const Op& op, const std::string& kernel, int axis, const Value* x,
                  const Value* index, Value* to) {
  const AxisExtents around = around_axis(to->shape, to->ndim, axis);
  const Ref from(contiguous(x));
  const SortedLines sorted = sorted_indices(gpu, op, index, around.size);
  gpu.run_kernel("device_index.h", kernel,
                 {reinterpret_cast<int64_t>(to->data), reinterpret_cast<int64_t>(from->data),
                  reinterpret_cast<int64_t>(sorted.values->data), reinterpret_cast<int64_t>(sorted.positions->data),
                  around.outer, around.size, around.inner, index->size},
                 to->size);
}

// One thread for each line goes through all indices, or, where there are few, one for each element of `to`. Indices
// that are those of all lines are sorted before, where there are many.
constexpr int64_t kFewIndices = 64, kFewMeetings = int64_t{1} << 22, kManyLines = 1 << 14;

// to = the sums of x at indices along an axis.
void sum_at_indices(CudaDevice& gpu, const Op& op, int axis, const Value* x, const Value* index, Value* to) {
  if (index->size == 0) return fill_value(to, 0.0);
  if (to->size == 0) return;
  if (index->size > kFewIndices && index->size * to->size > kFewMeetings)
    return run_by_place(gpu, op, "sum_at<" + type_text(to), axis, x, index, to);
  IndexCall call(gpu, op, to, axis, index->size, x, index, to);
  call.run("collect_at<false, " + type_text(to), to->size);
}

void index_add(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  sum_at_indices(gpu, op, normalize_axis(op.name.c_str(), attrs[1].i, out[0]->ndim), in[0], in[1], out[0]);
}

// The packed elements of x, as if they had one axis.
Ref as_line(const Value* x) {
  static constexpr int64_t kStep = 1;
  return Ref(view(x, Dims{x->size}, &kStep, 0));
}

// The places are those that a strided view of 0, 1, 2, … has.
void as_strided_add(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const int64_t offset = attrs[2].dims[0].raw, size = out[0]->size;
  check_strided(op, in[0]->dims(), attrs[1].dims, offset, size);
  int64_t strides[kMaxRank];
  for (int i = 0; i < in[0]->ndim; ++i) strides[i] = attrs[1].dims[i].raw;
  const Ref numbers(empty(DType::Int64, Dims{size}, Category::workspace, gpu.id));
  gpu.run_kernel("device_memory.h", "iota<DType::Int64, DType::Int64>(words, block_number)",
                 {reinterpret_cast<int64_t>(numbers->data), size, 0, 1}, size);
  const Ref places(view(numbers.v, in[0]->dims(), strides, offset));
  const Ref packed(contiguous(places.v)), x(contiguous(in[0]));
  const Ref places_line(as_line(packed.v)), x_line(as_line(x.v)), to_line(as_line(out[0]));
  sum_at_indices(gpu, op, 0, x_line.v, places_line.v, to_line.v);
}

// Onto what is in `to`.
void add_along(CudaDevice& gpu, const Op& op, int axis, const Value* x, const Value* index, Value* to) {
  IndexCall call(gpu, op, to, axis, index->shape[axis], x, index, to);
  call.run("add_at<true, " + type_text(to), call.around.outer * call.around.inner);
}

void scatter_add_along_axis(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  Value* to = out[0];
  const int axis = normalize_axis(op.name.c_str(), attrs[1].i, to->ndim);
  IndexCall call(gpu, op, to, axis, in[1]->shape[axis], in[0], in[1], to);
  const int64_t lines = call.around.outer * call.around.inner;
  if (lines < kManyLines && (call.count <= kFewIndices || call.count * to->size <= kFewMeetings))
    return call.run("collect_at<true, " + type_text(to), to->size);
  fill_value(to, 0.0);
  add_along(gpu, op, axis, in[0], in[1], to);
}

void scatter_add(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  copy_into(in[0], out[0]);
  add_along(gpu, op, normalize_axis(op.name.c_str(), attrs[0].i, out[0]->ndim), in[2], in[1], out[0]);
}

void scatter_along_axis(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  copy_into(in[0], out[0]);
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, out[0]->ndim);
  IndexCall call(gpu, op, out[0], axis, in[1]->shape[axis], in[2], in[1], out[0]);
  call.run("put_at<true, " + bytes_text(out[0]), call.around.outer * call.around.inner);
}

void index_put(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  copy_into(in[0], out[0]);
  if (out[0]->size == 0 || in[1]->size == 0) return;
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, out[0]->ndim);
  if (in[1]->size > kFewIndices)
    return run_by_place(gpu, op, "last_at<" + bytes_text(out[0]), axis, in[2], in[1], out[0]);
  IndexCall call(gpu, op, out[0], axis, in[1]->size, in[2], in[1], out[0]);
  call.run("put_at<false, " + bytes_text(out[0]), call.around.outer * call.around.inner);
}

void winners(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  if (in[0]->size == 0) return;
  const SortedLines sorted = sorted_indices(gpu, op, in[0], attrs[0].dims[0].raw);
  gpu.run_kernel("device_index.h", "mark_last(words, block_number)",
                 {reinterpret_cast<int64_t>(out[0]->data), reinterpret_cast<int64_t>(sorted.values->data),
                  reinterpret_cast<int64_t>(sorted.positions->data), in[0]->size},
                 in[0]->size);
}

}  // namespace

void register_index_kernels() {
  add_kernel("take", take<false>);
  add_kernel("take_along_axis", take<true>);
  add_kernel("index_add", index_add);
  add_kernel("as_strided_add", as_strided_add);
  add_kernel("scatter_add_along_axis", scatter_add_along_axis);
  add_kernel("scatter_add", scatter_add);
  add_kernel("index_put", index_put);
  add_kernel("scatter_along_axis", scatter_along_axis);
  add_kernel("winners", winners);
}

}  // namespace wengert::cuda
