// Pooling: maxima and sums over windows, and their transposes.
#include "kernels_pool.h"

#include "device.h"

namespace wengert::cuda {

std::string window_text(int absent, const Dims& sizes, const Dims& strides, const Dims& paddings,
                        const Dims& dilations) {
  std::string text = "Window<" + std::to_string(absent);
  const auto add = [&](const Dims& dims, int64_t otherwise) {
    for (int i = 0; i < 3; ++i) text += ", " + std::to_string(i < absent ? otherwise : dims[i - absent].raw);
  };
  add(sizes, 1);
  add(strides, 1);
  add(paddings, 0);
  add(dilations, 1);
  return text + ">";
}

namespace {

int64_t word_of(const void* p) { return reinterpret_cast<int64_t>(p); }

// x is what windows are taken of, y has an element for each; one of them is `from`, the other `to` (or its taps are).
// The attributes of the window begin at `first`.
void run(CudaDevice& gpu, const Op& op, const std::string& types, const Value* x, const Value* y, const Value* from,
         const Value* taps, const Value* to, const Attrs& attrs, int first) {
  if (to->size == 0) return;
  std::vector<int64_t> words = {word_of(to->data), word_of(from->data), taps ? word_of(taps->data) : 0, to->size};
  const int absent = 5 - x->ndim;  // of three spatial axes; they come first
  const auto add = [&](auto&& value, int64_t otherwise) {
    for (int i = 0; i < 3; ++i) words.push_back(i < absent ? otherwise : value(i - absent));
  };
  add([&](int i) { return x->shape[2 + i]; }, 1);
  add([&](int i) { return y->shape[2 + i]; }, 1);
  const auto dims = [&](int k) -> const Dims& { return attrs[first + k].dims; };
  const std::string window = window_text(absent, dims(0), dims(1), dims(2), dims(3));
  gpu.note_index(op, words);
  gpu.run_kernel("device_pool.h", op.name + "<" + types + ", PoolWords<" + window + ">>(words, block_number)", words,
                 to->size);
}

// Taps in a type that the kernels read.
Ref as_taps(CudaDevice& gpu, const Value* index) {
  if (index->dtype == DType::UInt8 || index->dtype == DType::Int32) return Ref(contiguous(index));
  Ref made(empty(DType::Int32, index->dims(), Category::workspace, gpu.id));
  copy_into(index, made.v);
  return made;
}

std::string two(DType a, DType b) { return dtype_text(a) + ", " + dtype_text(b); }

void argmax(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Ref x(contiguous(in[0]));
  run(gpu, op, two(x->dtype, out[0]->dtype), x.v, out[0], x.v, nullptr, out[0], attrs, 1);
}

void take(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Ref x(contiguous(in[0])), taps = as_taps(gpu, in[1]);
  run(gpu, op, two(x->dtype, taps->dtype), x.v, out[0], x.v, taps.v, out[0], attrs, 0);
}

void put(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Ref y(contiguous(in[0])), taps = as_taps(gpu, in[1]);
  run(gpu, op, two(y->dtype, taps->dtype), out[0], y.v, y.v, taps.v, out[0], attrs, 1);
}

void sum(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Ref x(contiguous(in[0]));
  run(gpu, op, dtype_text(x->dtype), x.v, out[0], x.v, nullptr, out[0], attrs, 1);
}

void spread(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Ref y(contiguous(in[0]));
  run(gpu, op, dtype_text(y->dtype), out[0], y.v, y.v, nullptr, out[0], attrs, 1);
}

}  // namespace

void register_pool_kernels() {
  add_kernel("pool_argmax", argmax);
  add_kernel("pool_take", take);
  add_kernel("pool_put", put);
  add_kernel("pool_sum", sum);
  add_kernel("pool_spread", spread);
}

}  // namespace wengert::cuda
