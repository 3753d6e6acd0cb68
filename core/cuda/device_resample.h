// Sums along one axis with weights that sizes alone decide (kernels/resample.h).
#pragma once
#include "device_product.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// y[o, i, j] = Σₖ weight[k] · x[o, index[k], j] over the entries k of row i, four at a time. Words: y, x, starts of
// rows, index, weight (double), elements of y, rows, elements along the axis of x, elements behind it.
template <DType D>
WENGERT_INLINE void resample(const int64_t* words, int64_t block_number) {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  const int64_t at = global_thread(block_number), rows = words[6], inner = words[8];
  if (at >= words[5]) return;
  const int64_t line = quotient(at, inner), j = at - line * inner, o = quotient(line, rows), i = line - o * rows;
  const S* x = address<const S>(words[1]) + o * words[7] * inner + j;
  const int64_t *start = address<const int64_t>(words[2]), *index = address<const int64_t>(words[3]);
  const double* weight = address<const double>(words[4]);
  A y = {};
  for (int64_t k = start[i]; k < start[i + 1]; k += 4) {
    A sum = static_cast<A>(weight[k]) * factor<A>(x[index[k] * inner]);
    for (int64_t e = k + 1; e < k + 4 && e < start[i + 1]; ++e)
      sum = sum + static_cast<A>(weight[e]) * factor<A>(x[index[e] * inner]);
    y = k == start[i] ? sum : y + sum;
  }
  address<S>(words[0])[at] = store_as<S>(y);
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
