#include "resample.h"

#include <algorithm>
#include <cmath>

#include "../threads.h"

namespace wengert {

namespace {

constexpr int64_t kTileElements = 16384;

// Where result j lies between elements of x.
double position(Resampling kind, int64_t j, int64_t n, int64_t size, double ratio) {
  const double at = static_cast<double>(j), last = static_cast<double>(n - 1);
  if (kind == Resampling::corners) return size > 1 ? at * (last / static_cast<double>(size - 1)) : 0.0;
  if (ratio == 0.0) ratio = static_cast<double>(n) / static_cast<double>(size);
  if (kind == Resampling::linear) return std::max((at + 0.5) * ratio - 0.5, 0.0);
  // In single precision, as PyTorch computes it: the ratio's rounding decides which of two neighbours is taken.
  return static_cast<double>(std::floor(static_cast<float>(j) * static_cast<float>(ratio)));
}

template <class F>
void for_tiles(int64_t units, int64_t elements, F&& f) {
  const int64_t group = std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, elements));
  parallel_for((units + group - 1) / group, [&](int64_t tile) {
    for (int64_t u = tile * group; u < std::min(units, (tile + 1) * group); ++u) f(u);
  });
}

// A matrix in the type that is computed in. If each row has one or two entries, all are given two, one being two
// halves, and there is no branch; if it has a single 1, elements are taken.
template <class T>
struct Entries {
  const SparseRows& m;
  std::vector<T> weight;
  std::vector<int64_t> pair_index;
  std::vector<T> pair_weight;
  bool takes;

  explicit Entries(const SparseRows& rows) : m(rows), weight(rows.weight.begin(), rows.weight.end()) {
    takes = static_cast<int64_t>(weight.size()) == m.rows();
    for (int64_t i = 0; takes && i < m.rows(); ++i) takes = m.start[i] == i && weight[i] == T(1);
    if (!takes) fill_pairs();
  }

  void fill_pairs() {
    for (int64_t i = 0; i < m.rows(); ++i) {
      const int64_t first = m.start[i], count = m.start[i + 1] - first;
      if (count != 1 && count != 2) {
        pair_index.clear();
        return;
      }
      for (int64_t k = 0; k < 2; ++k) {
        pair_index.push_back(m.index[first + k % count]);
        pair_weight.push_back(count == 1 ? weight[first] / 2 : weight[first + k]);
      }
    }
  }

  void line(const T* x, T* y) const {
    const int64_t n = m.rows();
    if (takes) {
      for (int64_t i = 0; i < n; ++i) y[i] = x[m.index[i]];
      return;
    }
    if (!pair_index.empty()) {
      const int64_t* at = pair_index.data();
      const T* w = pair_weight.data();
      for (int64_t i = 0; i < n; ++i) y[i] = w[2 * i] * x[at[2 * i]] + w[2 * i + 1] * x[at[2 * i + 1]];
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      T sum = 0;
      for (int64_t k = m.start[i]; k < m.start[i + 1]; ++k) sum += weight[k] * x[m.index[k]];
      y[i] = sum;
    }
  }

  // Adds entries [k, k + N) of the rows of x to y, or starts it with them.
  template <int N>
  void add(const T* x, T* y, int64_t k, int64_t inner, bool start) const {
    const T* from[N];
    T w[N];
    for (int e = 0; e < N; ++e) {
      from[e] = x + m.index[k + e] * inner;
      w[e] = weight[k + e];
    }
    auto sum = [&](int64_t j) __attribute__((always_inline)) {
      T s = w[0] * from[0][j];
      for (int e = 1; e < N; ++e) s += w[e] * from[e][j];
      return s;
    };
    if (start) {
      for (int64_t j = 0; j < inner; ++j) y[j] = sum(j);
    } else {
      for (int64_t j = 0; j < inner; ++j) y[j] += sum(j);
    }
  }

  void row(const T* x, T* __restrict y, int64_t i, int64_t inner) const {
    const int64_t first = m.start[i], end = m.start[i + 1];
    if (first == end) std::fill_n(y, inner, T(0));
    for (int64_t k = first; k < end;) {
      const bool start = k == first;
      switch (std::min<int64_t>(4, end - k)) {
        case 1: add<1>(x, y, k, inner, start); break;
        case 2: add<2>(x, y, k, inner, start); break;
        case 3: add<3>(x, y, k, inner, start); break;
        default: add<4>(x, y, k, inner, start); break;
      }
      k += std::min<int64_t>(4, end - k);
    }
  }
};

}  // namespace

SparseRows SparseRows::transposed(int64_t columns) const {
  SparseRows t;
  t.start.assign(static_cast<size_t>(columns) + 1, 0);
  for (int64_t k : index) ++t.start[k + 1];
  for (int64_t k = 0; k < columns; ++k) t.start[k + 1] += t.start[k];
  t.index.resize(index.size());
  t.weight.resize(index.size());
  std::vector<int64_t> next(t.start.begin(), t.start.end() - 1);
  for (int64_t i = 0; i < rows(); ++i) {
    for (int64_t k = start[i]; k < start[i + 1]; ++k) {
      const int64_t to = next[index[k]]++;
      t.index[to] = i;
      t.weight[to] = weight[k];
    }
  }
  return t;
}

namespace {

// Means over [⌊i n / size⌋, ⌈(i + 1) n / size⌉).
SparseRows window_means(int64_t n, int64_t size) {
  SparseRows m;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t low = i * n / size, high = ((i + 1) * n + size - 1) / size;
    for (int64_t k = low; k < high; ++k) m.index.push_back(k);
    m.weight.resize(m.index.size(), 1.0 / static_cast<double>(high - low));
    m.start.push_back(static_cast<int64_t>(m.index.size()));
  }
  return m;
}

}  // namespace

SparseRows resampling(Resampling kind, int64_t n, int64_t size, double ratio) {
  if (kind == Resampling::windows) return window_means(n, size);
  SparseRows m;
  for (int64_t j = 0; j < size; ++j) {
    const double at = std::min(position(kind, j, n, size, ratio), static_cast<double>(n - 1));
    const int64_t low = static_cast<int64_t>(at);
    const double share = at - static_cast<double>(low);
    m.index.push_back(low);
    m.weight.push_back(1.0 - share);
    if (share > 0.0) {
      m.index.push_back(low + 1);
      m.weight.push_back(share);
    }
    m.start.push_back(static_cast<int64_t>(m.index.size()));
  }
  return m;
}

template <class T>
void multiply_axis(const SparseRows& m, const T* x, T* y, int64_t outer, int64_t n, int64_t inner) {
  const Entries<T> entries(m);
  const int64_t rows = m.rows();
  if (inner == 1) {
    for_tiles(outer, rows, [&](int64_t o) { entries.line(x + o * n, y + o * rows); });
  } else {
    for_tiles(outer * rows, inner,
              [&](int64_t u) { entries.row(x + u / rows * n * inner, y + u * inner, u % rows, inner); });
  }
}

template void multiply_axis(const SparseRows&, const float*, float*, int64_t, int64_t, int64_t);
template void multiply_axis(const SparseRows&, const double*, double*, int64_t, int64_t, int64_t);

}  // namespace wengert
