// Shared by the ops on rows: packed rows along the last axes, processed in tiles of whole rows.
#pragma once
#include <algorithm>

#include "../threads.h"
#include "../value.h"
#include "op.h"

namespace wengert {

inline void require_floating(const Op& op, const Type& x) {
  if (!is_floating(x.dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(), "takes real floating numbers, got " + to_string(x) + "; cast it first");
  }
}

inline int64_t rows_of_tile(int64_t cols) { return std::max<int64_t>(1, 8192 / cols); }

// f(first row, number of rows, tile) by tiles.
template <class F>
void for_rows(int64_t rows, int64_t rows_per_tile, F&& f) {
  parallel_for((rows + rows_per_tile - 1) / rows_per_tile, [&](int64_t tile) {
    f(tile * rows_per_tile, std::min(rows_per_tile, rows - tile * rows_per_tile), tile);
  });
}

struct Rows {
  int64_t rows = 1, cols = 1;
  Rows(const Value* x, int axes) {
    for (int i = 0; i < x->ndim; ++i) (i < x->ndim - axes ? rows : cols) *= x->shape[i];
  }
  // f(first row, number of rows) by tiles
  template <class F>
  void for_tiles(F&& f) const {
    if (cols == 0) return;
    for_rows(rows, rows_of_tile(cols), [&](int64_t first, int64_t n, int64_t) { f(first, n); });
  }
};

}  // namespace wengert
