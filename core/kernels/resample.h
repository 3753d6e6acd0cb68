// Another number of elements along one axis: each result is a sum of few elements with weights that only the sizes
// decide: nearest neighbours, linear interpolation, or means of windows that cover the axis, as PyTorch defines them.
#pragma once
#include <cstdint>
#include <vector>

namespace wengert {

enum class Resampling : uint8_t { nearest, linear, corners, windows, count };

// Row i of a matrix: entries [start[i], start[i + 1]).
struct SparseRows {
  std::vector<int64_t> start = {0}, index;
  std::vector<double> weight;
  int64_t rows() const { return static_cast<int64_t>(start.size()) - 1; }
  SparseRows transposed(int64_t columns) const;
};

// The matrix from n to `size` elements. `ratio`: positions of x per position of the result; 0: n / size.
SparseRows resampling(Resampling kind, int64_t n, int64_t size, double ratio);

// y[o, i, j] = Σₖ m[i, k] · x[o, k, j] for packed x of outer × n × inner.
template <class T>
void multiply_axis(const SparseRows& m, const T* x, T* y, int64_t outer, int64_t n, int64_t inner);

}  // namespace wengert
