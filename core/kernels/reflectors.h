// Householder reflectors in blocks, applied to many vectors by matrix products.
//
// LAPACK finds reflectors H₀, H₁, … whose product is unitary. The product of a block of them is I − Vᵀ T conj(V), where
// the rows of V are the vectors of the reflectors and T is triangular (the compact WY form of Schreiber and Van Loan,
// 1989). Vectors are rows here as well, because LAPACK's columns are rows of our memory.
#pragma once
#include <cstdint>
#include <memory>

namespace wengert {

template <class T>
class Reflectors {
 public:
  static constexpr int64_t kBlock = 32;

  // `count` reflectors of vectors with `size` elements, none of them known yet.
  Reflectors(int64_t size, int64_t count);

  int64_t blocks() const { return (count_ + kBlock - 1) / kBlock; }
  int64_t begin(int64_t block) const { return block * kBlock; }
  int64_t end(int64_t block) const { return count_ < (block + 1) * kBlock ? count_ : (block + 1) * kBlock; }

  // Takes the reflectors of a block as LAPACK left them: the vector of reflector i in row i of `a`, beyond a 1 at i.
  void set(int64_t block, const T* a, int64_t lda, const T* tau);

  // Rows x := (H x) for each of `rows` vectors, where H is the product of the block's reflectors, or its adjoint.
  // Only elements from begin(block) on are read and written.
  void apply(int64_t block, bool adjoint, int64_t rows, T* x, int64_t ldx) const;

 private:
  int64_t size_, count_;
  std::unique_ptr<T[]> vectors_;  // V: count × size
  std::unique_ptr<T[]> factors_;  // −Tᵀ of each block: kBlock × kBlock
};

// How many vectors make a tile: enough for matrix products to be fast, and a few tiles for the threads.
constexpr int64_t vectors_per_tile(int64_t vectors) { return vectors <= 128 ? 32 : vectors <= 512 ? 64 : 128; }

// to[columns × rows] (rows `ldt` apart) := from[rows × columns]ᵀ, in blocks that stay in the cache.
template <class T>
void transpose(int64_t rows, int64_t columns, const T* from, int64_t ldf, T* to, int64_t ldt) {
  constexpr int64_t kSide = 16;
  for (int64_t i0 = 0; i0 < rows; i0 += kSide) {
    const int64_t i1 = i0 + kSide < rows ? i0 + kSide : rows;
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = i0; i < i1; ++i) to[j * ldt + i] = from[i * ldf + j];
    }
  }
}

}  // namespace wengert
