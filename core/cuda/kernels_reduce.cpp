// Reductions over any axes, and positions of largest and smallest elements. The order of a sum depends on shapes only.
#include <algorithm>

#include "device.h"

namespace wengert::cuda {

namespace {

struct AxisList {
  std::vector<int64_t> shape, strides;
  void add(int64_t n, int64_t stride) {
    if (n == 1) return;
    if (!shape.empty() && strides.back() == stride * n) {
      shape.back() *= n;
      strides.back() = stride;
    } else {
      shape.push_back(n);
      strides.push_back(stride);
    }
  }
  int64_t size() const {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }
  void close() {
    if (!shape.empty()) return;
    shape.push_back(1);
    strides.push_back(0);
  }
};

constexpr int kShared = 256 * 16;  // bytes: a number of each thread

DType accumulated_in(DType t) { return is_half(t) ? DType::Float32 : t; }

// Neighbours that a thread takes where they are aligned.
int64_t packed_columns(DType t) { return std::clamp<int64_t>(16 / size_of(t), 1, 8); }

// One pass: chunks of `chunk` elements to `to`, which has room for all of them.
void reduce_pass(CudaDevice& gpu, const char* name, DType from_type, DType to_type, const void* from, void* to,
                 AxisList kept, AxisList reduced, int64_t chunk) {
  const int64_t n_kept = kept.size(), n_reduced = reduced.size();
  const int64_t chunks = std::max<int64_t>(1, (n_reduced + chunk - 1) / chunk);
  const bool columns = !kept.shape.empty() && kept.strides.back() == 1 && kept.shape.back() >= 16;
  kept.close();
  reduced.close();
  std::vector<int64_t> words = {reinterpret_cast<int64_t>(to), reinterpret_cast<int64_t>(from), n_kept, n_reduced,
                                chunk};
  for (const auto* list : {&kept.shape, &kept.strides, &reduced.shape, &reduced.strides})
    words.insert(words.end(), list->begin(), list->end());
  const int64_t tiles = columns ? (n_kept + 31) / 32 : n_kept;
  gpu.run_kernel("device_reduce.h",
                 std::string("reduce_chunks<reduction::") + name + ", " + dtype_text(from_type) + ", " +
                     dtype_text(to_type) + ", " + (columns ? "true" : "false") + ", " +
                     std::to_string(kept.shape.size()) + ", " + std::to_string(reduced.shape.size()) +
                     ">(words, block_number)",
                 words, tiles * chunks * 256, 1, kShared);
}

// The rows of a matrix, whose columns are packed: the two sizes, and the distance of rows.
struct Columns {
  int64_t columns, rows, stride;
};

// The same of a matrix, by threads that take as many neighbours as 16 bytes hold.
void columns_pass(CudaDevice& gpu, const char* name, DType from_type, DType to_type, const void* from, void* to,
                  const Columns& matrix, int64_t chunk) {
  const int64_t most = packed_columns(from_type);
  const bool fits = matrix.columns % most == 0 && matrix.stride % most == 0 &&
                    reinterpret_cast<uintptr_t>(from) % static_cast<uintptr_t>(most * size_of(from_type)) == 0;
  const int64_t pack = fits ? most : 1, chunks = (matrix.rows + chunk - 1) / chunk;
  // Few columns of many rows: more blocks, in which more threads share a column. By the shape alone.
  constexpr int64_t kFewTiles = 64, kManyRows = 64;
  const int64_t across = chunks == 1 && matrix.rows > kManyRows && matrix.columns <= kFewTiles * 32 * most ? 8 : 32;
  const int64_t tiles = (matrix.columns + across * pack - 1) / (across * pack);
  gpu.run_kernel("device_reduce.h",
                 std::string("reduce_columns<reduction::") + name + ", " + dtype_text(from_type) + ", " +
                     dtype_text(to_type) + ", " + std::to_string(pack) + ", " + std::to_string(across) +
                     ">(words, block_number)",
                 {reinterpret_cast<int64_t>(to), reinterpret_cast<int64_t>(from), matrix.columns, matrix.rows, chunk,
                  matrix.stride},
                 tiles * chunks * 256, 1, static_cast<int>(256 * pack * size_of(accumulated_in(from_type))));
}

// Few rows in one pass; many in chunks that fill the GPU, and then the chunks. The order of a sum depends on the shape
// alone, and not on whether threads can take packs.
void reduce_columns(CudaDevice& gpu, const char* name, const Value* x, const Columns& matrix, Value* y) {
  constexpr int64_t kFewRows = 512, kSmallest = 64, kBlocks = 1056;
  if (matrix.rows <= kFewRows)
    return columns_pass(gpu, name, x->dtype, y->dtype, x->data, y->data, matrix, matrix.rows);
  const int64_t across = 32 * packed_columns(x->dtype), tiles = (matrix.columns + across - 1) / across;
  const int64_t wanted = std::max<int64_t>(1, kBlocks / tiles);
  const int64_t chunk = std::max(kSmallest, (matrix.rows + wanted - 1) / wanted);
  const int64_t chunks = (matrix.rows + chunk - 1) / chunk;
  if (chunks == 1) return columns_pass(gpu, name, x->dtype, y->dtype, x->data, y->data, matrix, chunk);
  const DType wide = accumulated_in(x->dtype);
  const Ref partial(empty(wide, Dims{chunks, matrix.columns}, Category::workspace, gpu.id));
  columns_pass(gpu, name, x->dtype, wide, x->data, partial->data, matrix, chunk);
  columns_pass(gpu, name, wide, y->dtype, partial->data, y->data, {matrix.columns, chunks, matrix.columns}, chunks);
}

}  // namespace

void reduce_axes(CudaDevice& gpu, Reduction reduction, const Value* x, uint32_t mask, Value* y) {
  static constexpr const char* kNames[] = {"sum", "prod", "max", "min", "any", "all"};
  const char* name = kNames[static_cast<int>(reduction)];
  AxisList kept, reduced;
  for (int i = 0; i < x->ndim; ++i) (mask >> i & 1 ? reduced : kept).add(x->shape[i], x->strides[i]);
  const int64_t n_kept = y->size, n_reduced = x->size == 0 ? 0 : x->size / std::max<int64_t>(1, n_kept);
  if (n_kept == 0) return;
  if (n_reduced == 0) {
    reduced = {};
    reduced.shape = {0};
    reduced.strides = {0};
  }
  constexpr int64_t kFewestColumns = 16;
  if (n_reduced > 0 && kept.shape.size() == 1 && reduced.shape.size() == 1 && kept.strides[0] == 1 &&
      kept.shape[0] >= kFewestColumns)
    return reduce_columns(gpu, name, x, {n_kept, n_reduced, reduced.strides[0]}, y);
  // As many chunks as fill the GPU, of at least 2048 elements each.
  constexpr int64_t kBlocks = 512, kSmallest = 2048;
  const int64_t wanted = std::max<int64_t>(1, kBlocks / n_kept);
  const int64_t chunk = std::max(kSmallest, (n_reduced + wanted - 1) / wanted);
  const int64_t chunks = std::max<int64_t>(1, (n_reduced + chunk - 1) / chunk);
  if (chunks == 1)
    return reduce_pass(gpu, name, x->dtype, y->dtype, x->data, y->data, kept, reduced, std::max<int64_t>(1, chunk));
  const DType wide = accumulated_in(x->dtype);
  const Ref partial(empty(wide, Dims{chunks, n_kept}, Category::workspace, gpu.id));
  reduce_pass(gpu, name, x->dtype, wide, x->data, partial->data, kept, reduced, chunk);
  AxisList left, across;
  left.add(n_kept, 1);
  across.add(chunks, n_kept);
  reduce_pass(gpu, name, wide, y->dtype, partial->data, y->data, left, across, chunks);
}

namespace {

template <Reduction reduction>
void reduce(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  uint32_t mask = 0;
  for (Dim a : attrs[0].dims) mask |= 1u << normalize_axis(op.name.c_str(), a.raw, in[0]->ndim);
  reduce_axes(gpu, reduction, in[0], mask, out[0]);
}

template <bool kLargest>
void arg_reduce(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value* x = in[0];
  const int axis = normalize_axis(op.name.c_str(), attrs[0].i, x->ndim);
  AxisList kept;
  for (int i = 0; i < x->ndim; ++i)
    if (i != axis) kept.add(x->shape[i], x->strides[i]);
  const int64_t n_kept = out[0]->size;
  kept.close();
  std::vector<int64_t> words = {reinterpret_cast<int64_t>(out[0]->data), reinterpret_cast<int64_t>(x->data), n_kept,
                                x->shape[axis], x->strides[axis]};
  words.insert(words.end(), kept.shape.begin(), kept.shape.end());
  words.insert(words.end(), kept.strides.begin(), kept.strides.end());
  gpu.run_kernel("device_reduce.h",
                 std::string("arg_reduce<") + (kLargest ? "true, " : "false, ") + dtype_text(x->dtype) + ", " +
                     std::to_string(kept.shape.size()) + ">(words, block_number)",
                 words, n_kept * 256, 1, kShared);
}

}  // namespace

void register_reduce_kernels() {
  add_kernel("sum", reduce<Reduction::sum>);
  add_kernel("prod", reduce<Reduction::prod>);
  add_kernel("max", reduce<Reduction::max>);
  add_kernel("min", reduce<Reduction::min>);
  add_kernel("any", reduce<Reduction::any>);
  add_kernel("all", reduce<Reduction::all>);
  add_kernel("argmax", arg_reduce<true>);
  add_kernel("argmin", arg_reduce<false>);
}

}  // namespace wengert::cuda
