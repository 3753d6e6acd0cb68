// What the ops on rows share: packed rows along the last axes, worked on in tiles of whole rows.
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

struct Rows {
  static constexpr int64_t kTileElements = 8192;
  int64_t rows = 1, cols = 1;
  Rows(const Value* x, int axes) {
    for (int i = 0; i < x->ndim; ++i) (i < x->ndim - axes ? rows : cols) *= x->shape[i];
  }
  // f(first row, number of rows) by tiles
  template <class F>
  void for_tiles(F&& f) const {
    if (cols == 0) return;
    const int64_t group = std::max<int64_t>(1, kTileElements / cols);
    parallel_for((rows + group - 1) / group,
                 [&](int64_t tile) { f(tile * group, std::min(group, rows - tile * group)); });
  }
};

}  // namespace wengert
