// The exponential of a matrix and its derivative, by scaling and squaring with Padé approximants (Higham, 2005; the
// derivative of every step beside it, as in Al-Mohy and Higham, 2009).
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "linear_algebra.h"

namespace wengert {

namespace {

// A matrix and, if there is one, its derivative.
template <class T>
struct Dual {
  T* value;
  T* dot;
};

template <class T>
class Arithmetic {
 public:
  Arithmetic(int64_t n, bool duals) : n_(n), size_(n * n), duals_(duals) {}

  Dual<T> fresh() {
    memory_.emplace_back(new T[duals_ ? 2 * size_ : size_]);
    T* m = memory_.back().get();
    return {m, duals_ ? m + size_ : nullptr};
  }
  void multiply(Dual<T> a, Dual<T> b, Dual<T> c) const {  // c = a b; c is neither a nor b
    product(a.value, b.value, 0, c.value);
    if (!duals_) return;
    product(a.dot, b.value, 0, c.dot);
    product(a.value, b.dot, 1, c.dot);
  }
  void add(Real<T> factor, Dual<T> a, Dual<T> y) const {  // y += factor a
    for (int64_t i = 0; i < size_; ++i) y.value[i] += factor * a.value[i];
    if (duals_)
      for (int64_t i = 0; i < size_; ++i) y.dot[i] += factor * a.dot[i];
  }
  void set_identity(Real<T> factor, Dual<T> y) const {
    std::fill_n(y.value, duals_ ? 2 * size_ : size_, T(0));
    for (int64_t i = 0; i < n_; ++i) y.value[i * (n_ + 1)] = factor;
  }
  // x = p⁻¹ q, in q; ẋ = p⁻¹ (q̇ − ṗ x). p is destroyed.
  void divide(Dual<T> p, Dual<T> q) const {
    std::vector<int> pivots(n_);
    factor(n_, p.value, pivots.data());
    solve_factored(n_, n_, p.value, pivots.data(), false, q.value);
    if (!duals_) return;
    for (int64_t i = 0; i < size_; ++i) p.dot[i] = -p.dot[i];
    product(p.dot, q.value, 1, q.dot);
    solve_factored(n_, n_, p.value, pivots.data(), false, q.dot);
  }

 private:
  void product(const T* a, const T* b, Real<T> beta, T* c) const {
    const int n = static_cast<int>(n_);
    lapack::gemm(CblasNoTrans, CblasNoTrans, n, n, n, a, n, b, n, T(beta), c, n);
  }
  int64_t n_, size_;
  bool duals_;
  std::vector<std::unique_ptr<T[]>> memory_;
};

// Coefficients of the approximant p(a)/p(−a), and the 1-norm of a up to which it is exact to the last bit.
struct Pade {
  int degree;
  double bound;
  std::vector<double> b;
};
const Pade kDouble[] = {
    {3, 1.495585217958292e-2, {120, 60, 12, 1}},
    {5, 2.539398330063230e-1, {30240, 15120, 3360, 420, 30, 1}},
    {7, 9.504178996162932e-1, {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1}},
    {9, 2.097847961257068, {17643225600, 8821612800, 2075673600, 302702400, 30270240, 2162160, 110880, 3960, 90, 1}},
    {13,
     5.371920351148152,
     {64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
      670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1}},
};
const Pade kSingle[] = {
    {3, 4.258730016922831e-1, {120, 60, 12, 1}},
    {5, 1.880152677804762, {30240, 15120, 3360, 420, 30, 1}},
    {7, 3.925724783138660, {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1}},
};

template <class T>
double norm(int64_t n, const T* a) {
  std::vector<double> columns(n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) columns[j] += std::abs(a[i * n + j]);
  }
  double largest = 0;
  for (double c : columns) largest = c > largest || c != c ? c : largest;
  return largest;
}

// odd := a Σ b₂ᵢ₊₁ a²ⁱ and even := Σ b₂ᵢ a²ⁱ, so that p(±a) = even ± odd.
template <class T>
void halves(Arithmetic<T>& m, const Pade& pade, Dual<T> a, Dual<T> odd, Dual<T> even) {
  const std::vector<double>& b = pade.b;
  const int powers = pade.degree == 13 ? 3 : pade.degree / 2;  // of a²
  std::vector<Dual<T>> power;
  for (int i = 0; i < powers; ++i) {
    power.push_back(m.fresh());
    m.multiply(i ? power[i - 1] : a, i ? power[0] : a, power[i]);
  }
  Dual<T> inner = m.fresh();
  m.set_identity(static_cast<Real<T>>(b[1]), inner);
  m.set_identity(static_cast<Real<T>>(b[0]), even);
  for (int i = 0; i < powers; ++i) {
    m.add(static_cast<Real<T>>(b[2 * i + 3]), power[i], inner);
    m.add(static_cast<Real<T>>(b[2 * i + 2]), power[i], even);
  }
  if (pade.degree == 13) {  // the upper half of both sums, times a⁶
    Dual<T> high = m.fresh(), raised = m.fresh();
    for (int parity : {1, 0}) {
      m.set_identity(0, high);
      for (int i = 0; i < 3; ++i) m.add(static_cast<Real<T>>(b[8 + 2 * i + parity]), power[i], high);
      m.multiply(power[2], high, raised);
      m.add(1, raised, parity ? inner : even);
    }
  }
  m.multiply(a, inner, odd);
}

}  // namespace

template <class T>
void matrix_exp(int64_t n, const T* a, const T* a_dot, T* y, T* y_dot) {
  if (n == 0) return;
  const int64_t size = n * n;
  const double length = norm(n, a);
  if (!std::isfinite(length)) {
    std::fill_n(y, size, T(std::numeric_limits<Real<T>>::quiet_NaN()));
    if (a_dot) std::fill_n(y_dot, size, T(std::numeric_limits<Real<T>>::quiet_NaN()));
    return;
  }
  constexpr bool single = std::is_same_v<Real<T>, float>;
  const Pade* pade = single ? std::begin(kSingle) : std::begin(kDouble);
  const Pade* last = (single ? std::end(kSingle) : std::end(kDouble)) - 1;
  while (pade != last && length > pade->bound) ++pade;
  const int squarings = length > pade->bound ? static_cast<int>(std::ceil(std::log2(length / pade->bound))) : 0;

  Arithmetic<T> m(n, a_dot != nullptr);
  Dual<T> x = m.fresh(), odd = m.fresh(), even = m.fresh();
  const Real<T> scale = std::ldexp(Real<T>(1), -squarings);
  for (int64_t i = 0; i < size; ++i) x.value[i] = scale * a[i];
  for (int64_t i = 0; a_dot && i < size; ++i) x.dot[i] = scale * a_dot[i];
  halves(m, *pade, x, odd, even);
  std::copy_n(even.value, a_dot ? 2 * size : size, x.value);  // value and derivative lie beside each other
  m.add(1, odd, x);
  m.add(-1, odd, even);
  m.divide(even, x);
  for (int i = 0; i < squarings; ++i) {
    m.multiply(x, x, odd);
    std::swap(x, odd);
  }
  std::copy_n(x.value, size, y);
  if (a_dot) std::copy_n(x.dot, size, y_dot);
}

template void matrix_exp(int64_t, const float*, const float*, float*, float*);
template void matrix_exp(int64_t, const double*, const double*, double*, double*);
template void matrix_exp(int64_t, const lapack::c64*, const lapack::c64*, lapack::c64*, lapack::c64*);
template void matrix_exp(int64_t, const lapack::c128*, const lapack::c128*, lapack::c128*, lapack::c128*);

}  // namespace wengert
