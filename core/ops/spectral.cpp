// Orthogonal factorisations of stacks of matrices: QR, singular values, eigenvalues.
#include <cmath>
#include <limits>
#include <memory>

#include "matrices.h"
#include "undefined.h"

namespace wengert {

namespace {

constexpr const char* kNotFinite = "contains NaN or infinity";
constexpr const char* kNoConvergence = "did not converge";

template <class T>
bool all_finite(const T* x, int64_t n) {
  Real<T> sum = 0;  // 0 · x is 0 for finite x, NaN otherwise
  for (int64_t i = 0; i < n; ++i) sum += std::real(x[i]) * 0 + std::imag(x[i]) * 0;
  return sum == 0;
}

// LAPACK may loop forever on NaN, so inputs are checked first.
struct Failures {
  Failure not_finite, no_convergence;
  void raise(const Op& op, const Value* x) const {
    not_finite.raise(op.name, x, 2, kNotFinite);
    no_convergence.raise(op.name, x, 2, kNoConvergence);
  }
};

void infer_qr(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  require_matrices(op, in[0]);
  const Dims& a = in[0].shape;
  const Dim m = a[a.n - 2], n = a[a.n - 1], k = attrs[0].i ? m : smaller(m, n);
  out[0] = {in[0].dtype, with_last(a, 2, {m, k})};
  out[1] = {in[0].dtype, with_last(a, 2, {k, n})};
}

void compute_qr(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const int64_t m = rows_of(in[0]), n = columns_of(in[0]), k = columns_of(out[0]), batch = batch_of(in[0]);
  const Stack a(in[0], 2);
  Failure failed;
  with_lapack_type(in[0]->dtype, [&]<class T>() {
    for_matrices(batch, 2.0 * m * n * k, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        T *q = data_of<T>(out[0]) + i * m * k, *r = data_of<T>(out[1]) + i * k * n;
        if (qr(m, n, attrs[0].i != 0, a.at<T>(i), q, r)) failed.note(i);
      }
    });
  });
  failed.raise(op.name, in[0], 2, "has no QR factorisation that LAPACK could find");
}

void infer_svd(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  require_matrices(op, in[0]);
  const Dims& a = in[0].shape;
  const Dim m = a[a.n - 2], n = a[a.n - 1], k = smaller(m, n);
  const bool full = attrs[0].i != 0;
  out[0] = {in[0].dtype, with_last(a, 2, {m, full ? m : k})};
  out[1] = {real_of(in[0].dtype), with_last(a, 2, {k})};
  out[2] = {in[0].dtype, with_last(a, 2, {full ? n : k, n})};
}

void infer_svdvals(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  require_matrices(op, in[0]);
  const Dims& a = in[0].shape;
  out[0] = {real_of(in[0].dtype), with_last(a, 2, {smaller(a[a.n - 2], a[a.n - 1])})};
}

// u and vh may be null to compute only the singular values.
void run_svd(const Op& op, const Value* x, bool full, Value* u, Value* s, Value* vh) {
  const int64_t m = rows_of(x), n = columns_of(x), k = std::min(m, n), batch = batch_of(x);
  const int64_t left = full ? m : k, right = full ? n : k;
  Ref copy = scratch_copy(x);
  Failures failures;
  with_lapack_type(x->dtype, [&]<class T>() {
    for_matrices(batch, 8.0 * m * n * k, [&](int64_t first, int64_t last) {
      Workspace<T> w;
      for (int64_t i = first; i < last; ++i) {
        T* a = data_of<T>(copy.v) + i * m * n;
        T* ui = u ? data_of<T>(u) + i * m * left : nullptr;
        T* vi = vh ? data_of<T>(vh) + i * right * n : nullptr;
        if (!all_finite(a, m * n)) {
          failures.not_finite.note(i);
        } else if (svd(m, n, full, a, ui, data_of<Real<T>>(s) + i * k, vi, w)) {
          failures.no_convergence.note(i);
        }
      }
    });
  });
  failures.raise(op, x);
}

void compute_svd(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  run_svd(op, in[0], attrs[0].i != 0, out[0], out[1], out[2]);
}

void compute_svdvals(const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  run_svd(op, in[0], false, nullptr, out[0], nullptr);
}

