// Convolution and the two other parts of its trilinear form, as products whose second factor is gathered on the way.
#include <algorithm>

#include "device.h"
#include "kernels_pool.h"

namespace wengert::cuda {

namespace {

enum class Form { output, input, weight };
constexpr const char* kForms[] = {"output", "input", "weight"};
// A block makes a tile of so many elements, of 64 by 64, or of 32 rows where that leaves less of it empty.
constexpr int64_t kTileSize = 64 * 64, kDepth = 16;
// Bytes of shared memory of a block: of two factors, and of 256 terms of the sum.
int shared_of(int64_t rows, DType summed) {
  return static_cast<int>(kDepth * (rows + kTileSize / rows + 8) * size_of(summed)) + 256 * 32;
}

// Where few tiles would leave the GPU idle, the sum is cut: into chunks that depend on the shapes only.
constexpr int64_t kEnoughTiles = 264, kSmallestChunk = 256;

int64_t word_of(const void* p) { return reinterpret_cast<int64_t>(p); }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Call {
  const Value *x, *w, *y;       // the three arrays of the form; one of them is made
  const Value *first, *second;  // factors of the product
  const Value* bias;
  Value* to;
};

void run(CudaDevice& gpu, Form form, const Call& call, const Attrs& attrs) {
  enum { kStride = 1, kPadding, kDilation, kGroups };
  if (call.to->size == 0) return;
  const int absent = 5 - call.x->ndim;  // of three spatial axes; they come first
  int64_t taps = 1, plane_x = 1, plane_y = 1;
  for (int i = 2; i < call.x->ndim; ++i) {
    taps *= call.w->shape[i];
    plane_x *= call.x->shape[i];
    plane_y *= call.y->shape[i];
  }
  if (std::max(plane_x, plane_y) > INT32_MAX)
    fail(ErrorKind::value, "conv", "on a GPU an image of a channel can have 2147483647 elements, got more");
  const int64_t batch = call.x->shape[0], groups = attrs[kGroups].i, inputs = call.w->shape[1];
  const int64_t outputs = call.w->shape[0] / groups;
  const int64_t m = form == Form::input ? inputs : outputs;
  const int64_t n = form == Form::output ? batch * plane_y : form == Form::input ? batch * plane_x : inputs * taps;
  const int64_t depth = form == Form::output ? inputs * taps : form == Form::input ? outputs * taps : batch * plane_y;
  const auto tiles_of = [&](int64_t rows) { return ceil_div(m, rows) * ceil_div(n, kTileSize / rows) * groups; };
  const int64_t rows = tiles_of(32) < tiles_of(64) ? 32 : 64, tiles = tiles_of(rows);
  const int64_t wanted =
      call.bias ? 1 : std::clamp<int64_t>(kEnoughTiles / tiles, 1, std::max<int64_t>(1, depth / kSmallestChunk));
  const int64_t chunk = std::max<int64_t>(1, ceil_div(ceil_div(depth, wanted), kDepth)) * kDepth;
  const int64_t chunks = std::max<int64_t>(1, ceil_div(depth, chunk));
  const DType dtype = call.to->dtype, summed = is_half(dtype) ? DType::Float32 : dtype;
  const Ref partial =
      chunks == 1 ? Ref() : Ref(empty(summed, Dims{chunks, call.to->size}, Category::workspace, gpu.id));
  std::vector<int64_t> words = {word_of(partial ? partial->data : call.to->data),
                                word_of(call.first->data),
                                word_of(call.second->data),
                                call.bias ? word_of(call.bias->data) : 0,
                                batch,
                                groups,
                                inputs,
                                outputs};
  Dims window;
  for (int i = 2; i < call.w->ndim; ++i) window.push(call.w->shape[i]);
  for (const Value* v : {call.x, call.y})
    for (int i = 0; i < 3; ++i) words.push_back(i < absent ? 1 : v->shape[2 + i - absent]);
  words.push_back(chunk);
  words.push_back(chunks);
  gpu.run_kernel("device_conv.h",
                 "conv<" + dtype_text(dtype) + ", ConvForm::" + kForms[static_cast<int>(form)] + ", " +
                     std::to_string(rows) + ", " +
                     window_text(absent, window, attrs[kStride].dims, attrs[kPadding].dims, attrs[kDilation].dims) +
                     ">(words, block_number)",
                 words, tiles * chunks * 256, 1, shared_of(rows, summed));
  if (!partial) return;
  constexpr int64_t kPacked[] = {1};
  const Ref flat(view(call.to, Dims{call.to->size}, kPacked, 0));
  reduce_axes(gpu, Reduction::sum, partial.v, 1u, flat.v);
}

void output(CudaDevice& gpu, const Op&, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  const Ref x(contiguous(in[0])), w(contiguous(in[1])), bias = n_in == 3 ? Ref(contiguous(in[2])) : Ref();
  run(gpu, Form::output, {x.v, w.v, out[0], w.v, x.v, bias.v, out[0]}, attrs);
}

void input(CudaDevice& gpu, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Ref y(contiguous(in[0])), w(contiguous(in[1]));
  run(gpu, Form::input, {out[0], w.v, y.v, w.v, y.v, nullptr, out[0]}, attrs);
}

void weight(CudaDevice& gpu, const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Ref x(contiguous(in[0])), y(contiguous(in[1]));
  run(gpu, Form::weight, {x.v, out[0], y.v, y.v, x.v, nullptr, out[0]}, attrs);
}

}  // namespace

void register_conv_kernels() {
  add_kernel("conv", output);
  add_kernel("conv_bias", output);
  add_kernel("conv_transpose", input);
  add_kernel("conv_kernel", weight);
}

}  // namespace wengert::cuda
