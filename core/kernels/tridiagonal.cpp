// Divide and conquer (Cuppen 1981; Gu and Eisenstat 1995), as LAPACK's stedc does it, with the merges of one level side
// by side and the large ones in tiles. Where two halves meet, the matrix is torn: it is the halves' direct sum plus a
// matrix of rank one, so from the halves' eigenvectors the whole's follow by the roots of a secular equation. LAPACK
// deflates (laed2) and finds single roots (laed4). The smallest parts are solved by QL steps.
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

constexpr int kLeaf = 32;       // rows that are not torn
constexpr int kMostSteps = 60;  // for one eigenvalue; two are usual
constexpr int kSlow = 6;        // steps after which digits below the rounding of the largest element are given up

int to_int(int64_t n) { return static_cast<int>(n); }

// Divides by the power of 2 that brings the largest element near 1, and returns its exponent.
template <class R>
int bring_near_one(int64_t n, R* d, R* e) {
  R largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max({largest, std::abs(d[i]), i + 1 < n ? std::abs(e[i]) : R(0)});
  int exponent = 0;
  std::frexp(largest, &exponent);
  for (int64_t i = 0; i < n; ++i) d[i] = std::ldexp(d[i], -exponent);
  for (int64_t i = 0; i + 1 < n; ++i) e[i] = std::ldexp(e[i], -exponent);
  return exponent;
}

// Elements beside the diagonal are dropped if they are negligible by the two diagonal elements that they join, so that
// a small part keeps its digits beside a large one (as LAPACK's steqr does); by 1 where that takes too long. No element
// is far above 1.
template <class R>
constexpr R kNegligible = std::numeric_limits<R>::epsilon() / 2;

template <class R>
bool is_negligible(R beside, R d, R next) {
  return std::abs(beside) <= 4 * kNegligible<R> &&
         std::abs(beside) <= kNegligible<R> * std::sqrt(std::abs(d)) * std::sqrt(std::abs(next));
}

// One QL step with an implicit shift on the rows from `low` to `high`, which the vectors follow. The chain of divisions
// and square roots decides the time, and the vectors are rotated in its shadow.
template <class R>
void ql_step(int low, int high, R* d, R* e, R (*vectors)[kLeaf]) {
  constexpr R least = std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon();
  const R slope = (d[low + 1] - d[low]) / (2 * e[low]);
  R bulge = d[high] - d[low] + e[low] / (slope + std::copysign(std::sqrt(slope * slope + 1), slope));
  R sine = 1, cosine = 1, shift = 0;
  for (int i = high - 1; i >= low; --i) {
    const R f = sine * e[i], b = cosine * e[i], squares = f * f + bulge * bulge;
    const R length = squares > least ? std::sqrt(squares) : std::hypot(f, bulge);
    e[i + 1] = length;
    if (length <= least) {  // as good as zero: the matrix has come apart
      d[i + 1] -= shift;
      e[high] = 0;
      return;
    }
    sine = f / length;
    cosine = bulge / length;
    const R g = d[i + 1] - shift, change = (d[i] - g) * sine + 2 * cosine * b;
    shift = sine * change;
    d[i + 1] = g + shift;
    bulge = cosine * change - b;
    R *lower = vectors[i], *upper = vectors[i + 1];
    for (int k = 0; k < kLeaf; ++k) {
      const R x = lower[k], y = upper[k];
      upper[k] = sine * x + cosine * y;
      lower[k] = cosine * x - sine * y;
    }
  }
  d[low] -= shift;
  e[low] = bulge;
  e[high] = 0;
}

