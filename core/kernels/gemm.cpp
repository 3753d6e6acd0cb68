#include "gemm.h"

#include <cblas.h>

#include <algorithm>
#include <complex>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../per_thread.h"
#include "../threads.h"
#include "gemm_small.h"
#include "vector.h"

namespace wengert {

namespace {

// Everything below is chosen by shape and strides only: how a product is cut decides its bits. Work is
// counted in multiply-adds, in floating point because extents of 32 bits overflow 64.
constexpr double kSerialWork = 1 << 19;      // some 15 µs: below, a second thread does not pay
constexpr double kTileWork = 1 << 18;        // what a tile is worth handing out for
constexpr double kCutWork = 1 << 19;         // tiles are not cut smaller than this: BLAS slows down on them
constexpr double kSmallWork = 32 * 64 * 80;  // up to here the small kernel beats a BLAS call
constexpr double kSmallThinWork = 1 << 16;   // the same when fewer than 16 columns leave lanes idle
constexpr double kSmallVectorWork = 1024;    // the same for a vector times a matrix
constexpr int64_t kUnpackedK = 256;          // depth of tiles that the small kernel reads in place; 32 columns fill L1
constexpr int64_t kUnpackedStep = 2048;      // bytes between their rows: wider steps fall into few sets of the cache
constexpr int64_t kPackedRows = 64, kPackedColumns = 32, kPackedDepth = 64;  // from here on packing pays
constexpr int64_t kChunkK = 4096;                                            // of a split sum
constexpr int64_t kMaxChunks = 16;                                           // bounds the memory for partial sums
constexpr int64_t kVectorTile = 256;  // outputs of one matrix-vector tile, at least

constexpr double work_of(int64_t m, int64_t n, int64_t k) {
  return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

// How many units of `work` each make a tile worth handing out.
constexpr int64_t units_per_tile(double work) { return std::max<int64_t>(1, static_cast<int64_t>(kTileWork / work)); }

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

blasint to_blas(int64_t extent) {
  if (extent > std::numeric_limits<blasint>::max()) {
    throw std::length_error("matrix product: an extent or leading dimension exceeds 32 bits");
  }
  return static_cast<blasint>(extent);
}

template <class T>
struct Scratch {
  std::unique_ptr<T[]> memory;
  T* resize(int64_t elements) {
    memory.reset(new T[elements]);  // not initialised: every element is written before it is read
    return memory.get();
  }
};

// A matrix as BLAS wants it: rows `ld` apart, or columns `ld` apart if transposed.
template <class T>
struct Operand {
  const T* data;
  int64_t ld;
  bool transposed;
  const T* at(int64_t row, int64_t col) const { return data + (transposed ? col * ld + row : row * ld + col); }
};

// Whether the strides are those of an Operand; a stride along an extent of 1 never matters.
template <class T>
bool as_operand(const T* data, int64_t rows, int64_t cols, int64_t row, int64_t col, Operand<T>& out) {
  if ((col == 1 || cols == 1) && (row >= cols || rows == 1)) {
    out = {data, rows == 1 ? cols : row, false};
    return true;
  }
  if ((row == 1 || rows == 1) && (col >= rows || cols == 1)) {
    out = {data, cols == 1 ? rows : col, true};
    return true;
  }
  return false;
}

inline float convert(Half h) { return to_float(h); }
inline float convert(BFloat b) { return to_float(b); }
template <class T>
T convert(T x) {
  return x;
}

// dst[rows × cols], contiguous = src with any strides, in blocks so that neither side strides through the
// whole cache.
template <class From, class To>
void pack(const From* src, int64_t rows, int64_t cols, int64_t row, int64_t col, To* dst) {
  constexpr int64_t kBlock = 32;
  const int64_t group = kBlock * units_per_tile(work_of(kBlock, cols, 1));  // rows
  parallel_for(ceil_div(rows, group), [&](int64_t tile) {
    const int64_t end = std::min(rows, (tile + 1) * group);
    for (int64_t i0 = tile * group; i0 < end; i0 += kBlock) {
      const int64_t i1 = std::min(end, i0 + kBlock);
      for (int64_t j0 = 0; j0 < cols; j0 += kBlock) {
        const int64_t j1 = std::min(cols, j0 + kBlock);
        for (int64_t i = i0; i < i1; ++i) {
          for (int64_t j = j0; j < j1; ++j) dst[i * cols + j] = convert(src[i * row + j * col]);
        }
      }
    }
  });
}

template <class T>
void blas_gemm(int64_t m, int64_t n, int64_t k, const Operand<T>& a, const T* a_data, const Operand<T>& b,
               const T* b_data, T* c, int64_t ldc, T beta = 0) {
  const auto ta = a.transposed ? CblasTrans : CblasNoTrans, tb = b.transposed ? CblasTrans : CblasNoTrans;
  const blasint bm = to_blas(m), bn = to_blas(n), bk = to_blas(k);
  const blasint lda = to_blas(a.ld), ldb = to_blas(b.ld), ldo = to_blas(ldc);
  if constexpr (std::is_same_v<T, float>) {
    scipy_cblas_sgemm(CblasRowMajor, ta, tb, bm, bn, bk, 1, a_data, lda, b_data, ldb, beta, c, ldo);
  } else if constexpr (std::is_same_v<T, double>) {
    scipy_cblas_dgemm(CblasRowMajor, ta, tb, bm, bn, bk, 1, a_data, lda, b_data, ldb, beta, c, ldo);
  } else {
    const T one = 1;
    if constexpr (std::is_same_v<T, std::complex<float>>) {
      scipy_cblas_cgemm(CblasRowMajor, ta, tb, bm, bn, bk, &one, a_data, lda, b_data, ldb, &beta, c, ldo);
    } else {
      scipy_cblas_zgemm(CblasRowMajor, ta, tb, bm, bn, bk, &one, a_data, lda, b_data, ldb, &beta, c, ldo);
    }
  }
}

// y[rows] (stride incy) = matrix[rows × cols] · x[cols].
template <class T>
void blas_gemv(int64_t rows, int64_t cols, const Operand<T>& matrix, const T* data, const T* x, int64_t incx, T* y,
               int64_t incy) {
  // BLAS describes the matrix as it is stored.
  const auto t = matrix.transposed ? CblasTrans : CblasNoTrans;
  const blasint r = to_blas(matrix.transposed ? cols : rows), c = to_blas(matrix.transposed ? rows : cols);
  const blasint ld = to_blas(matrix.ld), ix = to_blas(incx), iy = to_blas(incy);
  if constexpr (std::is_same_v<T, float>) {
    scipy_cblas_sgemv(CblasRowMajor, t, r, c, 1, data, ld, x, ix, 0, y, iy);
  } else if constexpr (std::is_same_v<T, double>) {
    scipy_cblas_dgemv(CblasRowMajor, t, r, c, 1, data, ld, x, ix, 0, y, iy);
  } else {
    const T one = 1, zero = 0;
    if constexpr (std::is_same_v<T, std::complex<float>>) {
      scipy_cblas_cgemv(CblasRowMajor, t, r, c, &one, data, ld, x, ix, &zero, y, iy);
    } else {
      scipy_cblas_zgemv(CblasRowMajor, t, r, c, &one, data, ld, x, ix, &zero, y, iy);
    }
  }
}

// How one product is cut into tiles.
struct Plan {
  int64_t tile_m, tile_n, chunk_k;
  int64_t tiles_m, tiles_n, chunks;
  int64_t tiles() const { return tiles_m * tiles_n * chunks; }
};

// Equal parts of at most `limit`, in multiples of 16 so that only the last one is ragged.
void cut(int64_t extent, int64_t limit, int64_t& tile, int64_t& tiles) {
  tile = ceil_div(ceil_div(extent, ceil_div(extent, limit)), 16) * 16;
  tiles = ceil_div(extent, tile);
}

Plan plan_for(int64_t m, int64_t n, int64_t k) {
  Plan p{m, n, k, 1, 1, 1};
  if (work_of(m, n, k) < kSerialWork) return p;
  if (m == 1 || n == 1) {
    const int64_t tile = std::max(kVectorTile, units_per_tile(static_cast<double>(k)));
    if (m == 1) cut(n, tile, p.tile_n, p.tiles_n);
    if (n == 1) cut(m, tile, p.tile_m, p.tiles_m);
  } else {
    // The largest tiles that still make four; a thin side stays whole and the long one is cut.
    static constexpr int64_t sizes[][2] = {{256, 256}, {128, 256}, {128, 128}, {64, 128}, {64, 64}};
    for (const auto& [tm, tn] : sizes) {
      if (p.tiles() > 1 && work_of(std::min(m, tm), std::min(n, tn), k) <= kCutWork) break;
      cut(m, tm, p.tile_m, p.tiles_m);
      cut(n, tn, p.tile_n, p.tiles_n);
      if (p.tiles() >= 4) break;
    }
  }
  if (p.tiles() < 4 && k >= 2 * kChunkK) {
    cut(k, std::max(kChunkK, ceil_div(k, kMaxChunks)), p.chunk_k, p.chunks);
  }
  return p;
}

template <class T>
constexpr bool has_small_kernel = std::is_same_v<T, float> || std::is_same_v<T, double>;

bool is_small(int64_t m, int64_t n, int64_t k) {
  if (k > kSmallMaxK) return false;
  if (m == 1) return work_of(1, n, k) <= kSmallVectorWork;
  return n >= 4 && work_of(m, n, k) <= (n >= 16 ? kSmallWork : kSmallThinWork);
}

template <class T>
void small_gemm(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t b_row,
                int64_t b_col, T* c, int64_t ldc) {
  if constexpr (std::is_same_v<T, float>) {
    small_gemm_f32(m, n, k, a, a_row, a_col, b, b_row, b_col, c, ldc);
  } else {
    small_gemm_f64(m, n, k, a, a_row, a_col, b, b_row, b_col, c, ldc);
  }
}

// Whether the small kernel is faster than BLAS on a tile of any number of rows. BLAS packs both operands first; the
// kernel reads them where they lie (a transposed b it packs), which pays while they stay in the nearest cache.
template <class T>
bool suits_small_kernel(int64_t n, int64_t k, const Operand<T>& a, const Operand<T>& b) {
  constexpr int64_t widest = kUnpackedStep / static_cast<int64_t>(sizeof(T));
  return n % 16 == 0 && k <= kUnpackedK && (!a.transposed || a.ld <= widest) && (b.transposed || b.ld <= widest);
}

// Whether the packed kernel is faster than BLAS and the small kernel on a tile: packing has to pay.
template <class T>
bool suits_packed_kernel(int64_t m, int64_t n, int64_t k) {
  const bool built = std::is_same_v<T, float> ? packed_gemm_f32 != nullptr : packed_gemm_f64 != nullptr;
  return built && m >= kPackedRows && n >= kPackedColumns && k >= kPackedDepth;
}

// Half a megabyte at most: tiles have at most 272 rows.
template <class T>
struct PackedTile {
  std::vector<T> memory;
};

template <class T>
void packed_gemm(int64_t m, int64_t n, int64_t k, const Operand<T>& a, const T* a_data, const Operand<T>& b,
                 const T* b_data, T* c, int64_t ldc) {
  std::vector<T>& memory = per_thread<PackedTile<T>>().memory;
  if (memory.size() < static_cast<size_t>(packed_rows(m, k))) memory.resize(packed_rows(m, k));
  T* rows = memory.data();
  const int64_t a_row = a.transposed ? 1 : a.ld, a_col = a.transposed ? a.ld : 1;
  const int64_t b_row = b.transposed ? 1 : b.ld, b_col = b.transposed ? b.ld : 1;
  if constexpr (std::is_same_v<T, float>) {
    packed_gemm_f32(m, n, k, a_data, a_row, a_col, b_data, b_row, b_col, c, ldc, rows);
  } else {
    packed_gemm_f64(m, n, k, a_data, a_row, a_col, b_data, b_row, b_col, c, ldc, rows);
  }
}

template <class T>
void run_tile(const Plan& p, int64_t tile, int64_t m, int64_t n, int64_t k, const Operand<T>& a, const Operand<T>& b,
              T* c, int64_t ldc, T* partial) {
  const int64_t chunk = tile % p.chunks, tn = tile / p.chunks % p.tiles_n, tm = tile / p.chunks / p.tiles_n;
  const int64_t i = tm * p.tile_m, j = tn * p.tile_n, q = chunk * p.chunk_k;
  const int64_t rows = std::min(p.tile_m, m - i), cols = std::min(p.tile_n, n - j), depth = std::min(p.chunk_k, k - q);
  T* out = p.chunks == 1 ? c : partial + chunk * m * n;
  if (p.chunks > 1) ldc = n;
  out += i * ldc + j;
  if (n == 1) {
    const int64_t incx = b.transposed ? 1 : b.ld;
    blas_gemv(rows, depth, a, a.at(i, q), b.at(q, 0), incx, out, ldc);
  } else if (m == 1) {
    const int64_t incx = a.transposed ? a.ld : 1;
    blas_gemv(cols, depth, Operand<T>{b.data, b.ld, !b.transposed}, b.at(q, j), a.at(0, q), incx, out, int64_t{1});
  } else {
    if constexpr (has_small_kernel<T>) {
      if (suits_small_kernel(cols, depth, a, b)) {
        return small_gemm(rows, cols, depth, a.at(i, q), a.transposed ? 1 : a.ld, a.transposed ? a.ld : 1, b.at(q, j),
                          b.transposed ? 1 : b.ld, b.transposed ? b.ld : 1, out, ldc);
      }
      if (suits_packed_kernel<T>(rows, cols, depth)) {
        return packed_gemm(rows, cols, depth, a, a.at(i, q), b, b.at(q, j), out, ldc);
      }
    }
    blas_gemm(rows, cols, depth, a, a.at(i, q), b, b.at(q, j), out, ldc);
  }
}

// The whole of gemm_batched for the types that BLAS computes in. A single product is a batch of one: batched
// and single products are cut in the same way and have the same bits.
template <class T>
void run(int64_t batch, const int64_t* a_offset, const int64_t* b_offset, const int64_t* c_offset, int64_t m, int64_t n,
         int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t b_row, int64_t b_col, T* c,
         int64_t ldc) {
  for (int64_t extent : {m, n, k}) to_blas(extent);
  if (batch == 0 || m == 0 || n == 0) return;
  if (k == 0) {
    for (int64_t i = 0; i < batch; ++i) {
      for (int64_t r = 0; r < m; ++r) std::fill_n(c + c_offset[i] + r * ldc, n, T(0));
    }
    return;
  }
  if (n == 1 && ldc == 1 && m > 1) {  // a column is a row of the transposed product, and rows are faster
    return run(batch, b_offset, a_offset, c_offset, n, m, k, b, b_col, b_row, a, a_col, a_row, c, m);
  }
  if constexpr (has_small_kernel<T>) {
    if (is_small(m, n, k)) {
      const bool serial = work_of(m, n, k) * batch < kSerialWork;
      const int64_t group = serial ? batch : units_per_tile(work_of(m, n, k));
      parallel_for(ceil_div(batch, group), [&](int64_t tile) {
        const int64_t end = std::min(batch, (tile + 1) * group);
        for (int64_t i = tile * group; i < end; ++i) {
          small_gemm(m, n, k, a + a_offset[i], a_row, a_col, b + b_offset[i], b_row, b_col, c + c_offset[i], ldc);
        }
      });
      return;
    }
  }
  if (m == 1) ldc = std::max(ldc, n);

  // Operands that BLAS cannot take are packed; a batch that shares one operand packs it once.
  Operand<T> oa, ob;
  Scratch<T> a_scratch, b_scratch;
  auto prepare = [batch](const T* data, const int64_t* offset, int64_t rows, int64_t cols, int64_t row, int64_t col,
                         Operand<T>& out, Scratch<T>& scratch) -> int64_t {
    if (as_operand(data, rows, cols, row, col, out)) return -1;
    const bool shared = std::all_of(offset, offset + batch, [&](int64_t o) { return o == offset[0]; });
    T* to = scratch.resize((shared ? 1 : batch) * rows * cols);
    for (int64_t i = 0; i < (shared ? 1 : batch); ++i)
      pack(data + offset[i], rows, cols, row, col, to + i * rows * cols);
    out = {to, cols, false};
    return shared ? 0 : rows * cols;
  };
  const int64_t a_step = prepare(a, a_offset, m, k, a_row, a_col, oa, a_scratch);
  const int64_t b_step = prepare(b, b_offset, k, n, b_row, b_col, ob, b_scratch);
  for (int64_t extent : {oa.ld, ob.ld, ldc}) to_blas(extent);  // here, before any tile runs

  const Plan p = plan_for(m, n, k);
  auto item = [&](int64_t i, int64_t tile, T* partial) {
    Operand<T> ai = oa, bi = ob;
    ai.data += a_step < 0 ? a_offset[i] : i * a_step;
    bi.data += b_step < 0 ? b_offset[i] : i * b_step;
    run_tile(p, tile, m, n, k, ai, bi, c + c_offset[i], ldc, partial);
  };

  if (p.chunks > 1) {
    Scratch<T> scratch;
    T* partial = scratch.resize(p.chunks * m * n);
    for (int64_t i = 0; i < batch; ++i) {
      parallel_for(p.tiles(), [&](int64_t tile) { item(i, tile, partial); });
      for (int64_t r = 0; r < m; ++r) {
        T* to = c + c_offset[i] + r * ldc;
        std::copy_n(partial + r * n, n, to);
        for (int64_t s = 1; s < p.chunks; ++s) {
          const T* from = partial + (s * m + r) * n;
          for (int64_t j = 0; j < n; ++j) to[j] += from[j];
        }
      }
    }
    return;
  }
  const int64_t units = batch * p.tiles();
  const bool serial = work_of(m, n, k) * batch < kSerialWork;
  const int64_t group = serial ? units : units_per_tile(work_of(p.tile_m, p.tile_n, k));
  parallel_for(ceil_div(units, group), [&](int64_t tile) {
    const int64_t end = std::min(units, (tile + 1) * group);
    for (int64_t u = tile * group; u < end; ++u) item(u / p.tiles(), u % p.tiles(), nullptr);
  });
}

template <class H>
constexpr int kCode = static_cast<int>(std::is_same_v<H, Half> ? DType::Float16 : DType::BFloat16);
constexpr int kFloatCode = static_cast<int>(DType::Float32);

// Rows of elements that lie side by side, by the vector kernels; rows that follow each other are one.
void convert_rows(CastFn cast, int64_t rows, int64_t cols, const char* from, int64_t from_row, int64_t from_size,
                  char* to, int64_t to_row, int64_t to_size) {
  if (from_row == cols && to_row == cols) cols *= std::exchange(rows, 1);
  constexpr int64_t kElements = 1 << 14;  // of a tile
  const int64_t pieces = ceil_div(cols, kElements),
                group = std::max<int64_t>(1, kElements / std::max<int64_t>(1, cols));
  parallel_for(ceil_div(rows, group) * pieces, [&](int64_t tile) {
    const int64_t first = tile % pieces * kElements, count = std::min(kElements, cols - first);
    const int64_t begin = tile / pieces * group, end = std::min(rows, begin + group);
    for (int64_t i = begin; i < end; ++i)
      cast(to + (i * to_row + first) * to_size, from + (i * from_row + first) * from_size, count);
  });
}

// A matrix in float32, in the order in which it lies.
struct Widened {
  int64_t row, col;
  template <class H>
  Widened(const H* src, int64_t rows, int64_t cols, int64_t src_row, int64_t src_col, float* dst) {
    const bool transposed = src_col != 1 && src_row == 1;
    row = transposed ? 1 : cols;
    col = transposed ? rows : 1;
    if (!transposed && src_col != 1) {
      pack(src, rows, cols, src_row, src_col, dst);
      return;
    }
    if (transposed) std::swap(rows, cols), std::swap(src_row, src_col);
    convert_rows(kernels().cast[kCode<H>][kFloatCode], rows, cols, reinterpret_cast<const char*>(src), src_row,
                 sizeof(H), reinterpret_cast<char*>(dst), cols, sizeof(float));
  }
};

// float16 and bfloat16: everything is converted to float32, computed, and rounded once.
template <class H>
void run_half(int64_t batch, const int64_t* a_offset, const int64_t* b_offset, const int64_t* c_offset, int64_t m,
              int64_t n, int64_t k, const H* a, int64_t a_row, int64_t a_col, const H* b, int64_t b_row, int64_t b_col,
              H* c, int64_t ldc) {
  if (batch == 0 || m == 0 || n == 0) return;
  Scratch<float> a_scratch, b_scratch, c_scratch;
  Scratch<int64_t> offsets;
  float* fa = a_scratch.resize(batch * m * k);
  float* fb = b_scratch.resize(batch * k * n);
  float* fc = c_scratch.resize(batch * m * n);
  int64_t* o = offsets.resize(3 * batch);
  int64_t a_strides[2] = {k, 1}, b_strides[2] = {n, 1};
  for (int64_t i = 0; i < batch; ++i) {
    o[i] = i * m * k;
    o[batch + i] = i * k * n;
    o[2 * batch + i] = i * m * n;
    const Widened wide_a(a + a_offset[i], m, k, a_row, a_col, fa + o[i]);
    const Widened wide_b(b + b_offset[i], k, n, b_row, b_col, fb + o[batch + i]);
    a_strides[0] = wide_a.row, a_strides[1] = wide_a.col;
    b_strides[0] = wide_b.row, b_strides[1] = wide_b.col;
  }
  run<float>(batch, o, o + batch, o + 2 * batch, m, n, k, fa, a_strides[0], a_strides[1], fb, b_strides[0],
             b_strides[1], fc, n);
  for (int64_t i = 0; i < batch; ++i)
    convert_rows(kernels().cast[kFloatCode][kCode<H>], m, n, reinterpret_cast<const char*>(fc + i * m * n), n,
                 sizeof(float), reinterpret_cast<char*>(c + c_offset[i]), ldc, sizeof(H));
}

}  // namespace

void gemm_batched(DType dtype, int64_t batch, const int64_t* a_offset, const int64_t* b_offset, const int64_t* c_offset,
                  int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, void* c, int64_t ldc) {
  auto call = [&]<class T>(T, auto run_typed) {
    run_typed(batch, a_offset, b_offset, c_offset, m, n, k, static_cast<const T*>(a.data), a.row, a.col,
              static_cast<const T*>(b.data), b.row, b.col, static_cast<T*>(c), ldc);
  };
  switch (dtype) {
    case DType::Float32: return call(float{}, run<float>);
    case DType::Float64: return call(double{}, run<double>);
    case DType::Complex64: return call(std::complex<float>{}, run<std::complex<float>>);
    case DType::Complex128: return call(std::complex<double>{}, run<std::complex<double>>);
    case DType::Float16: return call(Half{}, run_half<Half>);
    case DType::BFloat16: return call(BFloat{}, run_half<BFloat>);
    default: throw std::invalid_argument(std::string("matrix product: not defined for ") + name_of(dtype));
  }
}

void gemm(DType dtype, int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, void* c, int64_t ldc) {
  // The general path below takes the same kernel for these, but costs as much again as the smallest of them.
  if (m > 0 && n > 1 && k > 0 && is_small(m, n, k)) {
    if (dtype == DType::Float32) {
      return small_gemm(m, n, k, static_cast<const float*>(a.data), a.row, a.col, static_cast<const float*>(b.data),
                        b.row, b.col, static_cast<float*>(c), ldc);
    }
    if (dtype == DType::Float64) {
      return small_gemm(m, n, k, static_cast<const double*>(a.data), a.row, a.col, static_cast<const double*>(b.data),
                        b.row, b.col, static_cast<double*>(c), ldc);
    }
  }
  const int64_t zero = 0;
  gemm_batched(dtype, 1, &zero, &zero, &zero, m, n, k, a, b, c, ldc);
}

namespace {

template <class T>
void run_one(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, T* c, int64_t ldc, bool add) {
  const T *pa = static_cast<const T*>(a.data), *pb = static_cast<const T*>(b.data);
  if (k == 0) {
    for (int64_t r = 0; r < m && !add; ++r) std::fill_n(c + r * ldc, n, T(0));
    return;
  }
  if (!add && is_small(m, n, k)) return small_gemm(m, n, k, pa, a.row, a.col, pb, b.row, b.col, c, ldc);
  Operand<T> oa, ob;
  if (!as_operand(pa, m, k, a.row, a.col, oa) || !as_operand(pb, k, n, b.row, b.col, ob)) {
    throw std::invalid_argument("gemm_tile: neither stride of an operand is 1");
  }
  blas_gemm(m, n, k, oa, pa, ob, pb, c, std::max(ldc, n), add ? T(1) : T(0));
}

}  // namespace

void gemm_tile(DType dtype, int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, void* c, int64_t ldc,
               bool add) {
  if (m == 0 || n == 0) return;
  if (dtype == DType::Float32) return run_one(m, n, k, a, b, static_cast<float*>(c), ldc, add);
  run_one(m, n, k, a, b, static_cast<double*>(c), ldc, add);
}

void init_blas() { scipy_openblas_set_num_threads(1); }

}  // namespace wengert
