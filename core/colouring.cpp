#include "colouring.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace wengert {

namespace {

// A set of colours, 64 to a word, as long as its largest one needs.
class Colours {
 public:
  void add(int32_t c) {
    const size_t word = c / 64;
    if (word >= words_.size()) words_.resize(word + 1);
    words_[word] |= uint64_t{1} << c % 64;
  }
  void add(const Colours& others) {
    if (others.words_.size() > words_.size()) words_.resize(others.words_.size());
    for (size_t k = 0; k < others.words_.size(); ++k) words_[k] |= others.words_[k];
  }
  int32_t first_free() const {
    for (size_t k = 0; k < words_.size(); ++k)
      if (~words_[k]) return static_cast<int32_t>(64 * k) + std::countr_one(words_[k]);
    return static_cast<int32_t>(64 * words_.size());
  }
  void clear() { words_.clear(); }

 private:
  std::vector<uint64_t> words_;
};

// The steps that star colouring may take: each vertex looks at the neighbours of its neighbours.
constexpr int64_t kSteps = 50'000'000, kStepsPerEntry = 100;

// The vertices of most neighbours, without which the others are coloured in the steps that there are.
std::vector<uint8_t> find_hubs(IndexSetsView graph) {
  std::vector<int32_t> by_degree(graph.n_rows);
  std::iota(by_degree.begin(), by_degree.end(), 0);
  std::sort(by_degree.begin(), by_degree.end(), [&](int32_t a, int32_t b) { return graph.size(a) < graph.size(b); });
  int64_t steps = std::max(kSteps, kStepsPerEntry * graph.starts[graph.n_rows]);
  std::vector<uint8_t> hub(graph.n_rows);
  for (int32_t v : by_degree) {
    steps -= static_cast<int64_t>(graph.size(v)) * graph.size(v);
    hub[v] = steps < 0;
  }
  return hub;
}

class StarColouring {
 public:
  explicit StarColouring(IndexSetsView graph)
      : graph_(graph), hub_(find_hubs(graph)), colour_(graph.n_rows, kNone), around_(graph.n_rows) {}

  std::vector<int32_t> run(const int32_t* order) {
    for (int32_t k = 0; k < graph_.n_rows; ++k)
      if (!hub_[order[k]]) give_colour(order[k]);
    // A colour that occurs once is on no path twice: hubs were no obstacle.
    int32_t next = n_colours_;
    for (int32_t v = 0; v < graph_.n_rows; ++v)
      if (hub_[v]) colour_[v] = next++;
    return std::move(colour_);
  }

 private:
  static constexpr int32_t kNone = -1;

  void give_colour(int32_t v) {
    forbidden_.clear();
    for (const int32_t* w = graph_.begin(v); w != graph_.end(v); ++w)
      if (counts(v, *w)) forbid(v, *w);
    const int32_t c = colour_[v] = forbidden_.first_free();
    n_colours_ = std::max(n_colours_, c + 1);
    for (const int32_t* w = graph_.begin(v); w != graph_.end(v); ++w) {
      std::vector<int32_t>& near = around_[*w];
      if (static_cast<int32_t>(near.size()) <= c) near.resize(c + 1);
      ++near[c];
    }
  }

  // What v must not be because of its neighbour w: the same, or the second of two colours on a path v - w - x - y with
  // w and y alike, or u - v - w - x with u and w alike.
  void forbid(int32_t v, int32_t w) {
    const int32_t a = colour_[w];
    forbidden_.add(a);
    const bool inside = around(v, a) > 1;
    for (const int32_t* x = graph_.begin(w); x != graph_.end(w); ++x)
      if (*x != v && counts(w, *x) && (inside || around(*x, a) > 1)) forbidden_.add(colour_[*x]);
  }

  int32_t around(int32_t v, int32_t c) const { return c < static_cast<int32_t>(around_[v].size()) ? around_[v][c] : 0; }

  bool counts(int32_t v, int32_t neighbour) const { return neighbour != v && colour_[neighbour] != kNone; }

  IndexSetsView graph_;
  std::vector<uint8_t> hub_;
  std::vector<int32_t> colour_;
  std::vector<std::vector<int32_t>> around_;  // how many neighbours, and itself, have each colour
  Colours forbidden_;
  int32_t n_colours_ = 0;
};

}  // namespace

std::vector<int32_t> colour_columns(IndexSetsView rows, IndexSetsView columns, const int32_t* order) {
  std::vector<int32_t> colour(columns.n_rows);
  std::vector<Colours> taken(rows.n_rows);
  Colours forbidden;
  for (int32_t k = 0; k < columns.n_rows; ++k) {
    const int32_t j = order[k];
    forbidden.clear();
    for (const int32_t* i = columns.begin(j); i != columns.end(j); ++i) forbidden.add(taken[*i]);
    colour[j] = forbidden.first_free();
    for (const int32_t* i = columns.begin(j); i != columns.end(j); ++i) taken[*i].add(colour[j]);
  }
  return colour;
}

std::vector<int32_t> star_colouring(IndexSetsView symmetric, const int32_t* order) {
  return StarColouring(symmetric).run(order);
}

}  // namespace wengert