// d[n] := the eigenvalues, in any order, vectors := the eigenvectors as rows; n is at most kLeaf. The elements e[n]
// beside the diagonal, of which the last is not used, are destroyed. Not 0 if it does not converge.
template <class R>
int solve_by_ql(int n, R* d, R* e, R (*vectors)[kLeaf]) {
  constexpr R least = std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon();
  const int exponent = bring_near_one(n, d, e);
  for (int i = 0; i < n; ++i) {
    std::fill_n(vectors[i], kLeaf, R(0));
    vectors[i][i] = 1;
  }
  for (int low = 0; low < n; ++low) {
    for (int steps = 0;; ++steps) {
      const R floor = steps < kSlow ? least : kNegligible<R>;
      int high = low;
      while (high + 1 < n && std::abs(e[high]) > floor && !is_negligible(e[high], d[high], d[high + 1])) ++high;
      if (high == low) break;
      if (steps == kMostSteps) return low + 1;
      ql_step(low, high, d, e, vectors);
    }
  }
  for (int i = 0; i < n; ++i) d[i] = std::ldexp(d[i], exponent);
  return 0;
}

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
  // z: rows `ld` apart, all zero
  DivideAndConquer(int64_t n, R* d, R* e, R* z, int64_t ld, int* order)
      : n_(to_int(n)), ld_(to_int(ld)), d_(d), e_(e), z_(z), order_(order) {
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
    tear();
    parallel_for(parts(), [&](int64_t i) { solve_leaf(bounds_[i], bounds_[i + 1]); });
    if (parts() == 1) return failed_;
    reals_.reset(new R[static_cast<int64_t>(n_) * n_ + 3 * n_]);
    integers_.reset(new int[4 * n_]);
    while (parts() > 1 && failed_ == 0) merge_pairs();
    return failed_;
  }

 private:
  int64_t parts() const { return static_cast<int64_t>(bounds_.size()) - 1; }

  void tear() {
    for (size_t i = 1; i + 1 < bounds_.size(); ++i) {
      const int at = bounds_[i];
      const R joint = std::abs(e_[at - 1]);
      d_[at - 1] -= joint;
      d_[at] -= joint;
    }
  }

  void solve_leaf(int begin, int end) {
    const int size = end - begin;
    alignas(64) R vectors[kLeaf][kLeaf];
    R beside[kLeaf];
    std::copy_n(e_ + begin, size - 1, beside);
    note(solve_by_ql(size, d_ + begin, beside, vectors));
    int* order = order_ + begin;
    for (int i = 0; i < size; ++i) {
      std::copy_n(vectors[i], size, z_ + static_cast<int64_t>(begin + i) * ld_ + begin);
      order[i] = i + 1;
    }
    std::sort(order, order + size, [d = d_ + begin](int i, int j) { return d[i - 1] < d[j - 1]; });
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
                        .z = z_ + begin * ld_ + begin,
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
      m.joints[i] = m.z[static_cast<int64_t>(i) * ld_ + (i < m.first ? m.first - 1 : m.first)];
    }
    int *index = m.scratch, *positions = index + m.size, *types = positions + m.size;
    note(lapack::laed2(&m.roots, m.size, m.first, m.d, m.z, ld_, m.order, &m.rho, m.joints, m.poles, m.weights, m.kept,
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
      for (int i = 0; i < rows; ++i) std::fill_n(out + static_cast<int64_t>(i) * ld_, columns, R(0));
    } else {
      lapack::gemm(CblasNoTrans, CblasNoTrans, rows, columns, terms, vectors, k, kept, columns, R(0), out, ld_);
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

  R* row(const Merge<R>& m, int j) const { return m.z + static_cast<int64_t>(j) * ld_; }
  void note(int info) {
    if (info) failed_ = info;
  }

  int n_, ld_;
  R *d_, *e_, *z_;
  int* order_;
  std::unique_ptr<R[]> reals_;
  std::unique_ptr<int[]> integers_;
  std::vector<int> bounds_;  // where parts begin, and n
  std::atomic<int> failed_ = 0;
};

}  // namespace

// Where a negligible element joins two parts, they are problems of their own, each near 1: deflation compares with
// that.
template <class R>
int tridiagonal_eigenvectors(int64_t n, R* d, R* e, R* z, int* order) {
  const int exponent = bring_near_one(n, d, e);
  std::fill_n(z, n * n, R(0));
  for (int64_t begin = 0, end; begin < n; begin = end) {
    end = begin + 1;
    while (end < n && !is_negligible(e[end - 1], d[end - 1], d[end])) ++end;
    const int own = bring_near_one(end - begin, d + begin, e + begin);
    DivideAndConquer<R> part(end - begin, d + begin, e + begin, z + begin * n + begin, n, order + begin);
    if (const int info = part.run()) return info;
    for (int64_t i = begin; i < end; ++i) {
      d[i] = std::ldexp(d[i], own + exponent);
      order[i] += to_int(begin) - 1;
    }
  }
  // Rounding may put equal eigenvalues of two parts out of order.
  const auto less = [d](int i, int j) { return d[i] < d[j]; };
  if (!std::is_sorted(order, order + n, less)) std::stable_sort(order, order + n, less);
  return 0;
}

template int tridiagonal_eigenvectors(int64_t, float*, float*, float*, int*);
template int tridiagonal_eigenvectors(int64_t, double*, double*, double*, int*);

}  // namespace wengert
