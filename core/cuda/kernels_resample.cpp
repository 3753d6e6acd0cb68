// Another number of elements along an axis, by the matrix that the CPU multiplies with.
#include "../kernels/resample.h"

#include <cstring>
#include <map>
#include <tuple>

#include "../kernels/gather.h"
#include "device.h"

namespace wengert::cuda {

namespace {

// A matrix in the memory of a GPU.
struct Rows {
  Ref start, index, weight;
};

template <class T>
Ref moved(DeviceId device, DType dtype, const std::vector<T>& numbers) {
  const Ref here(empty(dtype, Dims{static_cast<int64_t>(numbers.size())}));
  std::memcpy(here->data, numbers.data(), numbers.size() * sizeof(T));
  return Ref(on_device(here.v, device));
}

// Made when a size is met for the first time, which is never while a graph is captured: a program has run before.
const Rows& rows_of(CudaDevice& gpu, Resampling kind, int64_t n, int64_t size, double ratio, bool transposed) {
  using Key = std::tuple<DeviceId, Resampling, int64_t, int64_t, double, bool>;
  static auto* made = new std::map<Key, Rows>;
  const Key key{gpu.id, kind, n, size, ratio, transposed};
  auto found = made->find(key);
  if (found == made->end()) {
    const SparseRows m =
        transposed ? resampling(kind, size, n, ratio).transposed(size) : resampling(kind, n, size, ratio);
    found = made->emplace(key, Rows{moved(gpu.id, DType::Int64, m.start), moved(gpu.id, DType::Int64, m.index),
                                    moved(gpu.id, DType::Float64, m.weight)})
                .first;
  }
  return found->second;
}

template <bool transposed>
void resample(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  Value* y = out[0];
  if (y->size == 0) return;
  const Ref x(contiguous(in[0]));
  const int axis = normalize_axis(op.name.c_str(), attrs[1].i, x->ndim);
  AxisExtents e = around_axis(x->shape, x->ndim, axis);
  const int64_t size = y->shape[axis];
  const Rows& rows = rows_of(gpu, static_cast<Resampling>(attrs[2].i), e.size, size, attrs[3].f, transposed);
  const bool parts = is_complex(x->dtype);  // weights are real
  const DType dtype = x->dtype == DType::Complex64    ? DType::Float32
                      : x->dtype == DType::Complex128 ? DType::Float64
                                                      : x->dtype;
  const int64_t inner = parts ? 2 * e.inner : e.inner, elements = parts ? 2 * y->size : y->size;
  const auto word = [](const Value* v) { return reinterpret_cast<int64_t>(v->data); };
  gpu.run_kernel(
      "device_resample.h", "resample<" + dtype_text(dtype) + ">(words, block_number)",
      {word(y), word(x.v), word(rows.start.v), word(rows.index.v), word(rows.weight.v), elements, size, e.size, inner},
      elements);
}

}  // namespace

void register_resample_kernels() {
  add_kernel("resample", resample<false>);
  add_kernel("resample_transpose", resample<true>);
}

}  // namespace wengert::cuda
