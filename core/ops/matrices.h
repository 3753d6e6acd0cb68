// Shared by the linear algebra ops: checks of stacks of matrices, and loops over them.
#pragma once
#include <algorithm>
#include <atomic>
#include <complex>
#include <vector>

#include "../kernels/linear_algebra.h"
#include "../kernels/strided.h"
#include "../threads.h"
#include "check.h"

namespace wengert {

inline constexpr int64_t kLargestMatrix = 32768;  // rows or columns: LAPACK counts elements in 32 bits

inline void require_lapack_dtype(const Op& op, const Type& x) {
  if (is_half(x.dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(),
         "has no routine for " + to_string(x) + "; use astype(float32), and cast the result back");
  }
  if (!is_inexact(x.dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(),
         "takes float32, float64, complex64 or complex128, got " + to_string(x) + "; use astype");
  }
}

inline void require_matrices(const Op& op, const Type& x) {
  require_lapack_dtype(op, x);
  if (x.shape.n < 2) {
    fail(ErrorKind::shape, op.name.c_str(), "takes matrices (at least two axes), got " + to_string(x));
  }
  for (int i = x.shape.n - 2; i < x.shape.n; ++i) {
    const Dim d = x.shape[i];
    if (!d.symbolic() && d.raw > kLargestMatrix) {
      fail(ErrorKind::shape, op.name.c_str(), "matrices may have up to 32768 rows and columns, got " + to_string(x));
    }
  }
}

inline void require_square(const Op& op, const Type& x) {
  require_matrices(op, x);
  if (!(x.shape[x.shape.n - 1] == x.shape[x.shape.n - 2])) {
    fail(ErrorKind::shape, op.name.c_str(), "takes square matrices, got " + to_string(x));
  }
}

inline void require_same_batch(const Op& op, const Type* in, int n, int a, int b) {
  const Dims &x = in[a].shape, &y = in[b].shape;
  bool same = x.n == y.n;
  for (int i = 0; same && i < x.n - 2; ++i) same = x[i] == y[i];
  if (!same) {
    fail(ErrorKind::shape, op.name.c_str(),
         "operands must have the same leading axes, got " + operands(in, n) + "; broadcast them first");
  }
}

// The shape of x with its last `drop` axes replaced.
inline Dims with_last(const Dims& x, int drop, std::initializer_list<Dim> last) {
  Dims d;
  for (int i = 0; i < x.n - drop; ++i) d.push(x[i]);
  for (Dim s : last) d.push(s);
  return d;
}

inline Dim smaller(Dim a, Dim b) { return b < a ? b : a; }

// Calls f.operator()<T>() with the C++ type of a dtype that LAPACK computes in.
template <class F>
void with_lapack_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::Float32: return f.template operator()<float>();
    case DType::Float64: return f.template operator()<double>();
    case DType::Complex64: return f.template operator()<std::complex<float>>();
    default: return f.template operator()<std::complex<double>>();
  }
}

inline int64_t batch_of(const Value* x, int last = 2) {
  int64_t n = 1;
  for (int i = 0; i < x->ndim - last; ++i) n *= x->shape[i];
  return n;
}
inline int64_t rows_of(const Value* x) { return x->shape[x->ndim - 2]; }
inline int64_t columns_of(const Value* x) { return x->shape[x->ndim - 1]; }

inline double cube(double n) { return n * n * n; }

template <class T>
T* data_of(Value* v) {
  return reinterpret_cast<T*>(v->data);
}

inline void copy_to(const Value* x, Value* y) {
  if (x->size) copy_packed(y->data, x->data, x->strides, x->ndim, x->shape, size_of(x->dtype));
}

// A copy that a factorisation may destroy.
inline Ref scratch_copy(const Value* x) {
  Ref copy(empty(x->dtype, x->dims(), Category::workspace));
  copy_to(x, copy.v);
  return copy;
}

