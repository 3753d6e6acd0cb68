// Reading and writing at indices that are data. Sums at equal indices are taken in the order of the indices, so that
// results repeat to the bit.
#include <algorithm>

#include "device.h"

namespace wengert::cuda {

namespace {

struct Around {
  int64_t outer = 1, size = 1, inner = 1;
  Around(const Value* x, int axis) {
    for (int i = 0; i < x->ndim; ++i) (i < axis ? outer : i == axis ? size : inner) *= x->shape[i];
  }
};

// Packed operands, and the words that all kernels of device_index.h have.
struct IndexCall {
  CudaDevice& gpu;
  const Op& op;
  Around around;
  int64_t count;  // of indices along the axis
  Ref from, index;
  std::vector<int64_t> words;

  IndexCall(CudaDevice& device, const Op& called, const Value* shaped, int axis, int64_t n, const Value* x,
            const Value* i, const Value* to)
      : gpu(device), op(called), around(shaped, axis), count(n), from(contiguous(x)), index(contiguous(i)) {
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

// Onto what is in `to`, or onto nothing.
void add(CudaDevice& gpu, const Op& op, bool along, bool onto_nothing, int axis, const Value* x, const Value* index,
         Value* to) {
  IndexCall call(gpu, op, to, axis, along ? index->shape[axis] : index->size, x, index, to);
  const Around& a = call.around;
  // A thread for each element that looks at all indices, where there are few of those; else one for each line.
  constexpr int64_t kFewIndices = 4096, kManyLines = 1 << 14;
  if (onto_nothing && call.count <= kFewIndices && a.outer * a.inner < kManyLines) {
    call.run("collect_at" + flag(along) + type_text(to), to->size);
    return;
  }
  if (onto_nothing) fill_value(to, 0.0);
  call.run("add_at" + flag(along) + type_text(to), a.outer * a.inner);
}

template <bool kAlong>
void add_to_zeros(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  add(gpu, op, kAlong, true, normalize_axis(op.name.c_str(), attrs[1].i, out[0]->ndim), in[0], in[1], out[0]);
}

void scatter_add(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  copy_into(in[0], out[0]);
  add(gpu, op, true, false, normalize_axis(op.name.c_str(), attrs[0].i, out[0]->ndim), in[2], in[1], out[0]);
}

template <bool kAlong>
void put(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  copy_into(in[0], out[0]);
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, out[0]->ndim);
  IndexCall call(gpu, op, out[0], axis, kAlong ? in[1]->shape[axis] : in[1]->size, in[2], in[1], out[0]);
  call.run("put_at" + flag(kAlong) + bytes_text(out[0]), call.around.outer * call.around.inner);
}

}  // namespace

void register_index_kernels() {
  add_kernel("take", take<false>);
  add_kernel("take_along_axis", take<true>);
  add_kernel("index_add", add_to_zeros<false>);
  add_kernel("scatter_add_along_axis", add_to_zeros<true>);
  add_kernel("scatter_add", scatter_add);
  add_kernel("index_put", put<false>);
  add_kernel("scatter_along_axis", put<true>);
}

}  // namespace wengert::cuda
