// Elimination on stacks of matrices (the last two axes): solving, inverses, determinants, LU, Cholesky.
#include <cstring>
#include <limits>
#include <memory>

#include "../kernels/linear_algebra.h"
#include "matrices.h"

namespace wengert {

namespace {

constexpr const char* kSingular = "is singular";

// ------------------------------------------------------------------------------------------------ LU and solving

void infer_square(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  require_square(op, in[0]);
  out[0] = in[0];
}

void infer_lu_factor(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  require_square(op, in[0]);
  out[0] = in[0];
  out[1] = {DType::Int32, with_last(in[0].shape, 1, {})};
}

void compute_lu_factor(const Op&, Value* const* in, int, const Attrs&, Value** out) {
  const Value* a = in[0];
  const int64_t n = rows_of(a), batch = batch_of(a);
  copy_to(a, out[0]);
  Failure singular;
  with_lapack_type(a->dtype, [&]<class T>() {
    T* factors = data_of<T>(out[0]);
    int* pivots = data_of<int>(out[1]);
    for_matrices(batch, cube(n), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        if (factor(n, factors + i * n * n, pivots + i * n)) singular.note(i);
      }
    });
  });
  singular.raise("solve", a, 2, kSingular);  // the name that users know
}

void infer_lu_solve(const Op& op, const Type* in, int n, const Attrs&, Type* out) {
  require_square(op, in[0]);
  require_same_dtype(op, in, 0, 3, n);
  require_same_batch(op, in, n, 0, 3);
  const Dims& b = in[3].shape;
  if (in[1].dtype != DType::Int32 || !(in[1].shape == with_last(in[0].shape, 1, {}))) {
    fail(ErrorKind::dtype, op.name.c_str(), "pivots must be those that lu_factor returned, got " + to_string(in[1]));
  }
  if (!(b[b.n - 2] == in[0].shape[b.n - 1])) {
    fail(ErrorKind::shape, op.name.c_str(),
         to_string(in[0]) + " and " + to_string(in[3]) + " do not fit: they must have the same number of rows");
  }
  out[0] = in[3];
}

bool are_pivots(const int* pivots, int64_t n) {
  return std::all_of(pivots, pivots + n, [n](int p) { return p >= 1 && p <= n; });
}

void compute_lu_solve(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  Value* x = out[0];
  copy_to(in[3], x);
  const Stack factors(in[0], 2), pivots(in[1], 1);
  const int64_t n = rows_of(x), k = columns_of(x), batch = batch_of(x);
  const bool adjoint = attrs[0].i != 0;
  for (int64_t i = 0; i < batch; ++i) {
    if (!are_pivots(pivots.at<int>(i), n))
      fail(ErrorKind::value, op.name.c_str(), "pivots must be those that lu_factor returned");
  }
  with_lapack_type(x->dtype, [&]<class T>() {
    for_matrices(batch, static_cast<double>(n) * n * k, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        solve_factored(n, k, factors.at<T>(i), pivots.at<int>(i), adjoint, data_of<T>(x) + i * n * k);
      }
    });
  });
}

void compute_inv(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const int64_t n = rows_of(in[0]), batch = batch_of(in[0]);
  copy_to(in[0], out[0]);
  Failure singular;
  with_lapack_type(in[0]->dtype, [&]<class T>() {
    for_matrices(batch, 3 * cube(n), [&](int64_t first, int64_t last) {
      Workspace<T> w;
      for (int64_t i = first; i < last; ++i) {
        T* a = data_of<T>(out[0]) + i * n * n;
        if (invert(n, a, w) == 0) continue;
        singular.note(i);
        std::fill_n(a, n * n, T(std::numeric_limits<Real<T>>::quiet_NaN()));
      }
    });
  });
  if (attrs[0].i) singular.raise(op.name, in[0], 2, kSingular);
}

// -------------------------------------------------------------------------------------------------- determinants

void infer_det(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  require_square(op, in[0]);
  out[0] = {in[0].dtype, with_last(in[0].shape, 2, {})};
}

void infer_slogdet(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  infer_det(op, in, n, attrs, out);
  out[1] = {real_of(in[0].dtype), out[0].shape};
}

template <class Store>
void determinants(const Value* a, Store&& store) {
  const int64_t n = rows_of(a), batch = batch_of(a);
  Ref copy = scratch_copy(a);
  with_lapack_type(a->dtype, [&]<class T>() {
    for_matrices(batch, cube(n), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) store(i, determinant(n, data_of<T>(copy.v) + i * n * n));
    });
  });
}

void compute_det(const Op&, Value* const* in, int, const Attrs&, Value** out) {
  determinants(in[0], [&]<class T>(int64_t i, Determinant<T> d) { data_of<T>(out[0])[i] = d.value; });
}

void compute_slogdet(const Op&, Value* const* in, int, const Attrs&, Value** out) {
  determinants(in[0], [&]<class T>(int64_t i, Determinant<T> d) {
    data_of<T>(out[0])[i] = d.sign;
    data_of<Real<T>>(out[1])[i] = d.log;
  });
}

void compute_cofactor(const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  const int64_t n = rows_of(in[0]), batch = batch_of(in[0]);
  copy_to(in[0], out[0]);
  Failure failed;
  with_lapack_type(in[0]->dtype, [&]<class T>() {
    for_matrices(batch, 3 * cube(n), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        if (cofactors(n, data_of<T>(out[0]) + i * n * n)) failed.note(i);
      }
    });
  });
  failed.raise(op.name, in[0], 2, "has no singular values that LAPACK could find");
}

