// Householder reflectors in blocks, and the QR factorisation by them.
#include "reflectors.h"

#include <algorithm>

#include "../threads.h"
#include "linear_algebra.h"
#include "linear_algebra_small.h"

namespace wengert {

namespace {

int to_int(int64_t n) { return static_cast<int>(n); }

}  // namespace

template <class T>
Reflectors<T>::Reflectors(int64_t size, int64_t count)
    : size_(size), count_(count), vectors_(new T[count * size]), factors_(new T[blocks() * kBlock * kBlock]) {}

// T follows from the products of the vectors with one another: column by column, T₀ⱼ = −τⱼ T₀₀ (V vⱼ*), Tⱼⱼ = τⱼ.
template <class T>
void Reflectors<T>::set(int64_t block, const T* a, int64_t lda, const T* tau) {
  const int64_t first = begin(block), width = end(block) - first;
  T *v = vectors_.get() + first * size_ + first, *t = factors_.get() + first * kBlock;
  for (int64_t i = 0; i < width; ++i) {
    T* row = v + i * size_;
    const T* from = a + (first + i) * lda + first;
    std::fill(row, row + i, T(0));
    row[i] = 1;
    std::copy(from + i + 1, from + size_ - first, row + i + 1);
  }
  T products[kBlock * kBlock];
  lapack::gemm(CblasNoTrans, CblasConjTrans, to_int(width), to_int(width), to_int(size_ - first), v, to_int(size_), v,
               to_int(size_), T(0), products, to_int(width));
  for (int64_t j = 0; j < width; ++j) {  // row j of −Tᵀ
    T* row = t + j * width;
    std::fill_n(row, width, T(0));
    for (int64_t l = 0; l < j; ++l) {
      const T factor = small::multiply(tau[first + j], products[j * width + l]);
      for (int64_t i = 0; i <= l; ++i) row[i] -= small::multiply(factor, t[l * width + i]);
    }
    row[j] = -tau[first + j];
  }
}

template <class T>
void Reflectors<T>::apply(int64_t block, bool adjoint, int64_t rows, T* x, int64_t ldx) const {
  const int64_t first = begin(block);
  const int width = to_int(end(block) - first), length = to_int(size_ - first), n = to_int(rows);
  const T *v = vectors_.get() + first * size_ + first, *t = factors_.get() + first * kBlock;
  const auto op = adjoint ? CblasConjTrans : CblasNoTrans;
  const std::unique_ptr<T[]> scratch(new T[2 * rows * width]);
  T *along = scratch.get(), *change = along + rows * width;
  lapack::gemm(CblasNoTrans, CblasConjTrans, n, width, length, x + first, to_int(ldx), v, to_int(size_), T(0), along,
               width);
  lapack::gemm(CblasNoTrans, op, n, width, width, along, width, t, width, T(0), change, width);
  lapack::gemm(CblasNoTrans, CblasNoTrans, n, length, width, change, width, v, to_int(size_), T(1), x + first,
               to_int(ldx));
}

namespace {

// Factors a block of columns, given as rows of `a`.
template <class T>
int factor_block(Reflectors<T>& h, int64_t block, int64_t size, T* a, T* tau) {
  const int64_t first = h.begin(block), width = h.end(block) - first;
  T work[Reflectors<T>::kBlock];
  T* corner = a + first * size + first;
  const int info = lapack::geqr2(to_int(size - first), to_int(width), corner, to_int(size), tau + first, work);
  if (info == 0) h.set(block, a, size, tau);
  return info;
}

// Row i of q's transpose is Q e_i, in which only the blocks up to that of i take part.
template <class T>
void form_q(const Reflectors<T>& h, int64_t m, int64_t columns, T* q) {
  const int64_t step = vectors_per_tile(columns), tiles = (columns + step - 1) / step;
  parallel_for(tiles, [&](int64_t tile) {
    const int64_t begin = (tiles - 1 - tile) * step, end = std::min(columns, begin + step);  // most work first
    const std::unique_ptr<T[]> rows(new T[(end - begin) * m]());
    for (int64_t i = begin; i < end; ++i) rows[(i - begin) * m + i] = 1;
    for (int64_t block = h.blocks() - 1; block >= 0; --block) {
      const int64_t from = std::max(begin, h.begin(block));
      if (from < end) h.apply(block, false, end - from, rows.get() + (from - begin) * m, m);
    }
    transpose(end - begin, m, rows.get(), m, q + begin, columns);
  });
}

}  // namespace

// On a transposed copy, whose rows are columns of a. While the trailing columns are updated by one block of reflectors,
// the first tile goes on to factor the next block.
template <class T>
int qr(int64_t m, int64_t n, bool complete, const T* a, T* q, T* r) {
  const int64_t k = std::min(m, n), columns = complete ? m : k;
  if (k == 0) {
    for (int64_t i = 0; i < m * columns; ++i) q[i] = T(i / columns == i % columns ? 1 : 0);
    std::fill_n(r, columns * n, T(0));
    return 0;
  }
  Reflectors<T> h(m, k);
  const std::unique_ptr<T[]> memory(new T[m * n + k]);
  T *rows = memory.get(), *tau = rows + m * n;
  transpose(m, n, a, n, rows, m);
  if (const int info = factor_block(h, 0, m, rows, tau)) return info;
  const int64_t step = vectors_per_tile(n);
  int info = 0;
  for (int64_t block = 0; block < h.blocks(); ++block) {
    const int64_t next = block + 1, split = next < h.blocks() ? h.end(next) : h.end(block);
    parallel_for(1 + (n - split + step - 1) / step, [&](int64_t tile) {
      const int64_t begin = tile == 0 ? h.end(block) : split + (tile - 1) * step;
      const int64_t end = tile == 0 ? split : std::min(n, begin + step);
      if (begin < end) h.apply(block, true, end - begin, rows + begin * m, m);
      if (tile == 0 && next < h.blocks()) info |= factor_block(h, next, m, rows, tau);
    });
  }
  transpose(n, columns, rows, m, r, n);
  for (int64_t i = 0; i < columns; ++i) std::fill_n(r + i * n, std::min(i, n), T(0));
  form_q(h, m, columns, q);
  return info;
}

#define WENGERT_INSTANCES(T)    \
  template class Reflectors<T>; \
  template int qr(int64_t, int64_t, bool, const T*, T*, T*);
WENGERT_INSTANCES(float)
WENGERT_INSTANCES(double)
WENGERT_INSTANCES(lapack::c64)
WENGERT_INSTANCES(lapack::c128)
#undef WENGERT_INSTANCES

}  // namespace wengert