// The offset of each matrix of the batch, in elements; the last `last` axes form one matrix.
inline std::vector<int64_t> matrix_offsets(const Value* x, int last) {
  std::vector<int64_t> offsets(static_cast<size_t>(batch_of(x, last)));
  for (size_t b = 0; b < offsets.size(); ++b) {
    int64_t rest = static_cast<int64_t>(b);
    for (int i = x->ndim - last - 1; i >= 0; rest /= x->shape[i--]) offsets[b] += rest % x->shape[i] * x->strides[i];
  }
  return offsets;
}

// out := (a + aᴴ)/2 in the lower triangle, and in the upper one if `both`; a begins at `offset`. In blocks, because
// both triangles are read, and written, in both directions.
template <class T>
void symmetrize(const Value* a, int64_t n, int64_t offset, bool both, T* out) {
  const int64_t row = a->strides[a->ndim - 2], col = a->strides[a->ndim - 1];
  const T* x = reinterpret_cast<const T*>(a->data) + offset;
  constexpr Real<T> half = 0.5;
  constexpr int64_t kBlock = 8;
  for (int64_t i0 = 0; i0 < n; i0 += kBlock) {
    for (int64_t j0 = 0; j0 <= i0; j0 += kBlock) {
      for (int64_t i = i0; i < std::min(n, i0 + kBlock); ++i) {
        for (int64_t j = j0; j < std::min(i + 1, j0 + kBlock); ++j) {
          const T y = half * x[i * row + j * col] + half * lapack::conjugate(x[j * row + i * col]);
          out[i * n + j] = y;
          if (both) out[j * n + i] = lapack::conjugate(y);
        }
      }
    }
  }
}

// Calls f(first, last) for ranges of [0, batch); `work` is about the multiply-adds of one matrix.
template <class F>
void for_matrices(int64_t batch, double work, F&& f) {
  constexpr double kTileWork = 1 << 16, kCallWork = 2000;  // a call of LAPACK costs that much, however small
  const int64_t group = std::max<int64_t>(1, static_cast<int64_t>(kTileWork / (work + kCallWork)));
  parallel_for((batch + group - 1) / group,
               [&](int64_t tile) { f(tile * group, std::min(batch, (tile + 1) * group)); });
}

// A stack of packed matrices to read from; copied only if rows or columns are strided.
class Stack {
 public:
  Stack(Value* x, int last)
      : value_(is_packed(x, last) ? Ref::share(x) : Ref(contiguous(x))), offsets_(matrix_offsets(value_.v, last)) {}
  template <class T>
  const T* at(int64_t i) const {
    return reinterpret_cast<const T*>(value_->data) + offsets_[static_cast<size_t>(i)];
  }

 private:
  static bool is_packed(const Value* x, int last) {
    int64_t stride = 1;
    for (int i = x->ndim - 1; i >= x->ndim - last; stride *= x->shape[i--]) {
      if (x->shape[i] != 1 && x->strides[i] != stride) return false;
    }
    return true;
  }
  Ref value_;
  std::vector<int64_t> offsets_;
};

// Remembers the first matrix that failed, whichever thread finds it.
class Failure {
 public:
  void note(int64_t i) {
    int64_t seen = first_.load(std::memory_order_relaxed);
    while (i < seen && !first_.compare_exchange_weak(seen, i, std::memory_order_relaxed)) {
    }
  }
  void raise(const std::string& op, const Value* x, int last, const char* what) const {
    int64_t i = first_.load(std::memory_order_relaxed);
    if (i == INT64_MAX) return;
    std::string which = "the matrix";
    if (x->ndim > last) {
      Dims at;
      at.n = x->ndim - last;
      for (int axis = at.n - 1; axis >= 0; i /= x->shape[axis--]) at[axis] = i % x->shape[axis];
      which = "matrix " + to_string(at);
    }
    fail(ErrorKind::linalg, op.c_str(), which + " of " + to_string(x->type()) + " " + what);
  }

 private:
  std::atomic<int64_t> first_{INT64_MAX};
};

}  // namespace wengert