// ------------------------------------------------------------------------------------------------- factorisations

void infer_lu(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  require_matrices(op, in[0]);
  const Dims& a = in[0].shape;
  const Dim m = a[a.n - 2], n = a[a.n - 1], k = smaller(m, n);
  out[0] = {DType::Int64, with_last(a, 1, {})};
  out[1] = {in[0].dtype, with_last(a, 1, {k})};
  out[2] = {in[0].dtype, with_last(a, 2, {k, n})};
}

void compute_lu(const Op&, Value* const* in, int, const Attrs&, Value** out) {
  const Stack a(in[0], 2);
  const int64_t m = rows_of(in[0]), n = columns_of(in[0]), k = std::min(m, n), batch = batch_of(in[0]);
  with_lapack_type(in[0]->dtype, [&]<class T>() {
    for_matrices(batch, static_cast<double>(m) * n * k, [&](int64_t first, int64_t last) {
      std::unique_ptr<T[]> scratch(new T[m * n]);
      for (int64_t i = first; i < last; ++i) {
        factor_rows(m, n, a.at<T>(i), data_of<int64_t>(out[0]) + i * m, data_of<T>(out[1]) + i * m * k,
                    data_of<T>(out[2]) + i * k * n, scratch.get());
      }
    });
  });
}

void compute_cholesky(const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  const Value* a = in[0];
  const int64_t n = rows_of(a), batch = batch_of(a);
  const std::vector<int64_t> offsets = matrix_offsets(a, 2);
  Failure failed;
  with_lapack_type(a->dtype, [&]<class T>() {
    for_matrices(batch, cube(n), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        T* l = data_of<T>(out[0]) + i * n * n;
        symmetrize(a, n, offsets[i], false, l);
        if (cholesky(n, l)) failed.note(i);
      }
    });
  });
  failed.raise(op.name, a, 2, "is not positive definite");
}

void infer_solve_triangular(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_square(op, in[0]);
  require_same_dtype(op, in, 0, 1, n);
  require_same_batch(op, in, n, 0, 1);
  const Dims& b = in[1].shape;
  const bool right = attrs[3].i != 0;
  if (!(b[b.n - (right ? 1 : 2)] == in[0].shape[b.n - 1])) {
    fail(ErrorKind::shape, op.name.c_str(),
         to_string(in[0]) + " and " + to_string(in[1]) + " do not fit: they must have the same number of " +
             (right ? "columns" : "rows"));
  }
  out[0] = in[1];
}

template <class T>
bool has_zero_on_diagonal(int64_t n, const T* a) {
  for (int64_t i = 0; i < n; ++i) {
    if (a[i * (n + 1)] == T(0)) return true;
  }
  return false;
}

void compute_solve_triangular(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  Value* x = out[0];
  copy_to(in[1], x);
  const Stack a(in[0], 2);
  const int64_t n = rows_of(in[0]), rows = rows_of(x), columns = columns_of(x), batch = batch_of(x);
  const Triangle t{attrs[0].i != 0, attrs[1].i != 0, attrs[2].i != 0, attrs[3].i != 0};
  const bool check = attrs[4].i != 0 && !t.unit;
  Failure singular;
  with_lapack_type(x->dtype, [&]<class T>() {
    for_matrices(batch, static_cast<double>(n) * rows * columns, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const T* triangle = a.at<T>(i);
        if (check && has_zero_on_diagonal(n, triangle)) {
          singular.note(i);
        } else {
          solve_triangular(t, rows, columns, triangle, data_of<T>(x) + i * rows * columns);
        }
      }
    });
  });
  singular.raise(op.name, in[0], 2, "is singular: it has a zero on its diagonal");
}

}  // namespace

static void add_ops() {
  constexpr auto integer = Attr::Kind::integer;
  // Factors that only `lu_solve` reads; what is differentiated is `a`, which goes there beside them.
  add_op({.name = "lu_factor",
          .n_outputs = 2,
          .infer = infer_lu_factor,
          .compute = compute_lu_factor,
          .differentiable = false});
  add_op({.name = "lu_solve",
          .n_inputs = 4,
          .attrs = {{"adjoint", integer}},
          .infer = infer_lu_solve,
          .compute = compute_lu_solve});
  add_op({.name = "inv", .attrs = {{"check", integer}}, .infer = infer_square, .compute = compute_inv});
  add_op({.name = "det", .infer = infer_det, .compute = compute_det});
  add_op({.name = "slogdet", .n_outputs = 2, .infer = infer_slogdet, .compute = compute_slogdet});
  add_op({.name = "cofactor", .infer = infer_square, .compute = compute_cofactor});
  add_op({.name = "lu", .n_outputs = 3, .infer = infer_lu, .compute = compute_lu});
  add_op({.name = "cholesky", .infer = infer_square, .compute = compute_cholesky});
  add_op(
      {.name = "solve_triangular",
       .n_inputs = 2,
       .attrs = {{"upper", integer}, {"adjoint", integer}, {"unit", integer}, {"right", integer}, {"check", integer}},
       .infer = infer_solve_triangular,
       .compute = compute_solve_triangular});
}
static const OpFamily family(add_ops);

}  // namespace wengert
