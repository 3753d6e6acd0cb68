#include "attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "../threads.h"
#include "attention_rows.h"
#include "gemm.h"

namespace wengert {

namespace {

// Queries and keys of one block of scores. The forward pass has one such block and is fastest with a large one; the
// derivatives have two, which stay in the second-level cache beside the rows they are made of. Where later keys are
// hidden, a smaller block meets fewer of them.
struct BlockSizes {
  int64_t queries, keys;
};
constexpr BlockSizes kForwardBlock{256, 512}, kSmallBlock{64, 512}, kDerivativeBlock{128, 256};
constexpr int64_t kWhole = 16;  // elements that vectors of every instruction set divide
constexpr int64_t kMostQueries = 256, kMostKeys = 512;
constexpr int64_t kTasks = 16;                 // blocks are smaller, and keys are cut, where few batches make fewer
constexpr double kTaskWork = 1 << 18;          // multiply-adds that a task is worth handing out for
constexpr float kWordUnit = 1.0f / (1 << 24);  // as random_uniform makes float32 of a word

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class T>
struct Rows {
  const T* data;
  const int64_t* offset;
  int64_t row;
  explicit Rows(const BatchedRows& r) : data(static_cast<const T*>(r.data)), offset(r.offset), row(r.row) {}
  const T* at(int64_t b, int64_t i) const { return data + offset[b] + i * row; }
  MatrixView from(int64_t b, int64_t i) const { return {at(b, i), row, 1}; }
  MatrixView transposed_from(int64_t b, int64_t i) const { return {at(b, i), 1, row}; }
};

template <class T>
using Block = std::unique_ptr<T[]>;

template <class T>
Block<T> block(int64_t elements) {
  return Block<T>(new T[elements]);  // not initialised: every element is written before it is read
}

// Rows [i, i + rows) and columns [j, j + cols) of the scores of batch b.
struct Tile {
  int64_t b, i, rows, j, cols;
};

template <class T>
class Kernel {
 public:
  Kernel(const AttentionProblem& problem, BlockSizes sizes) : p(problem), q(p.q), k(p.k), v(p.v), blocks(sizes) {}

  static constexpr DType dtype = sizeof(T) == 4 ? DType::Float32 : DType::Float64;
  const AttentionProblem& p;
  const Rows<T> q, k, v;
  const BlockSizes blocks;
  const AttentionRows<T>& loops = attention_rows(T{});

  int64_t query_block() const { return std::clamp<int64_t>(p.queries, 1, blocks.queries); }
  int64_t key_block() const { return std::clamp<int64_t>(p.keys, 1, blocks.keys); }
  // One past the last key that a query below `end` sees.
  int64_t keys_of(int64_t end) const { return p.causal ? std::min(p.keys, end) : p.keys; }

  static void multiply(int64_t m, int64_t n, int64_t depth, MatrixView a, MatrixView b, T* c, int64_t ldc, bool add) {
    gemm_tile(dtype, m, n, depth, a, b, c, ldc, add);
  }

  // Rows of queries, packed and multiplied by the scale.
  void scaled_queries(const Rows<T>& from, int64_t b, int64_t i, int64_t rows, T* out) const {
    const T scale = static_cast<T>(p.scale);
    for (int64_t r = 0; r < rows; ++r) loops.scale(out + r * p.depth, from.at(b, i + r), scale, p.depth);
  }

  void scores(const Tile& t, const T* queries, T* x) const {
    multiply(t.rows, t.cols, p.depth, {queries, p.depth, 1}, k.transposed_from(t.b, t.j), x, t.cols, false);
    if (p.mask.data != nullptr) apply_mask(t, x);
  }

  // How many keys of a tile its row r sees; what the others have for scores is not defined.
  int64_t seen(const Tile& t, int64_t r) const {
    return p.causal ? std::clamp<int64_t>(t.i + r + 1 - t.j, 0, t.cols) : t.cols;
  }

  // exp(scores − lse) of the rows.
  void weights(const Tile& t, const T* queries, const T* lse, T* x) const {
    scores(t, queries, x);
    for (int64_t r = 0; r < t.rows; ++r, x += t.cols) exp_row(x, lse[t.b * p.queries + t.i + r], seen(t, r), t.cols);
  }

