// Convolution and the two other parts of its trilinear form (kernels/conv.h), each as a matrix product whose second
// factor is gathered while it is computed. A block makes a tile of 64 by 64 or 32 by 128 elements; where its elements
// lie is worked out once for each column, and once for each step of 16 along the sum.
//
//   y[o, (n, j)] = Σ over (c, tap) of w[o, (c, tap)] · x[n, c, j·stride + tap·dilation − padding]
//   x[c, (n, p)] = Σ over (o, tap) of w[o, c, tap] · y[n, o, (p + padding − tap·dilation) / stride]
//   w[o, (c, tap)] = Σ over (n, j) of y[n, o, j] · x[n, c, j·stride + tap·dilation − padding]
#pragma once
#include "device_pool.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

enum class ConvForm { output, input, weight };

// Words: to, first factor, second factor, bias or 0, batch, groups, input and output channels of one group, then three
// numbers each: sizes of x, of y; elements of a chunk of the sum, chunks. Chunk c of the sum goes to to[c, …].
template <DType D, ConvForm kForm, int kRows, class W>
struct ConvProduct {
  using S = Storage<D>;
  using A = Accumulator<reduction::sum, S>;
  static constexpr int kDepth = 16, kEach = 4;  // a thread makes kEach² elements
  static constexpr int kColumns = kThreads * kEach * kEach / kRows, kAcross = kColumns / kEach;

  struct Place {  // of a column, or of a term of the sum, in the second factor: along each axis, and what comes before
    int64_t before, first;  // `first`: where the term is in a row of the first factor
    int axis[3];
  };

  const int64_t* words;
  static constexpr int64_t taps = W::taps();
  int64_t batch, groups, inputs, outputs, plane_x, plane_y;

  WENGERT_INLINE explicit ConvProduct(const int64_t* w)
      : words(w),
        batch(w[4]),
        groups(w[5]),
        inputs(w[6]),
        outputs(w[7]),
        plane_x(w[8] * w[9] * w[10]),
        plane_y(w[11] * w[12] * w[13]) {}

  WENGERT_INLINE int64_t rows() const { return kForm == ConvForm::input ? inputs : outputs; }
  WENGERT_INLINE int64_t columns() const {
    return kForm == ConvForm::output ? batch * plane_y : kForm == ConvForm::input ? batch * plane_x : inputs * taps;
  }
  WENGERT_INLINE int64_t depth() const {
    return kForm == ConvForm::output ? inputs * taps : kForm == ConvForm::input ? outputs * taps : batch * plane_y;
  }
  WENGERT_INLINE static constexpr int stride(int i) { return static_cast<int>(W::stride(i)); }
  WENGERT_INLINE static constexpr int padding(int i) { return static_cast<int>(W::padding(i)); }
  WENGERT_INLINE static constexpr int dilation(int i) { return static_cast<int>(W::dilation(i)); }

  WENGERT_INLINE Place column(int64_t c, int64_t group) const {
    Place p = {};
    int64_t at[3];
    if constexpr (kForm == ConvForm::weight) {
      const int64_t channel = quotient(c, taps);
      coordinates(c - channel * taps, W::kSizes, at);
      p.before = (group * inputs + channel) * plane_x;
      for (int i = W::kFirst; i < 3; ++i) p.axis[i] = static_cast<int>(at[i]) * dilation(i) - padding(i);
    } else {
      const int64_t plane = kForm == ConvForm::output ? plane_y : plane_x;
      const int64_t n = quotient(c, plane);
      coordinates(c - n * plane, words + (kForm == ConvForm::output ? 11 : 8), at);
      p.before = n * groups * (kForm == ConvForm::output ? inputs * plane_x : outputs * plane_y);
      for (int i = 0; i < 3; ++i)
        p.axis[i] = kForm == ConvForm::output ? static_cast<int>(at[i]) * stride(i) - padding(i)
                                              : static_cast<int>(at[i]) + padding(i);
    }
    return p;
  }
  WENGERT_INLINE Place term(int64_t k, int64_t group) const {
    Place p = {};
    int64_t at[3];
    if constexpr (kForm == ConvForm::weight) {
      const int64_t n = quotient(k, plane_y), place = k - n * plane_y;
      coordinates(place, words + 11, at);
      p.before = n * groups * inputs * plane_x;
      p.first = n * groups * outputs * plane_y + place;
      for (int i = W::kFirst; i < 3; ++i) p.axis[i] = static_cast<int>(at[i]) * stride(i);
    } else {
      const int64_t channel = quotient(k, taps), tap = k - channel * taps;
      coordinates(tap, W::kSizes, at);
      p.before =
          kForm == ConvForm::output ? (group * inputs + channel) * plane_x : (group * outputs + channel) * plane_y;
      p.first = kForm == ConvForm::output ? k : channel * inputs * taps + tap;
      for (int i = 0; i < 3; ++i)
        p.axis[i] = static_cast<int>(at[i]) * (kForm == ConvForm::output ? 1 : -1) * dilation(i);
    }
    return p;
  }
  // Where row m begins in the first factor.
  WENGERT_INLINE int64_t row(int64_t m, int64_t group) const {
    if constexpr (kForm == ConvForm::output) return (group * outputs + m) * inputs * taps;
    if constexpr (kForm == ConvForm::input) return group * outputs * inputs * taps + m * taps;
    return (group * outputs + m) * plane_y;
  }
  WENGERT_INLINE A second(const Place& column, const Place& term) const {
    int at = 0;
#pragma unroll
    for (int i = W::kFirst; i < 3; ++i) {
      int p = column.axis[i] + term.axis[i];
      if constexpr (kForm == ConvForm::input) {
        const int wanted = p, apart = stride(i);
        if (apart != 1) p = wanted / apart;
        if (wanted < 0 || p * apart != wanted) return A{};
      }
      const int size = static_cast<int>(words[(kForm == ConvForm::input ? 11 : 8) + i]);
      if (p < 0 || p >= size) return A{};
      at = at * size + p;
    }
    return factor<A>(address<const S>(words[2])[column.before + term.before + at]);
  }
  // Where column c of the result begins, in packed form, and how far its rows are apart.
  WENGERT_INLINE int64_t result(int64_t c, int64_t group) const {
    if constexpr (kForm == ConvForm::weight) return group * outputs * inputs * taps + c;
    const int64_t n = quotient(c, row_apart());
    return (n * groups + group) * rows() * row_apart() + (c - n * row_apart());
  }
  WENGERT_INLINE int64_t row_apart() const {
    return kForm == ConvForm::weight ? inputs * taps : kForm == ConvForm::output ? plane_y : plane_x;
  }

