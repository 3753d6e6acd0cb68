// The inner loops of bringing a symmetric matrix to tridiagonal form, compiled once per instruction set from
// vector_symmetric.cpp. Lengths are multiples of kSymmetricStep: rows are padded with zeros.
#pragma once
#include <cstdint>

namespace wengert {

inline constexpr int64_t kSymmetricStep = 16;

template <class T>
struct SymmetricRows {
  // In one pass over rows i of a: aᵢⱼ −= vᵢ wⱼ + wᵢ vⱼ, and yᵢ = Σⱼ aᵢⱼ xⱼ of what results; v_rows and w_rows begin
  // with the elements that belong to the first row. Each row's bits do not depend on how many are given.
  void (*update_multiply)(int64_t rows, int64_t n, T* a, int64_t lda, const T* v_rows, const T* w_rows, const T* v,
                          const T* w, const T* x, T* y);
  T (*dot)(int64_t n, const T* x, const T* y);
};

const SymmetricRows<float>& symmetric_rows(float);
const SymmetricRows<double>& symmetric_rows(double);

}  // namespace wengert