  // exp(x − shift) of the keys that are seen, 0 of the others.
  void exp_row(T* x, T shift, int64_t seen, int64_t cols) const {
    loops.exp(x, shift, std::min(cols, ceil_div(seen, kWhole) * kWhole));
    std::fill(x + seen, x + cols, T(0));
  }

  // For every weight 0, or 1 / (1 − dropout) if it is kept.
  void dropout_factors(const Tile& t, T* out) const {
    const float limit = static_cast<float>(p.dropout);
    const T kept = static_cast<T>(1.0 / (1.0 - p.dropout));
    uint32_t words[kMostKeys];
    for (int64_t r = 0; r < t.rows; ++r, out += t.cols) {
      random_words(words, (t.b * p.queries + t.i + r) * p.keys + t.j, t.cols, p.stream);
      for (int64_t c = 0; c < t.cols; ++c) {
        out[c] = static_cast<float>(words[c] >> 8) * kWordUnit >= limit ? kept : T(0);
      }
    }
  }

 private:
  static constexpr T kHidden = -std::numeric_limits<T>::infinity();

  void apply_mask(const Tile& t, T* x) const {
    const AttentionMask& m = p.mask;
    for (int64_t r = 0; r < t.rows; ++r, x += t.cols) {
      const int64_t first = m.offset[t.b] + (t.i + r) * m.row + t.j * m.col;
      if (m.boolean) {
        const auto* seen = static_cast<const uint8_t*>(m.data) + first;
        for (int64_t c = 0; c < t.cols; ++c) x[c] = seen[c * m.col] != 0 ? x[c] : kHidden;
      } else {
        const auto* bias = static_cast<const T*>(m.data) + first;
        for (int64_t c = 0; c < t.cols; ++c) x[c] += bias[c * m.col];
      }
    }
  }
};

// Calls f(batch, first query, queries) for every block of queries, in tasks that are worth it.
template <class T, class F>
void for_query_blocks(const Kernel<T>& kernel, F&& f) {
  const AttentionProblem& p = kernel.p;
  const int64_t rows = kernel.query_block(), blocks = ceil_div(p.queries, rows), units = p.batch * blocks;
  const double work = static_cast<double>(rows) * static_cast<double>(p.keys) * static_cast<double>(p.depth + p.width);
  const int64_t group = std::max<int64_t>(1, static_cast<int64_t>(kTaskWork / std::max(work, 1.0)));
  parallel_for(ceil_div(units, group), [&](int64_t task) {
    for (int64_t u = task * group; u < std::min(units, (task + 1) * group); ++u) {
      const int64_t i = u % blocks * rows;
      f(u / blocks, i, std::min(rows, p.queries - i));
    }
  });
}

// The softmax of a block of queries, while its keys come block by block: the largest score so far and the sum of
// exponentials relative to it (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
template <class T>
struct OnlineSoftmax {
  T largest[kMostQueries], sum[kMostQueries];

  explicit OnlineSoftmax(int64_t rows) {
    std::fill_n(largest, rows, -std::numeric_limits<T>::infinity());
    std::fill_n(sum, rows, T(0));
  }

  // Turns a tile of scores into exponentials; what was summed before, `o` too, is brought to the new largest score.
  void add(const Kernel<T>& kernel, const Tile& t, T* x, T* o) {
    const int64_t width = kernel.p.width;
    for (int64_t r = 0; r < t.rows; ++r, x += t.cols, o += width) {
      const int64_t seen = kernel.seen(t, r);
      const T before = largest[r], here = kernel.loops.largest(x, seen);
      const T now = !(here <= before) ? here : before;  // a NaN stays
      const T shift = std::isinf(now) && now < 0 ? T(0) : now;
      largest[r] = now;
      if (t.j > 0) {
        const T factor = std::exp(before - shift);
        sum[r] *= factor;
        if (factor != 1) kernel.loops.scale(o, o, factor, width);
      }
      kernel.exp_row(x, shift, seen, t.cols);
      sum[r] += kernel.loops.sum(x, seen);
    }
  }

