// Sets of indices in rows: the patterns of sparse matrices, and what derivatives do with them.
#pragma once
#include <cstdint>
#include <vector>

namespace wengert {

// Rows of ascending column indices: row i has columns[starts[i]] to columns[starts[i + 1] - 1].
struct IndexSets {
  std::vector<int32_t> starts{0}, columns;
};

// The same in memory of others.
struct IndexSetsView {
  const int32_t* starts;
  const int32_t* columns;
  int32_t n_rows;

  IndexSetsView(const int32_t* s, const int32_t* c, int32_t n) : starts(s), columns(c), n_rows(n) {}
  IndexSetsView(const IndexSets& x)  // NOLINT: a view of it
      : starts(x.starts.data()), columns(x.columns.data()), n_rows(static_cast<int32_t>(x.starts.size()) - 1) {}
  int32_t size(int32_t row) const { return starts[row + 1] - starts[row]; }
  const int32_t* begin(int32_t row) const { return columns + starts[row]; }
  const int32_t* end(int32_t row) const { return columns + starts[row + 1]; }
};

// Each row of one together with that row of the other; both have as many rows. Throws Error where the result has more
// than `most` indices.
IndexSets unite(IndexSetsView a, IndexSetsView b, int64_t most);

// Row i is the union of the rows of `sets` that row i of `which` names: the pattern of a product of matrices.
// `n_columns`: all indices in `sets` are below it.
IndexSets product(IndexSetsView which, IndexSetsView sets, int32_t n_columns, int64_t most);

// The pattern of the transposed matrix.
IndexSets transposed(IndexSetsView sets, int32_t n_columns);

}  // namespace wengert
