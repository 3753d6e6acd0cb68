// What the words of an attention kernel say. Words: result, second result, log-sum-exp, what belongs to a row (of the
// cotangent: lse_bar − Σ o_bar ∘ o, float or double; of the tangent: o), batch, queries, keys, depth, width, scale,
// causal, dropout, key and counter of the draws, kind of mask, sizes of the batch, then the matrices q, k, v, mask, and
// o_bar or q_dot, k_dot, v_dot.
#pragma once
#include "device_random.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// A batch of matrices, with rows apart and columns packed (of a mask: apart), at these words.
struct AttentionMatrix {
  const int64_t* words;  // address, row, column, strides of the axes of the batch
  template <class S, int kBatchAxes>
  WENGERT_INLINE const S* of(int64_t batch, const int64_t* shape) const {
    return address<const S>(words[0]) + offset_of<kBatchAxes>(batch, shape, words + 3);
  }
  WENGERT_INLINE int64_t row() const { return words[1]; }
  WENGERT_INLINE int64_t column() const { return words[2]; }
};

enum class AttentionMask : int64_t { booleans = 1, numbers = 2, one_boolean = 3 };

template <int kBatchAxes>
struct AttentionCall {
  static constexpr int kMatrixWords = 3 + kBatchAxes;
  enum Operand { kQueries, kKeys, kValues, kMask, kResultBar };  // the numbers of matrices; q_dot is where o_bar is

  const int64_t* words;

  WENGERT_INLINE int64_t batches() const { return words[4]; }
  WENGERT_INLINE int64_t queries() const { return words[5]; }
  WENGERT_INLINE int64_t keys() const { return words[6]; }
  WENGERT_INLINE int64_t depth() const { return words[7]; }
  WENGERT_INLINE int64_t width() const { return words[8]; }
  WENGERT_INLINE double scale() const { return constant<double>(words + 9); }
  WENGERT_INLINE bool causal() const { return words[10] != 0; }
  WENGERT_INLINE double dropout() const { return constant<double>(words + 11); }
  WENGERT_INLINE AttentionMask mask() const { return static_cast<AttentionMask>(words[15]); }
  WENGERT_INLINE const int64_t* shape() const { return words + 16; }
  WENGERT_INLINE AttentionMatrix matrix(int k) const { return {words + 16 + kBatchAxes + k * kMatrixWords}; }
  template <class S>
  WENGERT_INLINE const S* data(int k, int64_t batch) const {
    return matrix(k).template of<S, kBatchAxes>(batch, shape());
  }

  // Of a mask that is one boolean.
  WENGERT_INLINE bool hides_all() const {
    return mask() == AttentionMask::one_boolean && *address<const uint8_t>(matrix(kMask).words[0]) == 0;
  }
  // 0, or 1 / (1 − dropout) if the weight is kept.
  template <class A>
  __noinline__ A kept(int64_t batch, int64_t query, int64_t key) const {
    const int64_t at = (batch * queries() + query) * keys() + key;
    const uint32_t word = philox(words + 10, at / 4, 0).word[at % 4];
    return static_cast<float>(word >> 8) * 0x1p-24f >= static_cast<float>(dropout())
               ? static_cast<A>(1.0 / (1.0 - dropout()))
               : A{};
  }
};

}  // namespace wengert::WENGERT_ISA_NAMESPACE