  void finish(int64_t rows, int64_t width, T* o, T* lse) const {
    for (int64_t r = 0; r < rows; ++r) {
      const bool nothing = sum[r] == 0;
      const T factor = nothing ? T(0) : T(1) / sum[r];
      for (int64_t c = 0; c < width; ++c) o[r * width + c] = nothing ? T(0) : o[r * width + c] * factor;
      lse[r] = nothing ? T(0) : largest[r] + std::log(sum[r]);
    }
  }
};

template <class T>
void run_forward(const AttentionProblem& p, T* o, T* lse) {
  const bool many = p.batch * ceil_div(p.queries, kForwardBlock.queries) >= kTasks;
  const Kernel<T> kernel(p, many && !p.causal ? kForwardBlock : kSmallBlock);
  for_query_blocks(kernel, [&](int64_t b, int64_t i, int64_t rows) {
    T* to = o + (b * p.queries + i) * p.width;
    const int64_t seen = kernel.keys_of(i + rows), tile = kernel.query_block() * kernel.key_block();
    OnlineSoftmax<T> softmax(rows);
    const Block<T> queries = block<T>(rows * p.depth), x = block<T>(tile), factors = block<T>(p.dropout > 0 ? tile : 0);
    kernel.scaled_queries(kernel.q, b, i, rows, queries.get());
    for (int64_t j = 0; j < seen; j += kernel.blocks.keys) {
      const Tile t{b, i, rows, j, std::min(kernel.blocks.keys, seen - j)};
      kernel.scores(t, queries.get(), x.get());
      softmax.add(kernel, t, x.get(), to);
      if (p.dropout > 0) {
        kernel.dropout_factors(t, factors.get());
        kernel.loops.multiply(x.get(), factors.get(), rows * t.cols);
      }
      kernel.multiply(rows, p.width, t.cols, {x.get(), t.cols, 1}, kernel.v.from(b, j), to, p.width, j > 0);
    }
    softmax.finish(rows, p.width, to, lse + b * p.queries + i);
  });
}

template <class T>
void run_tangent(const AttentionProblem& p, const T* o, const T* lse, const Rows<T>& q_dot, const Rows<T>& k_dot,
                 const Rows<T>& v_dot, T* o_dot, T* lse_dot) {
  const Kernel<T> kernel(p, kDerivativeBlock);
  for_query_blocks(kernel, [&](int64_t b, int64_t i, int64_t rows) {
    T *to = o_dot + (b * p.queries + i) * p.width, *slopes = lse_dot + b * p.queries + i;
    const int64_t seen = kernel.keys_of(i + rows), tile = kernel.query_block() * kernel.key_block();
    const Block<T> queries = block<T>(rows * p.depth), moved = block<T>(rows * p.depth), w = block<T>(tile),
                   w_dot = block<T>(tile), factors = block<T>(p.dropout > 0 ? tile : 0);
    kernel.scaled_queries(kernel.q, b, i, rows, queries.get());
    kernel.scaled_queries(q_dot, b, i, rows, moved.get());
    std::fill_n(slopes, rows, T(0));
    std::fill_n(to, rows * p.width, T(0));
    for (int64_t j = 0; j < seen; j += kernel.blocks.keys) {
      const Tile t{b, i, rows, j, std::min(kernel.blocks.keys, seen - j)};
      const int64_t n = rows * t.cols;
      kernel.weights(t, queries.get(), lse, w.get());
      const MatrixView left{queries.get(), p.depth, 1}, right{moved.get(), p.depth, 1};
      kernel.multiply(rows, t.cols, p.depth, left, k_dot.transposed_from(b, j), w_dot.get(), t.cols, false);
      kernel.multiply(rows, t.cols, p.depth, right, kernel.k.transposed_from(b, j), w_dot.get(), t.cols, true);
      kernel.loops.multiply(w_dot.get(), w.get(), n);
      for (int64_t r = 0; r < rows; ++r) slopes[r] += kernel.loops.sum(w_dot.get() + r * t.cols, t.cols);
      if (p.dropout > 0) {
        kernel.dropout_factors(t, factors.get());
        kernel.loops.multiply(w.get(), factors.get(), n);
        kernel.loops.multiply(w_dot.get(), factors.get(), n);
      }
      kernel.multiply(rows, p.width, t.cols, {w.get(), t.cols, 1}, v_dot.from(b, j), to, p.width, true);
      kernel.multiply(rows, p.width, t.cols, {w_dot.get(), t.cols, 1}, kernel.v.from(b, j), to, p.width, true);
    }
    const T* mean = o + (b * p.queries + i) * p.width;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < p.width; ++c) to[r * p.width + c] -= slopes[r] * mean[r * p.width + c];
  });
}

// One task of the cotangent: some keys of one batch, all of its queries.
template <class T>
class Cotangent {
 public:
  Cotangent(const AttentionProblem& p, const T* lse, const Rows<T>& o_bar, const T* shift)
      : p_(p),
        kernel_(p, kDerivativeBlock),
        lse_(lse),
        o_bar_(o_bar),
        shift_(shift),
        queries_(block<T>(p.queries * p.depth)),
        w_(block<T>(kernel_.query_block() * kernel_.key_block())),
        w_bar_(block<T>(kernel_.query_block() * kernel_.key_block())),
        factors_(block<T>(p.dropout > 0 ? kernel_.query_block() * kernel_.key_block() : 0)) {}

