// Draws of random numbers: the CPU's, for the same key and counter.
#include <cstring>

#include "device.h"

namespace wengert::cuda {

namespace {

constexpr int kKeyWord = 2;
constexpr char kHeader[] = "device_random.h";

int64_t word_of(const Value* v) { return reinterpret_cast<int64_t>(v->data); }

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
        words{word_of(y), n, attrs[key].dims[0].raw, attrs[key].dims[1].raw, attrs[counter].dims[0].raw} {}
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
  gpu.run_kernel(kHeader, "class_sums<" + dtype_text(weights->dtype) + ">(words, block_number)",
                 {word_of(sums.v), word_of(weights.v), rows, classes}, rows);
  Draw draw(gpu, y, y->size, attrs, 1, 2);
  for (int64_t w : {word_of(sums.v), rows, classes}) draw.words.push_back(w);
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

// Numbers with parameters, each with a counter of its own. `kKey`: which attribute the key is.
template <int kKey>
void draw_with(CudaDevice& gpu, const char* kernel, Value* const* in, int n_in, const Attrs& attrs, const Value* y,
               std::vector<int64_t> more = {}) {
  Draw draw(gpu, y, y->size, attrs, kKey, kKey + 1);
  std::vector<Ref> packed;
  for (int k = 0; k < n_in; ++k) draw.words.push_back(word_of(packed.emplace_back(contiguous(in[k])).v));
  draw.words.insert(draw.words.end(), more.begin(), more.end());
  draw.run(kernel + ("<" + dtype_text(y->dtype) + ">"), 1);
}

void gamma(CudaDevice& gpu, const Op&, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  draw_with<1>(gpu, "draw_gamma", in, n_in, attrs, out[0], {attrs[0].i});
}
void von_mises(CudaDevice& gpu, const Op&, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  draw_with<0>(gpu, "draw_von_mises", in, n_in, attrs, out[0]);
}
void poisson(CudaDevice& gpu, const Op&, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  draw_with<0>(gpu, "draw_poisson", in, n_in, attrs, out[0]);
}
void binomial(CudaDevice& gpu, const Op&, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  draw_with<0>(gpu, "draw_binomial", in, n_in, attrs, out[0]);
}

void multinomial(CudaDevice& gpu, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value* y = out[0];
  const int64_t classes = y->shape[y->ndim - 1], rows = in[0]->size;
  const Ref counts(contiguous(in[0])), weights(contiguous(in[1]));
  const Ref room(empty(DType::Float64, Dims{rows, classes}, Category::workspace, gpu.id));
  Draw draw(gpu, y, rows, attrs, 0, 1);
  for (int64_t w : {word_of(counts.v), word_of(weights.v), word_of(room.v), classes}) draw.words.push_back(w);
  draw.run("draw_multinomial<" + dtype_text(y->dtype) + ">", 1);
}

// How draws of the gamma distribution move with their parameter.
void run_slope(CudaDevice& gpu, const char* kernel, Value* const* in, const Value* y, std::vector<int64_t> more) {
  const Ref a(contiguous(in[0])), l(contiguous(in[1]));
  std::vector<int64_t> words = {word_of(y), y->size, word_of(a.v), word_of(l.v)};
  words.insert(words.end(), more.begin(), more.end());
  gpu.run_kernel(kHeader, kernel + ("<" + dtype_text(y->dtype) + ">(words, block_number)"), words, y->size);
}
void gamma_slope(CudaDevice& gpu, const Op&, Value* const* in, int, const Attrs&, Value** out) {
  run_slope(gpu, "gamma_slope", in, out[0], {});
}
void gamma_tail(CudaDevice& gpu, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  run_slope(gpu, "gamma_tail", in, out[0], {attrs[0].i});
}

}  // namespace

void register_random_kernels() {
  add_kernel("random_uniform", uniform);
  add_kernel("random_normal", normal);
  add_kernel("random_integers", integers);
  add_kernel("random_dropout", dropout);
  add_kernel("random_categorical", categorical);
  add_kernel("random_gamma", gamma);
  add_kernel("random_von_mises", von_mises);
  add_kernel("random_poisson", poisson);
  add_kernel("random_binomial", binomial);
  add_kernel("random_multinomial", multinomial);
  add_kernel("gamma_slope", gamma_slope);
  add_kernel("gamma_tail", gamma_tail);
}

}  // namespace wengert::cuda