void infer_pinv(const Op& op, const Type* in, int n, const Attrs& attrs, Type* out) {
  require_matrices(op, in[0]);
  const Dims& a = in[0].shape;
  const bool same = in[1].dtype == real_of(in[0].dtype);
  if (!same || !(in[1].shape == with_last(a, 2, {}))) {
    fail(same ? ErrorKind::shape : ErrorKind::dtype, op.name.c_str(),
         "takes one real cutoff for each matrix, got " + operands(in, n));
  }
  out[0] = {in[0].dtype, with_last(a, 2, {a[a.n - 1], a[a.n - 2]})};
  infer_svdvals(op, in, n, attrs, out + 1);
}

void compute_pinv(const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  const Value* x = in[0];
  const int64_t m = rows_of(x), n = columns_of(x), k = std::min(m, n), batch = batch_of(x);
  Ref copy = scratch_copy(x);
  const Ref cutoffs(contiguous(in[1]));
  Failures failures;
  with_lapack_type(x->dtype, [&]<class T>() {
    for_matrices(batch, 10.0 * m * n * k, [&](int64_t first, int64_t last) {
      Workspace<T> w;
      for (int64_t i = first; i < last; ++i) {
        T *a = data_of<T>(copy.v) + i * m * n, *y = data_of<T>(out[0]) + i * m * n;
        if (!all_finite(a, m * n)) {
          failures.not_finite.note(i);
        } else if (pseudo_inverse(m, n, data_of<Real<T>>(cutoffs.v)[i], a, y, data_of<Real<T>>(out[1]) + i * k, w)) {
          failures.no_convergence.note(i);
        }
      }
    });
  });
  failures.raise(op, x);
}

// ------------------------------------------------------------------------------------------------ exponential

void infer_matrix_exp(const Op& op, const Type* in, int n, const Attrs&, Type* out) {
  require_square(op, in[0]);
  if (n == 2 && (in[1].dtype != in[0].dtype || !(in[1].shape == in[0].shape))) {
    fail(ErrorKind::shape, op.name.c_str(), "takes a matrix and a direction of its type, got " + operands(in, n));
  }
  out[0] = in[0];
}

void compute_matrix_exp(const Op&, Value* const* in, int n_in, const Attrs&, Value** out) {
  const Stack a(in[0], 2), direction(in[n_in - 1], 2);
  const int64_t n = rows_of(in[0]), batch = batch_of(in[0]);
  with_lapack_type(in[0]->dtype, [&]<class T>() {
    for_matrices(batch, 20 * cube(n), [&](int64_t first, int64_t last) {
      std::unique_ptr<T[]> value(new T[n_in == 2 ? n * n : 0]);
      for (int64_t i = first; i < last; ++i) {
        T* y = data_of<T>(out[0]) + i * n * n;
        if (n_in == 1) {
          matrix_exp<T>(n, a.at<T>(i), nullptr, y, nullptr);
        } else {
          matrix_exp<T>(n, a.at<T>(i), direction.at<T>(i), value.get(), y);
        }
      }
    });
  });
}

// Eigenvalues first, then vectors if the op has them.
void infer_eigh(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  require_square(op, in[0]);
  out[0] = {real_of(in[0].dtype), with_last(in[0].shape, 1, {})};
  if (op.n_outputs == 2) out[1] = in[0];
}

void compute_eigh(const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  const Value* x = in[0];
  const bool vectors = op.n_outputs == 2;
  const int64_t n = rows_of(x), batch = batch_of(x);
  Ref scratch = vectors ? Ref::share(out[1]) : Ref(empty(x->dtype, x->dims(), Category::workspace));
  const std::vector<int64_t> offsets = matrix_offsets(x, 2);
  Failures failures;
  with_lapack_type(x->dtype, [&]<class T>() {
    for_matrices(batch, 8 * cube(n), [&](int64_t first, int64_t last) {
      Workspace<T> w;
      for (int64_t i = first; i < last; ++i) {
        T* a = data_of<T>(scratch.v) + i * n * n;
        symmetrize(x, n, offsets[i], true, a);
        if (!all_finite(a, n * n)) {
          failures.not_finite.note(i);
        } else if (eigh(n, vectors, a, data_of<Real<T>>(out[0]) + i * n, w)) {
          failures.no_convergence.note(i);
        }
      }
    });
  });
  failures.raise(op, x);
}

void infer_eig(const Op& op, const Type* in, int, const Attrs&, Type* out) {
  require_square(op, in[0]);
  out[0] = {complex_of(in[0].dtype), with_last(in[0].shape, 1, {})};
  if (op.n_outputs == 2) out[1] = {complex_of(in[0].dtype), in[0].shape};
}