  // Keys [first, end) of batch b. q_bar is what they contribute; k_bar and v_bar are whole.
  void run(int64_t b, int64_t first, int64_t end, T* q_bar, T* k_bar, T* v_bar) {
    kernel_.scaled_queries(kernel_.q, b, 0, p_.queries, queries_.get());
    const int64_t step = kernel_.query_block();
    auto first_query = [&](int64_t j) { return p_.causal ? std::min(p_.queries, j / step * step) : 0; };
    const int64_t blind = first == end ? p_.queries : first_query(first);  // queries that see none of these keys
    std::fill_n(q_bar, blind * p_.depth, T(0));
    for (int64_t j = first; j < end; j += kDerivativeBlock.keys) {
      const int64_t cols = std::min(kDerivativeBlock.keys, end - j);
      const int64_t i0 = first_query(j);
      if (i0 == p_.queries) {  // keys that no query sees
        std::fill_n(k_bar + j * p_.depth, cols * p_.depth, T(0));
        std::fill_n(v_bar + j * p_.width, cols * p_.width, T(0));
      }
      for (int64_t i = i0; i < p_.queries; i += step) {
        tile({b, i, std::min(step, p_.queries - i), j, cols}, q_bar + i * p_.depth, j > first, k_bar + j * p_.depth,
             v_bar + j * p_.width, i > i0);
      }
    }
    const T scale = static_cast<T>(p_.scale);
    kernel_.loops.scale(q_bar, q_bar, scale, p_.queries * p_.depth);
  }

 private:
  // Adds to q_bar, or to k_bar and v_bar, what comes from one tile; the first tile of each is written.
  void tile(const Tile& t, T* q_bar, bool add_q, T* k_bar, T* v_bar, bool add_kv) {
    const int64_t n = t.rows * t.cols;
    const T* queries = queries_.get() + t.i * p_.depth;
    kernel_.weights(t, queries, lse_, w_.get());
    kernel_.multiply(t.rows, t.cols, p_.width, o_bar_.from(t.b, t.i), kernel_.v.transposed_from(t.b, t.j), w_bar_.get(),
                     t.cols, false);
    if (p_.dropout > 0) {
      kernel_.dropout_factors(t, factors_.get());
      kernel_.loops.multiply(w_bar_.get(), factors_.get(), n);
    }
    score_cotangents(t);
    if (p_.dropout > 0) kernel_.loops.multiply(w_.get(), factors_.get(), n);
    const MatrixView w_transposed{w_.get(), 1, t.cols}, bar_transposed{w_bar_.get(), 1, t.cols};
    kernel_.multiply(t.cols, p_.width, t.rows, w_transposed, o_bar_.from(t.b, t.i), v_bar, p_.width, add_kv);
    kernel_.multiply(t.cols, p_.depth, t.rows, bar_transposed, {queries, p_.depth, 1}, k_bar, p_.depth, add_kv);
    kernel_.multiply(t.rows, p_.depth, t.cols, {w_bar_.get(), t.cols, 1}, kernel_.k.from(t.b, t.j), q_bar, p_.depth,
                     add_q);
  }

  // s_bar = w ∘ (w_bar + shift), in the place of w_bar.
  void score_cotangents(const Tile& t) {
    const T* w = w_.get();
    T* bar = w_bar_.get();
    for (int64_t r = 0; r < t.rows; ++r, w += t.cols, bar += t.cols) {
      kernel_.loops.score_bar(bar, w, shift_[t.b * p_.queries + t.i + r], t.cols);
    }
  }

