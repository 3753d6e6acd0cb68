// Special functions with integer orders, which are attributes.
#include "device.h"

namespace wengert::cuda {

namespace {

void map_ordered(CudaDevice& gpu, const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  constexpr int kMostOperands = 3, kMostOrders = 2;
  const Value* y = out[0];
  if (y->size == 0) return;
  std::vector<Ref> packed;
  std::vector<int64_t> words = {reinterpret_cast<int64_t>(y->data)};
  for (int k = 0; k < kMostOperands; ++k) {
    if (k < n_in) packed.emplace_back(contiguous(in[k]));
    words.push_back(reinterpret_cast<int64_t>(packed.back()->data));
  }
  words.push_back(y->size);
  for (size_t k = 0; k < kMostOrders; ++k) words.push_back(k < op.attrs.size() ? attrs[static_cast<int>(k)].i : 0);
  gpu.run_kernel("device_series.h",
                 "map_ordered<ordered::call_" + op.name + ", " + dtype_text(y->dtype) + ">(words, block_number)", words,
                 y->size);
}

}  // namespace

void register_series_kernels() {
#define ORDERED(name, operands, first, second, lowest, highest, ...) add_kernel(#name, map_ordered);
#include "../kernels/scalar_ordered.def"
#undef ORDERED
}

}  // namespace wengert::cuda
