// The inner loops of bringing a symmetric matrix to tridiagonal form, for one instruction set; see symmetric_rows.h.
#include "symmetric_rows.h"
#include "vector_lanes.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

template <class L>
[[gnu::always_inline]] inline typename L::T sum_of(typename L::Vec x) {
  typename L::T lanes[L::kWidth];
  L::store(lanes, x);
  for (int half = L::kWidth / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Several rows share what is loaded of v, w and x.
template <class L, int Rows, class T = typename L::T>
[[gnu::always_inline]] inline void update_multiply_rows(int64_t n, T* a, int64_t lda, const T* v_rows, const T* w_rows,
                                                        const T* v, const T* w, const T* x, T* y) {
  typename L::Vec sum[Rows], v_row[Rows], w_row[Rows];
  for (int i = 0; i < Rows; ++i) {
    const T minus_v = -v_rows[i], minus_w = -w_rows[i];
    sum[i] = L::zero();
    v_row[i] = L::broadcast(&minus_v);
    w_row[i] = L::broadcast(&minus_w);
  }
  for (int64_t j = 0; j < n; j += L::kWidth) {
    const auto vj = L::load(v + j), wj = L::load(w + j), xj = L::load(x + j);
    for (int i = 0; i < Rows; ++i) {
      T* at = a + i * lda + j;
      const auto updated = L::multiply_add(w_row[i], vj, L::multiply_add(v_row[i], wj, L::load(at)));
      L::store(at, updated);
      sum[i] = L::multiply_add(updated, xj, sum[i]);
    }
  }
  for (int i = 0; i < Rows; ++i) y[i] = sum_of<L>(sum[i]);
}

template <class L, class T = typename L::T>
void update_multiply(int64_t rows, int64_t n, T* a, int64_t lda, const T* v_rows, const T* w_rows, const T* v,
                     const T* w, const T* x, T* y) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    update_multiply_rows<L, 4>(n, a + i * lda, lda, v_rows + i, w_rows + i, v, w, x, y + i);
  }
  for (; i < rows; ++i) update_multiply_rows<L, 1>(n, a + i * lda, lda, v_rows + i, w_rows + i, v, w, x, y + i);
}

// Several sums are faster, and more exact: how far a reflector is from orthogonal depends on the sum of its squares.
template <class L, class T = typename L::T>
T dot(int64_t n, const T* x, const T* y) {
  constexpr int kSums = 4;
  typename L::Vec sums[kSums];
  for (auto& sum : sums) sum = L::zero();
  int64_t j = 0;
  for (; j + kSums * L::kWidth <= n; j += kSums * L::kWidth) {
    for (int s = 0; s < kSums; ++s) {
      const int64_t at = j + s * L::kWidth;
      sums[s] = L::multiply_add(L::load(x + at), L::load(y + at), sums[s]);
    }
  }
  for (; j < n; j += L::kWidth) sums[0] = L::multiply_add(L::load(x + j), L::load(y + j), sums[0]);
  return sum_of<L>(L::add(L::add(sums[0], sums[1]), L::add(sums[2], sums[3])));
}

template <class L>
constexpr SymmetricRows<typename L::T> kRows = {update_multiply<L>, dot<L>};

}  // namespace

const SymmetricRows<float>& symmetric_rows_f32();
const SymmetricRows<double>& symmetric_rows_f64();
const SymmetricRows<float>& symmetric_rows_f32() { return kRows<F32>; }
const SymmetricRows<double>& symmetric_rows_f64() { return kRows<F64>; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
