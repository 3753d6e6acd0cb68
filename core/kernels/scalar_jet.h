// Truncated Taylor series in one or two variables. An algorithm for f(a, b), run on a + ε and b + δ instead of numbers,
// gives the partial derivatives of f beside its value (A. Griewank, A. Walther: Evaluating Derivatives, 2008, ch. 13).
#pragma once
#include <cmath>
#include <limits>

// A GPU's compiler would take the loops over coefficients into every line that calculates, and minutes over that.
#ifdef WENGERT_DEVICE_CODE
#define WENGERT_CALLED __attribute__((noinline))
#else
#define WENGERT_CALLED
#endif

namespace wengert {

// Σ c[i][j] εⁱ δʲ over i + j <= Order; `Both` says whether there is a δ at all.
template <int Order, bool Both>
struct Jet {
  static constexpr int order = Order, columns = Both ? Order : 0;
  double c[Order + 1][columns + 1] = {};

  Jet() = default;
  Jet(double value) { c[0][0] = value; }  // NOLINT: numbers are constants

  static Jet first(double value) {
    Jet x(value);
    x.c[1][0] = 1.0;
    return x;
  }
  static Jet second(double value)
    requires Both
  {
    Jet x(value);
    x.c[0][1] = 1.0;
    return x;
  }

  template <class F>
  static void each(F&& f) {
    for (int i = 0; i <= Order; ++i) {
      for (int j = 0; j <= columns && i + j <= Order; ++j) f(i, j);
    }
  }

  WENGERT_CALLED friend Jet operator+(const Jet& a, const Jet& b) {
    Jet y;
    each([&](int i, int j) { y.c[i][j] = a.c[i][j] + b.c[i][j]; });
    return y;
  }
  WENGERT_CALLED friend Jet operator-(const Jet& a, const Jet& b) {
    Jet y;
    each([&](int i, int j) { y.c[i][j] = a.c[i][j] - b.c[i][j]; });
    return y;
  }
  WENGERT_CALLED friend Jet operator*(const Jet& a, const Jet& b) {
    Jet y;
    each([&](int i, int j) {
      double sum = 0.0;
      for (int k = 0; k <= i; ++k) {
        for (int l = 0; l <= j; ++l) sum += a.c[k][l] * b.c[i - k][j - l];
      }
      y.c[i][j] = sum;
    });
    return y;
  }
  // From y b = a, coefficient by coefficient.
  WENGERT_CALLED friend Jet operator/(const Jet& a, const Jet& b) {
    Jet y;
    const double r = 1.0 / b.c[0][0];
    each([&](int i, int j) {
      double sum = a.c[i][j];
      for (int k = 0; k <= i; ++k) {
        for (int l = 0; l <= j; ++l) {
          if (k + l > 0) sum -= b.c[k][l] * y.c[i - k][j - l];
        }
      }
      y.c[i][j] = sum * r;
    });
    y.c[0][0] = a.c[0][0] / b.c[0][0];
    return y;
  }
};

inline double value_of(double x) { return x; }
template <int N, bool B>
double value_of(const Jet<N, B>& x) {
  return x.c[0][0];
}

// The largest coefficient.
inline double size_of_jet(double x) { return std::abs(x); }
template <int N, bool B>
double size_of_jet(const Jet<N, B>& x) {
  double largest = 0.0;
  Jet<N, B>::each([&](int i, int j) { largest = std::fmax(largest, std::abs(x.c[i][j])); });
  return largest;
}

// Whether a term changes no coefficient of a sum any more; each has a scale of its own.
inline bool is_negligible(double term, double sum) { return std::abs(term) <= 0x1p-54 * std::abs(sum); }
template <int N, bool B>
bool is_negligible(const Jet<N, B>& term, const Jet<N, B>& sum) {
  bool all = true;
  Jet<N, B>::each([&](int i, int j) {
    all &= is_negligible(term.c[i][j], sum.c[i][j]) || std::abs(term.c[i][j]) < std::numeric_limits<double>::min();
  });
  return all;
}

// f(x), from the Taylor coefficients f(v), f'(v), f''(v)/2, … at v = value_of(x).
template <int N, bool B>
Jet<N, B> compose(const double* taylor, Jet<N, B> x) {
  x.c[0][0] = 0.0;
  Jet<N, B> y(taylor[N]);
  for (int k = N - 1; k >= 0; --k) y = y * x + Jet<N, B>(taylor[k]);
  return y;
}

// e^(x − value_of(x)): one and what derivatives add to it.
inline double exp_of_rest(double) { return 1.0; }
template <int N, bool B>
Jet<N, B> exp_of_rest(const Jet<N, B>& x) {
  double taylor[N + 1];
  taylor[0] = 1.0;
  for (int k = 1; k <= N; ++k) taylor[k] = taylor[k - 1] / k;
  return compose(taylor, x);
}

inline double sqrt_of(double x) { return std::sqrt(x); }
template <int N, bool B>
Jet<N, B> sqrt_of(const Jet<N, B>& x) {
  double taylor[N + 1];
  const double v = value_of(x);
  taylor[0] = std::sqrt(v);
  for (int k = 1; k <= N; ++k) taylor[k] = taylor[k - 1] * (1.5 - k) / (k * v);
  return compose(taylor, x);
}

}  // namespace wengert

#undef WENGERT_CALLED
