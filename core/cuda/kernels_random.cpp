// Draws of random numbers: the CPU's, for the same key and counter.
#include <cstring>

#include "device.h"

namespace wengert::cuda {

namespace {

constexpr int kKeyWord = 2;
constexpr char kHeader[] = "device_random.h";

// A draw of n numbers; `key` and `counter` are the numbers of attributes. More words follow those of all draws.
struct Draw {
  CudaDevice& gpu;
  int64_t n;
  int key, counter;
  std::vector<int64_t> words;

  Draw(CudaDevice& device, const Value* y, int64_t elements, const Attrs& attrs, int key_at, int counter_at)
      : gpu(device),
        n(elements),
        key(key_at),
        counter(counter_at),
        words{reinterpret_cast<int64_t>(y->data), n, attrs[key].dims[0].raw, attrs[key].dims[1].raw,
              attrs[counter].dims[0].raw} {}
  // `per`: how many numbers a thread draws.
  void run(const std::string& kernel, int64_t per) const {
    if (n == 0) return;
    gpu.run_kernel(kHeader, kernel + "(words, block_number)", words, (n + per - 1) / per);
    gpu.describe_draw(kKeyWord, key, counter);
  }
};

int64_t per_block(DType t) { return t == DType::Float64 || t == DType::Complex128 ? 2 : 4; }

void uniform(CudaDevice& gpu, const Op&, Value* const*, int, const Attrs& attrs, Value** out) {
  const Value* y = out[0];
  Draw(gpu, y, y->size, attrs, 2, 3).run("uniform<" + dtype_text(y->dtype) + ">", per_block(y->dtype));
}

void normal(CudaDevice& gpu, const Op&, Value* const*, int, const Attrs& attrs, Value** out) {
  const Value* y = out[0];
  const bool parts = is_complex(y->dtype);
  const DType of_part = y->dtype == DType::Complex64    ? DType::Float32
                        : y->dtype == DType::Complex128 ? DType::Float64
                                                        : y->dtype;
  const int64_t n = parts ? 2 * y->size : y->size;
  Draw(gpu, y, n, attrs, 2, 3)
      .run("normal<" + dtype_text(of_part) + (parts ? ", true>" : ", false>"), per_block(y->dtype));
}

void integers(CudaDevice& gpu, const Op&, Value* const*, int, const Attrs& attrs, Value** out) {
  const Value* y = out[0];
  Draw draw(gpu, y, y->size, attrs, 1, 2);
  draw.words.push_back(attrs[3].dims[0].raw);
  draw.words.push_back(attrs[4].dims[0].raw);
  draw.run("integers", 2);
}

// Classes of rows of weights, each with a counter of its own.
void categorical(CudaDevice& gpu, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value* y = out[0];
  if (y->size == 0) return;
  const Ref weights(contiguous(in[0]));
  const int64_t rows = in[0]->shape[0], classes = in[0]->shape[1];
  const Ref sums(empty(DType::Float64, Dims{rows, classes}, Category::workspace, gpu.id));
  const auto word = [](const Value* v) { return reinterpret_cast<int64_t>(v->data); };
  gpu.run_kernel(kHeader, "class_sums<" + dtype_text(weights->dtype) + ">(words, block_number)",
                 {word(sums.v), word(weights.v), rows, classes}, rows);
  Draw draw(gpu, y, y->size, attrs, 1, 2);
  for (int64_t w : {word(sums.v), rows, classes}) draw.words.push_back(w);
  draw.run("draw_classes", 1);
}

void dropout(CudaDevice& gpu, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value* y = out[0];
  const Ref x(contiguous(in[0]));
  Draw draw(gpu, y, y->size, attrs, 1, 2);
  int64_t p;
  std::memcpy(&p, &attrs[0].f, sizeof(p));
  draw.words.push_back(reinterpret_cast<int64_t>(x->data));
  draw.words.push_back(p);
  draw.run("dropout<" + dtype_text(y->dtype) + ">", 4);
}

}  // namespace

void register_random_kernels() {
  add_kernel("random_uniform", uniform);
  add_kernel("random_normal", normal);
  add_kernel("random_integers", integers);
  add_kernel("random_dropout", dropout);
  add_kernel("random_categorical", categorical);
}

}  // namespace wengert::cuda