void compute_eig(const Op& op, Value* const* in, int, const Attrs&, Value** out) {
  const Value* x = in[0];
  const int64_t n = rows_of(x), batch = batch_of(x);
  Ref copy = scratch_copy(x);
  Failures failures;
  with_lapack_type(x->dtype, [&]<class T>() {
    using C = std::complex<Real<T>>;
    for_matrices(batch, 20 * cube(n), [&](int64_t first, int64_t last) {
      Workspace<T> w;
      for (int64_t i = first; i < last; ++i) {
        T* a = data_of<T>(copy.v) + i * n * n;
        C* v = op.n_outputs == 2 ? data_of<C>(out[1]) + i * n * n : nullptr;
        if (!all_finite(a, n * n)) {
          failures.not_finite.note(i);
        } else if (eig(n, a, data_of<C>(out[0]) + i * n, v, w)) {
          failures.no_convergence.note(i);
        }
      }
    });
  });
  failures.raise(op, x);
}

}  // namespace

// Derivatives that do not exist: of the columns that complete a basis (svd with full matrices, complete qr). Pushed
// forward they are NaN; pulled back they must be zero, or it is said what is not defined.
const char* why_undefined(int64_t reason) {
  static constexpr const char* kWhy[] = {
      "svd: with full_matrices=True the columns of U and rows of Vh beyond min(m, n) are any that complete the basis, "
      "and "
      "have no derivative; use full_matrices=False",
      "qr: with mode='complete' the columns of Q beyond min(m, n) are any that complete the basis, and have no "
      "derivative; use mode='reduced'",
  };
  return kWhy[reason != 0];
}

namespace {

void infer_undefined(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  out[0] = {in[0].dtype, shape_attr(op, attrs[0])};
}

void compute_undefined_tangent(const Op&, Value* const*, int, const Attrs&, Value** out) {
  with_lapack_type(out[0]->dtype, [&]<class T>() {
    std::fill_n(data_of<T>(out[0]), out[0]->size, T(std::numeric_limits<Real<T>>::quiet_NaN()));
  });
}

void compute_undefined_cotangent(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Ref packed(contiguous(in[0]));
  with_lapack_type(out[0]->dtype, [&]<class T>() {
    const T* x = data_of<T>(packed.v);
    if (!std::all_of(x, x + packed->size, [](T e) { return e == T(0); })) {
      throw Error(ErrorKind::gradient, why_undefined(attrs[1].i));
    }
    std::fill_n(data_of<T>(out[0]), out[0]->size, T(0));
  });
}

}  // namespace

static void add_ops() {
  constexpr auto integer = Attr::Kind::integer;
  add_op({.name = "qr", .n_outputs = 2, .attrs = {{"complete", integer}}, .infer = infer_qr, .compute = compute_qr});
  add_op({.name = "svd", .n_outputs = 3, .attrs = {{"full", integer}}, .infer = infer_svd, .compute = compute_svd});
  add_op({.name = "svdvals", .infer = infer_svdvals, .compute = compute_svdvals});
  add_op({.name = "pinv", .n_inputs = 2, .n_outputs = 2, .infer = infer_pinv, .compute = compute_pinv});
  add_op({.name = "matrix_exp", .infer = infer_matrix_exp, .compute = compute_matrix_exp});
  add_op({.name = "matrix_exp_push", .n_inputs = 2, .infer = infer_matrix_exp, .compute = compute_matrix_exp});
  add_op({.name = "eigh", .n_outputs = 2, .infer = infer_eigh, .compute = compute_eigh});
  add_op({.name = "eigvalsh", .infer = infer_eigh, .compute = compute_eigh});
  add_op({.name = "eig", .n_outputs = 2, .infer = infer_eig, .compute = compute_eig});
  add_op({.name = "eigvals", .infer = infer_eig, .compute = compute_eig});
  const std::vector<AttrSpec> undefined = {{"shape", Attr::Kind::sizes}, {"reason", integer}};
  add_op({.name = "undefined_tangent",
          .attrs = undefined,
          .infer = infer_undefined,
          .compute = compute_undefined_tangent});
  add_op({.name = "undefined_cotangent",
          .attrs = undefined,
          .infer = infer_undefined,
          .compute = compute_undefined_cotangent});
}
static const OpFamily family(add_ops);

}  // namespace wengert
