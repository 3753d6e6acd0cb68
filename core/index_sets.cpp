#include "index_sets.h"

#include <algorithm>
#include <string>

#include "error.h"

namespace wengert {

namespace {

void require_room(const IndexSets& made, int64_t more, int64_t most) {
  if (static_cast<int64_t>(made.columns.size()) + more > most)
    fail(ErrorKind::range, "sparsity", "the pattern has more than " + std::to_string(most) + " entries");
}

// The union of many rows: each index is marked with the row that has it, then they are sorted.
class Merger {
 public:
  explicit Merger(int32_t n_columns) : seen_(n_columns, -1) {}

  void append(IndexSets& made, int32_t row, IndexSetsView sets, const int32_t* first, const int32_t* last) {
    const size_t start = made.columns.size();
    for (; first != last; ++first)
      for (const int32_t* c = sets.begin(*first); c != sets.end(*first); ++c) {
        if (seen_[*c] == row) continue;
        seen_[*c] = row;
        made.columns.push_back(*c);
      }
    std::sort(made.columns.begin() + start, made.columns.end());
  }

 private:
  std::vector<int32_t> seen_;
};

}  // namespace

IndexSets unite(IndexSetsView a, IndexSetsView b, int64_t most) {
  IndexSets made;
  made.starts.reserve(a.n_rows + 1);
  for (int32_t i = 0; i < a.n_rows; ++i) {
    require_room(made, std::max(a.size(i), b.size(i)), most);
    std::set_union(a.begin(i), a.end(i), b.begin(i), b.end(i), std::back_inserter(made.columns));
    made.starts.push_back(static_cast<int32_t>(made.columns.size()));
  }
  return made;
}

IndexSets product(IndexSetsView which, IndexSetsView sets, int32_t n_columns, int64_t most) {
  IndexSets made;
  made.starts.reserve(which.n_rows + 1);
  Merger merger(n_columns);
  for (int32_t i = 0; i < which.n_rows; ++i) {
    const int32_t *first = which.begin(i), *last = which.end(i);
    int32_t longest = 0;
    for (const int32_t* k = first; k != last; ++k) longest = std::max(longest, sets.size(*k));
    require_room(made, longest, most);
    if (last - first == 1)
      made.columns.insert(made.columns.end(), sets.begin(*first), sets.end(*first));
    else if (last - first == 2)
      std::set_union(sets.begin(first[0]), sets.end(first[0]), sets.begin(first[1]), sets.end(first[1]),
                     std::back_inserter(made.columns));
    else if (last - first > 2)
      merger.append(made, i, sets, first, last);
    made.starts.push_back(static_cast<int32_t>(made.columns.size()));
  }
  return made;
}

IndexSets transposed(IndexSetsView sets, int32_t n_columns) {
  IndexSets made;
  const int32_t n = sets.starts[sets.n_rows];
  made.starts.assign(n_columns + 1, 0);
  made.columns.resize(n);
  for (int32_t k = 0; k < n; ++k) ++made.starts[sets.columns[k] + 1];
  for (int32_t j = 0; j < n_columns; ++j) made.starts[j + 1] += made.starts[j];
  std::vector<int32_t> next(made.starts.begin(), made.starts.end() - 1);
  for (int32_t i = 0; i < sets.n_rows; ++i)
    for (const int32_t* c = sets.begin(i); c != sets.end(i); ++c) made.columns[next[*c]++] = i;
  return made;
}

}  // namespace wengert