  WENGERT_INLINE void run(int64_t block_number) const {
    const int64_t m = rows(), n = columns(), across = (n + kColumns - 1) / kColumns, down = (m + kRows - 1) / kRows;
    const int64_t chunk = block_number / (across * down * groups), tile = block_number % (across * down);
    const int64_t group = block_number / (across * down) % groups;
    const int64_t first_row = tile / across * kRows, first_col = tile % across * kColumns;
    const int64_t begin = chunk * words[14], whole = depth(),
                  end = begin + words[14] < whole ? begin + words[14] : whole;
    alignas(16) __shared__ A left[kDepth][kRows + kEach], right[kDepth][kColumns + kEach];
    __shared__ Place terms[kThreads];  // of the next steps: each thread finds one
    const int t = static_cast<int>(threadIdx.x);
    // Each thread brings some rows at one term, and some terms at one column, so that neighbours read neighbours.
    constexpr int kLeft = kRows / kDepth, kRight = kColumns / kDepth, kTermsApart = kThreads / kColumns;
    const int my_term = t % kDepth, my_row = t / kDepth, my_col = t % kColumns, my_depth = t / kColumns;
    const Place my_column = column(first_col + my_col < n ? first_col + my_col : n - 1, group);
    constexpr int kSteps = kThreads / kDepth;
    const auto find_terms = [&](int64_t step) {
      if (begin + step * kDepth + t < end) terms[t] = term(begin + step * kDepth + t, group);
      __syncthreads();
    };
    int64_t row_begin[kLeft];
#pragma unroll
    for (int i = 0; i < kLeft; ++i) {
      const int64_t r = first_row + my_row + kDepth * i;
      row_begin[i] = row(r < m ? r : m - 1, group);
    }
    A a[kLeft], b[kRight];
    const auto fetch = [&](int64_t step) {
      const int64_t left_over = end - begin - step * kDepth;
      const int here_terms = left_over < kDepth ? static_cast<int>(left_over) : kDepth;
      const Place* here = terms + static_cast<int>(step % kSteps) * kDepth;
#pragma unroll
      for (int i = 0; i < kLeft; ++i)
        a[i] = my_term < here_terms ? factor<A>(address<const S>(words[1])[row_begin[i] + here[my_term].first]) : A{};
#pragma unroll
      for (int i = 0; i < kRight; ++i) {
        const int d = my_depth + kTermsApart * i;
        b[i] = d < here_terms ? second(my_column, here[d]) : A{};
      }
    };
    A sum[kEach][kEach] = {};
    const int row_at = t / kAcross * kEach, col_at = t % kAcross * kEach;
    const int64_t steps = (end - begin + kDepth - 1) / kDepth;
    find_terms(0);
    fetch(0);
    for (int64_t step = 0; step < steps; ++step) {
#pragma unroll
      for (int i = 0; i < kLeft; ++i) left[my_term][my_row + kDepth * i] = a[i];
#pragma unroll
      for (int i = 0; i < kRight; ++i) right[my_depth + kTermsApart * i][my_col] = b[i];
      __syncthreads();
      if (step + 1 < steps) {
        if ((step + 1) % kSteps == 0) find_terms(step + 1);
        fetch(step + 1);
      }
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        const auto x = *reinterpret_cast<const Pack<A, kEach>*>(left[d] + row_at);
        const auto y = *reinterpret_cast<const Pack<A, kEach>*>(right[d] + col_at);
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
          for (int j = 0; j < kEach; ++j) sum[i][j] = multiply_add(x.at[i], y.at[j], sum[i][j]);
        }
      }
      __syncthreads();
    }
    store(sum, first_row + row_at, first_col + col_at, group, chunk);
  }

  WENGERT_INLINE void store(const A (&sum)[kEach][kEach], int64_t row_at, int64_t col_at, int64_t group,
                            int64_t chunk) const {
    const int64_t m = rows(), n = columns();
    int64_t column_begin[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) column_begin[j] = result(col_at + j, group);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t r = row_at + i;
      if (r >= m) break;
      A start = {};
      if (words[3]) start = factor<A>(address<const S>(words[3])[group * m + r]);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        if (col_at + j >= n) break;
        const int64_t at = column_begin[j] + r * row_apart();
        const A total = reduction::sum::apply(sum[i][j], start);
        if (words[15] > 1)
          address<A>(words[0])[chunk * groups * m * n + at] = total;
        else
          address<S>(words[0])[at] = store_as<S>(total);
      }
    }
  }
};

template <DType D, ConvForm kForm, int kRows, class W>
WENGERT_INLINE void conv(const int64_t* words, int64_t block_number) {
  ConvProduct<D, kForm, kRows, W>(words).run(block_number);
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
