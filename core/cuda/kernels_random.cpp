// Draws of random numbers: the CPU's, for the same key and counter.
#include <cstring>

#include "device.h"

namespace wengert::cuda {

namespace {

std::vector<int64_t> stream_words(const Value* y, int64_t n, const Attr& key, const Attr& counter) {
  return {reinterpret_cast<int64_t>(y->data), n, key.dims[0].raw, key.dims[1].raw, counter.dims[0].raw};
}

int64_t per_block(DType t) { return t == DType::Float64 || t == DType::Complex128 ? 2 : 4; }

void draw(CudaDevice& gpu, const std::string& kernel, const std::vector<int64_t>& words, int64_t n, int64_t per) {
  gpu.run_kernel("device_random.h", kernel, words, (n + per - 1) / per);
}

void uniform(CudaDevice& gpu, const Op&, Value* const*, int, const Attrs& attrs, Value** out) {
  const Value* y = out[0];
  draw(gpu, "uniform<" + dtype_text(y->dtype) + ">(words, block_number)", stream_words(y, y->size, attrs[2], attrs[3]),
       y->size, per_block(y->dtype));
}

void normal(CudaDevice& gpu, const Op&, Value* const*, int, const Attrs& attrs, Value** out) {
  const Value* y = out[0];
  const bool parts = is_complex(y->dtype);
  const DType of_part = y->dtype == DType::Complex64    ? DType::Float32
                        : y->dtype == DType::Complex128 ? DType::Float64
                                                        : y->dtype;
  const int64_t n = parts ? 2 * y->size : y->size;
  draw(gpu, "normal<" + dtype_text(of_part) + (parts ? ", true" : ", false") + ">(words, block_number)",
       stream_words(y, n, attrs[2], attrs[3]), n, per_block(y->dtype));
}

void integers(CudaDevice& gpu, const Op&, Value* const*, int, const Attrs& attrs, Value** out) {
  const Value* y = out[0];
  std::vector<int64_t> words = stream_words(y, y->size, attrs[1], attrs[2]);
  words.push_back(attrs[3].dims[0].raw);
  words.push_back(attrs[4].dims[0].raw);
  draw(gpu, "integers(words, block_number)", words, y->size, 2);
}

void dropout(CudaDevice& gpu, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value* y = out[0];
  const Ref x(contiguous(in[0]));
  std::vector<int64_t> words = stream_words(y, y->size, attrs[1], attrs[2]);
  int64_t p;
  std::memcpy(&p, &attrs[0].f, sizeof(p));
  words.push_back(reinterpret_cast<int64_t>(x->data));
  words.push_back(p);
  draw(gpu, "dropout<" + dtype_text(y->dtype) + ">(words, block_number)", words, y->size, 4);
}

}  // namespace

void register_random_kernels() {
  add_kernel("random_uniform", uniform);
  add_kernel("random_normal", normal);
  add_kernel("random_integers", integers);
  add_kernel("random_dropout", dropout);
}

}  // namespace wengert::cuda
