// Divide and conquer (Cuppen 1981; Gu and Eisenstat 1995), as LAPACK's stedc does it, with the merges of one level side
// by side and the large ones in tiles. Where two halves meet, the matrix is torn: it is the halves' direct sum plus a
// matrix of rank one, so from the halves' eigenvectors the whole's follow by the roots of a secular equation. LAPACK
// deflates (laed2), finds single roots (laed4), and solves the smallest parts (stedc).
#include "tridiagonal.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "../threads.h"
#include "lapack.h"

namespace wengert {

namespace {

constexpr int64_t kLeaf = 32;  // rows that are not torn

int to_int(int64_t n) { return static_cast<int>(n); }

// Two neighbouring parts of the matrix, to be made one; everything points to where the first part begins.
template <class R>
struct Merge {
  int size, first;  // rows of both, and of the first part
  R rho;            // the element that was torn out
  R *d, *z;         // eigenvalues, and eigenvectors as rows of the whole z
  int* order;
  R *poles, *weights, *joints, *kept;             // of the secular equation; kept: the vectors that take part, packed
  int *by_type, *scratch;                         // scratch: three times `size`
  int roots = 0, upper = 0, both = 0, lower = 0;  // after deflation: all; in the first part only, in both, …
};

template <class R>
class DivideAndConquer {
 public:
  DivideAndConquer(int64_t n, R* d, R* e, R* z, int* order)
      : n_(to_int(n)), d_(d), e_(e), z_(z), order_(order), reals_(new R[n * n + 3 * n]), integers_(new int[4 * n]) {
    bounds_ = {0, n_};
    while (n_ > kLeaf * (to_int(bounds_.size()) - 1)) {
      std::vector<int> finer;
      for (size_t i = 0; i + 1 < bounds_.size(); ++i) {
        finer.insert(finer.end(), {bounds_[i], bounds_[i] + (bounds_[i + 1] - bounds_[i]) / 2});
      }
      finer.push_back(n_);
      bounds_ = finer;
    }
  }

  int run() {
    std::fill_n(z_, static_cast<int64_t>(n_) * n_, R(0));
    tear();
    parallel_for(parts(), [&](int64_t i) { solve_leaf(bounds_[i], bounds_[i + 1]); });
    while (parts() > 1 && failed_ == 0) merge_pairs();
    return failed_;
  }

 private:
  int64_t parts() const { return static_cast<int64_t>(bounds_.size()) - 1; }

  void tear() {
    for (size_t i = 1; i + 1 < bounds_.size(); ++i) {
      const int at = bounds_[i];
      R& joint = e_[at - 1];
      const R tiny =
          std::numeric_limits<R>::epsilon() / 2 * std::sqrt(std::abs(d_[at - 1])) * std::sqrt(std::abs(d_[at]));
      if (std::abs(joint) <= tiny) joint = 0;
      d_[at - 1] -= std::abs(joint);
      d_[at] -= std::abs(joint);
    }
  }

  void solve_leaf(int begin, int end) {
    const int size = end - begin;
    std::vector<R> work(1 + 4 * size + size * size);
    std::vector<int> integers(3 + 5 * size);
    R* z = z_ + static_cast<int64_t>(begin) * n_ + begin;
    note(lapack::stedc(size, d_ + begin, e_ + begin, z, n_, work.data(), to_int(work.size()), integers.data(),
                       to_int(integers.size())));
    for (int i = 0; i < size; ++i) order_[begin + i] = i + 1;
  }