  const AttentionProblem& p_;
  const Kernel<T> kernel_;
  const T* lse_;
  const Rows<T> o_bar_;
  const T* shift_;
  const Block<T> queries_, w_, w_bar_, factors_;
};

// lse_bar − Σ o_bar ∘ o: what the cotangents of all scores of a query have in common.
template <class T>
Block<T> score_shifts(const AttentionProblem& p, const T* o, const Rows<T>& o_bar, const T* lse_bar) {
  Block<T> shift = block<T>(p.batch * p.queries);
  parallel_for(p.batch, [&](int64_t b) {
    for (int64_t i = 0; i < p.queries; ++i) {
      const int64_t row = b * p.queries + i;
      const T *bar = o_bar.at(b, i), *mean = o + row * p.width;
      double along = 0;
      for (int64_t c = 0; c < p.width; ++c) along += static_cast<double>(bar[c]) * static_cast<double>(mean[c]);
      shift[row] = static_cast<T>(static_cast<double>(lse_bar[row]) - along);
    }
  });
  return shift;
}

template <class T>
void run_cotangent(const AttentionProblem& p, const T* o, const T* lse, const Rows<T>& o_bar, const T* lse_bar,
                   T* q_bar, T* k_bar, T* v_bar) {
  const Block<T> shift = score_shifts(p, o, o_bar, lse_bar);
  const int64_t blocks = ceil_div(p.keys, kDerivativeBlock.keys), q_size = p.queries * p.depth;
  const int64_t wanted =
      std::clamp<int64_t>(ceil_div(kTasks, std::max<int64_t>(p.batch, 1)), 1, std::max<int64_t>(blocks, 1));
  const int64_t chunk = std::max<int64_t>(ceil_div(blocks, wanted), 1) * kDerivativeBlock.keys;
  const int64_t chunks = std::max<int64_t>(ceil_div(p.keys, chunk), 1);
  const Block<T> partial = block<T>((chunks - 1) * p.batch * q_size);  // of the first chunk it is the result
  parallel_for(p.batch * chunks, [&](int64_t task) {
    const int64_t b = task / chunks, part = task % chunks, first = part * chunk;
    T* to = part == 0 ? q_bar + b * q_size : partial.get() + ((part - 1) * p.batch + b) * q_size;
    Cotangent<T>(p, lse, o_bar, shift.get())
        .run(b, first, std::min(p.keys, first + chunk), to, k_bar + b * p.keys * p.depth, v_bar + b * p.keys * p.width);
  });
  if (chunks == 1) return;
  parallel_for(p.batch, [&](int64_t b) {
    for (int64_t part = 1; part < chunks; ++part) {
      const T* from = partial.get() + ((part - 1) * p.batch + b) * q_size;
      for (int64_t n = 0; n < q_size; ++n) q_bar[b * q_size + n] += from[n];
    }
  });
}

// Calls f(float{}) or f(double{}).
template <class F>
void typed(const AttentionProblem& p, F&& f) {
  p.dtype == DType::Float32 ? f(float{}) : f(double{});
}

}  // namespace

void attention(const AttentionProblem& p, void* o, void* lse) {
  typed(p, [&]<class T>(T) { run_forward(p, static_cast<T*>(o), static_cast<T*>(lse)); });
}

void attention_tangent(const AttentionProblem& p, const void* o, const void* lse, BatchedRows q_dot, BatchedRows k_dot,
                       BatchedRows v_dot, void* o_dot, void* lse_dot) {
  typed(p, [&]<class T>(T) {
    run_tangent(p, static_cast<const T*>(o), static_cast<const T*>(lse), Rows<T>(q_dot), Rows<T>(k_dot), Rows<T>(v_dot),
                static_cast<T*>(o_dot), static_cast<T*>(lse_dot));
  });
}

void attention_cotangent(const AttentionProblem& p, const void* o, const void* lse, BatchedRows o_bar,
                         const void* lse_bar, void* q_bar, void* k_bar, void* v_bar) {
  typed(p, [&]<class T>(T) {
    run_cotangent(p, static_cast<const T*>(o), static_cast<const T*>(lse), Rows<T>(o_bar),
                  static_cast<const T*>(lse_bar), static_cast<T*>(q_bar), static_cast<T*>(k_bar),
                  static_cast<T*>(v_bar));
  });
}

}  // namespace wengert
