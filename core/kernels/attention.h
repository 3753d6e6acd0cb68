// softmax(q kᵀ) v and its two derivatives, block by block: the matrix of all scores never exists (Rabe and Staats,
// "Self-attention does not need O(n²) memory", 2021; Dao et al., "FlashAttention", 2022). Blocks depend on the shapes
// only and sums go in a fixed order, so results do not depend on the number of threads.
#pragma once
#include <cstdint>

#include "../dtype.h"
#include "random.h"

namespace wengert {

// One matrix for each batch: `offset[b]` and the distance of rows in elements; columns are packed.
struct BatchedRows {
  const void* data;
  const int64_t* offset;
  int64_t row;
};

// Which keys a query sees: booleans, or numbers added to the scores. Strides in elements, 0 where it is broadcast.
struct AttentionMask {
  const void* data = nullptr;  // null: every query sees every key
  const int64_t* offset = nullptr;
  int64_t row = 0, col = 0;
  bool boolean = true;
};

struct AttentionProblem {
  DType dtype;  // float32 or float64
  int64_t batch, queries, keys, depth, width;
  BatchedRows q, k, v;
  AttentionMask mask;
  double scale;
  bool causal;     // query i sees keys 0 … i
  double dropout;  // the share of the weights that is dropped; the others are scaled by 1 / (1 − dropout)
  RandomStream stream;
};

// o[batch, queries, width] and the logarithm of each row's sum of exponentials, lse[batch, queries]. A query that sees
// no key has o = 0 and lse = 0.
void attention(const AttentionProblem& p, void* o, void* lse);

// With o and lse of the forward pass and weights w = exp(scores − lse): lse_dot = Σ w ∘ scores_dot and
// o_dot = w v_dot + (w ∘ scores_dot) v − lse_dot · o.
void attention_tangent(const AttentionProblem& p, const void* o, const void* lse, BatchedRows q_dot, BatchedRows k_dot,
                       BatchedRows v_dot, void* o_dot, void* lse_dot);

// The transpose of attention_tangent; lse_bar is contiguous.
void attention_cotangent(const AttentionProblem& p, const void* o, const void* lse, BatchedRows o_bar,
                         const void* lse_bar, void* q_bar, void* k_bar, void* v_bar);

}  // namespace wengert