  void merge_pairs() {
    std::vector<Merge<R>> merges;
    std::vector<int> coarser = {0};
    for (size_t i = 0; i + 2 < bounds_.size(); i += 2) {
      const int64_t begin = bounds_[i], joint = bounds_[i + 1], end = bounds_[i + 2];
      R* reals = reals_.get() + 3 * n_;
      int* integers = integers_.get() + 4 * begin;
      merges.push_back({.size = to_int(end - begin),
                        .first = to_int(joint - begin),
                        .rho = e_[joint - 1],
                        .d = d_ + begin,
                        .z = z_ + begin * n_ + begin,
                        .order = order_ + begin,
                        .poles = reals_.get() + begin,
                        .weights = reals_.get() + n_ + begin,
                        .joints = reals_.get() + 2 * n_ + begin,
                        .kept = reals + begin * n_,
                        .by_type = integers,
                        .scratch = integers + (end - begin)});
      coarser.push_back(to_int(end));
    }
    const auto each = [&](auto&& f) {  // f(merge, begin, end) for tiles of its roots
      const int largest = std::max_element(merges.begin(), merges.end(), [](const auto& a, const auto& b) {
                            return a.size < b.size;
                          })->size;
      const int step = std::clamp((largest / 4 + 15) / 16 * 16, 32, 128), tiles = (largest + step - 1) / step;
      parallel_for(tiles * static_cast<int64_t>(merges.size()), [&](int64_t tile) {
        Merge<R>& m = merges[tile / tiles];
        const int begin = to_int(tile % tiles) * step, end = std::min(m.roots, begin + step);
        if (begin < end) f(m, begin, end);
      });
    };
    parallel_for(static_cast<int64_t>(merges.size()), [&](int64_t i) { deflate(merges[i]); });
    each([&](Merge<R>& m, int begin, int end) { find_roots(m, begin, end); });
    each([&](Merge<R>& m, int begin, int end) { find_weights(m, begin, end); });
    each([&](Merge<R>& m, int begin, int end) { find_vectors(m, begin, end); });
    for (Merge<R>& m : merges) sort(m);
    bounds_ = coarser;
  }

  void deflate(Merge<R>& m) {
    for (int i = 0; i < m.size; ++i) {
      m.joints[i] = m.z[static_cast<int64_t>(i) * n_ + (i < m.first ? m.first - 1 : m.first)];
    }
    int *index = m.scratch, *positions = index + m.size, *types = positions + m.size;
    note(lapack::laed2(&m.roots, m.size, m.first, m.d, m.z, n_, m.order, &m.rho, m.joints, m.poles, m.weights, m.kept,
                       index, m.by_type, positions, types));
    m.upper = types[0], m.both = types[1], m.lower = types[2];
  }

  // Row j of z becomes poles − root j, which laed4 finds without cancellation.
  void find_roots(Merge<R>& m, int begin, int end) {
    for (int j = begin; j < end; ++j) {
      note(lapack::laed4(m.roots, j + 1, m.poles, m.weights, row(m, j), m.rho, m.d + j));
    }
  }

  // The weights for which the computed roots are exact ones, which makes the vectors orthogonal (Gu and Eisenstat).
  void find_weights(Merge<R>& m, int begin, int end) {
    if (m.roots <= 2) return;  // laed4 has found vectors instead
    R* exact = m.joints;       // no longer needed
    for (int i = begin; i < end; ++i) exact[i] = row(m, i)[i];
    for (int j = 0; j < m.roots; ++j) {
      const R* gaps = row(m, j);
      const R pole = m.poles[j];
      for (int i = begin; i < std::min(j, end); ++i) exact[i] *= gaps[i] / (m.poles[i] - pole);
      for (int i = std::max(begin, j + 1); i < end; ++i) exact[i] *= gaps[i] / (m.poles[i] - pole);
    }
    for (int i = begin; i < end; ++i) exact[i] = std::copysign(std::sqrt(-exact[i]), m.weights[i]);
  }

  // The vectors in terms of those of the parts, then in full.
  void find_vectors(Merge<R>& m, int begin, int end) {
    const int k = m.roots, columns = end - begin;
    const std::unique_ptr<R[]> memory(new R[(columns + 1) * k]);
    R *vectors = memory.get(), *vector = vectors + columns * k;
    for (int j = begin; j < end; ++j) {
      const R* gaps = row(m, j);
      R *to = vectors + (j - begin) * k, length = 1;
      if (k <= 2) {
        std::copy_n(gaps, k, vector);
      } else {
        for (int i = 0; i < k; ++i) vector[i] = m.joints[i] / gaps[i];
        length = norm(k, vector);
      }
      for (int i = 0; i < k; ++i) to[i] = vector[m.by_type[i] - 1] / length;
    }
    const int rest = m.size - m.first, in_first = m.upper + m.both, in_second = m.both + m.lower;
    const R* kept = m.kept + m.first * in_first;
    combine(columns, m.first, in_first, vectors, k, m.kept, row(m, begin));
    combine(columns, rest, in_second, vectors + m.upper, k, kept, row(m, begin) + m.first);
  }

  void combine(int rows, int columns, int terms, const R* vectors, int k, const R* kept, R* out) {
    if (terms == 0) {
      for (int i = 0; i < rows; ++i) std::fill_n(out + static_cast<int64_t>(i) * n_, columns, R(0));
    } else {
      lapack::gemm(CblasNoTrans, CblasNoTrans, rows, columns, terms, vectors, k, kept, columns, R(0), out, n_);
    }
  }

  // Roots ascend, and the deflated eigenvalues after them descend.
  void sort(Merge<R>& m) {
    int low = 0, high = m.size - 1;
    for (int i = 0; i < m.size; ++i) {
      const bool root = m.roots > 0 && low < m.roots && (high < m.roots || m.d[low] <= m.d[high]);
      m.order[i] = m.roots == 0 ? i + 1 : (root ? low++ : high--) + 1;
    }
  }

  // Weights that are too small were deflated, so no element is near overflow; lanes, for the compiler to use.
  static R norm(int n, const R* x) {
    constexpr int kLanes = 8;
    R sums[kLanes] = {}, sum = 0;
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) sums[lane] += x[i + lane] * x[i + lane];
    }
    for (; i < n; ++i) sum += x[i] * x[i];
    for (R s : sums) sum += s;
    return std::sqrt(sum);
  }

  R* row(const Merge<R>& m, int j) const { return m.z + static_cast<int64_t>(j) * n_; }
  void note(int info) {
    if (info) failed_ = info;
  }

  int n_;
  R *d_, *e_, *z_;
  int* order_;
  std::unique_ptr<R[]> reals_;
  std::unique_ptr<int[]> integers_;
  std::vector<int> bounds_;  // where parts begin, and n
  std::atomic<int> failed_ = 0;
};

}  // namespace

// Deflation compares eigenvalues with 1, so the largest element is brought near 1, by a power of 2.
template <class R>
int tridiagonal_eigenvectors(int64_t n, R* d, R* e, R* z, int* order) {
  R largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max({largest, std::abs(d[i]), i + 1 < n ? std::abs(e[i]) : R(0)});
  int exponent = 0;
  std::frexp(largest, &exponent);
  for (int64_t i = 0; i < n; ++i) d[i] = std::ldexp(d[i], -exponent);
  for (int64_t i = 0; i + 1 < n; ++i) e[i] = std::ldexp(e[i], -exponent);
  const int info = DivideAndConquer<R>(n, d, e, z, order).run();
  for (int64_t i = 0; i < n; ++i) {
    d[i] = std::ldexp(d[i], exponent);
    --order[i];
  }
  // Rounding may put equal eigenvalues of two parts out of order.
  const auto less = [d](int i, int j) { return d[i] < d[j]; };
  if (!std::is_sorted(order, order + n, less)) std::stable_sort(order, order + n, less);
  return info;
}

template int tridiagonal_eigenvectors(int64_t, float*, float*, float*, int*);
template int tridiagonal_eigenvectors(int64_t, double*, double*, double*, int*);

}  // namespace wengert
