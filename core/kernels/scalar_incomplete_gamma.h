// The incomplete gamma functions, their derivatives with respect to either argument, and their inverses.
//
// By region: the series of P (NIST DLMF 8.11.4), that of Q for small a and x (8.7.3), the continued fraction of Q
// (8.9.2, by Lentz's method), and Temme's expansion that is uniform in x for large a (8.12). Where they meet follows
// A. Gil, J. Segura, N. Temme: Efficient and accurate algorithms for the computation and inversion of the incomplete
// gamma function ratios, SIAM J. Sci. Comput. 34 (2012).
//
// Each is a template over the type of a: a number, or a Jet, which carries the derivatives with respect to a.
#pragma once
#include <iterator>

#include "scalar_gamma.h"
#include "scalar_normal_quantile.h"

namespace wengert::special {

namespace incomplete_gamma {

inline constexpr int kMostTerms = 20000;

inline double front(double a, double x) { return poisson(a, x); }
template <int N>
Jet<N, false> front(const Jet<N, false>& a, double x) {
  const double v = value_of(a);
  Jet<N, false> logarithm;
  double factorial = 1.0;
  for (int k = 1; k <= N; ++k) {
    factorial *= k;
    logarithm.c[k][0] = ((k == 1 ? std::log(x) : 0.0) - polygamma(k - 1, v + 1.0)) / factorial;
  }
  return Jet<N, false>(poisson(v, x)) * exp_of_rest(logarithm);
}

// P = front · Σ xᵏ / ((a + 1) … (a + k))
template <class T>
T lower_series(const T& a, double x) {
  T term(1.0), sum(1.0), next = a;
  for (int k = 1; k < kMostTerms; ++k) {
    next = next + T(1.0);
    term = term * (T(x) / next);
    sum = sum + term;
    if (is_negligible(term, sum)) break;
  }
  return front(a, x) * sum;
}

// Q = front · a / (x + 1 − a − 1(1 − a)/(x + 3 − a − 2(2 − a)/(x + 5 − a − …)))
template <class T>
T upper_fraction(const T& a, double x) {
  T b = T(x + 1.0) - a, d = T(1.0) / b, c(1.0 / std::numeric_limits<double>::min()), y = d;
  for (int k = 1; k < kMostTerms; ++k) {
    const T numerator = T(k) * (a - T(k));
    b = b + T(2.0);
    d = T(1.0) / (numerator * d + b);
    c = b + numerator / c;
    const T factor = c * d;
    y = y * factor;
    if (size_of_jet(factor - T(1.0)) < 2.0 * kEpsilon) break;
  }
  return front(a, x) * a * y;
}

// ln Γ(1 + a) for 0 <= a <= 1.5; near 0 its Taylor series, since 1 + a is rounded.
inline double lgamma_beyond_one(double a) {
  if (a > 0.2) return std::lgamma(1.0 + a);
  // −γ, and ζ(k) (−1)ᵏ / k
  constexpr double k[] = {-0.5772156649015329,   0.8224670334241132,   -0.40068563438653143, 0.27058080842778454,
                          -0.20738555102867398,  0.1695571769974082,   -0.1440498967688461,  0.12550966952474304,
                          -0.11133426586956469,  0.1000994575127818,   -0.09095401714582904, 0.083353840546109,
                          -0.0769325164113522,   0.07143294629536133,  -0.06666870588242046, 0.06250095514121304,
                          -0.058823978658684585, 0.055555767627403614, -0.05263167937961666, 0.05000004769810169};
  double sum = 0.0;
  for (int i = 19; i >= 0; --i) sum = sum * a + k[i];
  return a * sum;
}

// Q = 1 − xᵃ/Γ(a + 1) − xᵃ/Γ(a) Σ (−x)ᵏ / (k! (a + k)) over k >= 1, where xᵃ/Γ(a + 1) is near 1
inline double upper_series(double a, double x) {
  double term = 1.0, sum = 0.0;
  for (int k = 1; k < kMostTerms; ++k) {
    term *= -x / k;
    sum += term / (a + k);
    if (std::abs(term) < kEpsilon * std::abs(sum)) break;
  }
  const double logarithm = a * std::log(x) - lgamma_beyond_one(a);
  return -std::expm1(logarithm) - std::exp(logarithm) * a * sum;
}

// Temme's expansion, for a >= kTemmeFrom and |x/a − 1| <= kTemmeWidth. The coefficients of cₖ(η) = Σ d ηⁿ, row by row,
// in exact arithmetic from the recurrence NIST DLMF 8.12.12; as many as count there.
inline constexpr double kTemmeFrom = 40.0, kTemmeWidth = 0.4;
inline constexpr int kTemmeTerms[] = {22, 20, 18, 17, 15, 13, 11, 9, 7, 5, 3};
inline constexpr double kTemme[] = {
    -0.3333333333333333,     0.08333333333333333,     -0.014814814814814815,   0.0011574074074074073,
    0.0003527336860670194,   -0.0001787551440329218,  3.919263178522438e-05,   -2.185448510679992e-06,
    -1.85406221071516e-06,   8.296711340953087e-07,   -1.7665952736826078e-07, 6.707853543401498e-09,
    1.0261809784240309e-08,  -4.382036018453353e-09,  9.14769958223679e-10,    -2.5514193994946248e-11,
    -5.830772132550426e-11,  2.4361948020667415e-11,  -5.0276692801141755e-12, 1.1004392031956135e-13,
    3.371763262400985e-13,   -1.392388722418162e-13,  -0.001851851851851852,   -0.003472222222222222,
    0.0026455026455026454,   -0.0009902263374485596,  0.00020576131687242798,  -4.018775720164609e-07,
    -1.8098550334489977e-05, 7.64916091608111e-06,    -1.6120900894563446e-06, 4.647127802807434e-09,
    1.378633446915721e-07,   -5.752545603517705e-08,  1.1951628599778148e-08,  -1.7543241719747647e-11,
    -1.0091543710600413e-09, 4.162792991842583e-10,   -8.56390702649298e-11,   6.067215101604758e-14,
    7.1624989648114856e-12,  -2.933186643771437e-12,  0.004133597883597883,    -0.0026813271604938273,
    0.0007716049382716049,   2.0093878600823047e-06,  -0.0001073665322636516,  5.2923448829120125e-05,
    -1.2760635188618728e-05, 3.423578734096138e-08,   1.3721957309062934e-06,  -6.298992138380055e-07,
    1.4280614206064242e-07,  -2.0477098421990866e-10, -1.409252991086752e-08,  6.228974084922022e-09,
    -1.3670488396617114e-09, 9.428356159014678e-13,   1.2872252400089318e-10,  -5.5645956134363323e-11,
    0.0006494341563786008,   0.00022947209362139917,  -0.0004691894943952557,  0.00026772063206283885,
    -7.561801671883977e-05,  -2.396505113867297e-07,  1.1082654115347302e-05,  -5.6749528269915965e-06,
    1.4230900732435883e-06,  -2.7861080291528143e-11, -1.6958404091930278e-07, 8.099464905388083e-08,
    -1.9111168485973655e-08, 2.3928620439808118e-12,  2.0620131815488797e-09,  -9.460496661855133e-10,
    2.1541049775774907e-10,  -0.0008618882909167117,  0.0007840392217200666,   -0.0002990724803031902,
    -1.4638452578843418e-06, 6.641498215465122e-05,   -3.968365047179435e-05,  1.1375726970678419e-05,
    2.507497226237533e-10,   -1.6954149536558305e-06, 8.907507532205309e-07,   -2.292934834000805e-07,
    2.956794137544049e-11,   2.8865829742708783e-08,  -1.4189739437803219e-08, 3.4463580499464896e-09,
    -0.00033679855336635813, -6.972813758365857e-05,  0.0002772753244959392,   -0.00019932570516188847,
    6.797780477937208e-05,   1.419062920643967e-07,   -1.3594048189768693e-05, 8.018470256334202e-06,
    -2.291481176508095e-06,  -3.252473551298454e-10,  3.4652846491085265e-07,  -1.8447187191171344e-07,
    4.8240967037894184e-08,  0.0005313079364639922,   -0.0005921664373536939,  0.0002708782096718045,
    7.902353232660328e-07,   -8.153969367561969e-05,  5.61168275310625e-05,    -1.8329116582843375e-05,
    -3.0796134506033047e-09, 3.465155368803609e-06,   -2.0291327396058603e-06, 5.788792863149004e-07,
    0.00034436760689237765,  5.171790908260592e-05,   -0.00033493161081142234, 0.0002812695154763237,
    -0.00010976582244684731, -1.2741009095484485e-07, 2.7744451511563645e-05,  -1.8263488805711332e-05,
    5.7876949497350525e-06,  -0.0006526239185953094,  0.0008394987206720873,   -0.000438297098541721,
    -6.969091458420552e-07,  0.00016644846642067547,  -0.00012783517679769218, 4.629953263691304e-05,
    -0.0005967612901927463,  -7.204895416020011e-05,  0.0006782308837667328,   -0.0006401475260262758,
    0.00027750107634328704,  0.0013324454494800656,   -0.0019144384985654776,  0.0011089369134596636};
inline constexpr double kEta[] = {1.0,
                                  -0.3333333333333333,
                                  0.19444444444444445,
                                  -0.13518518518518519,
                                  0.10270061728395062,
                                  -0.08233759553203998,
                                  0.06844705320399765,
                                  -0.05840173672349598,
                                  0.050819073696436734,
                                  -0.04490435697557504,
                                  0.040169383760970956,
                                  -0.03629823350821494,
                                  0.033077734575438014,
                                  -0.030359007414019895,
                                  0.028035031162601393,
                                  -0.026026964485597544,
                                  0.024275486092980206,
                                  -0.022735134066871807,
                                  0.021370501031151918,
                                  -0.020153613610726467,
                                  0.01906208827032254};

// η with ½ η² = u − ln(1 + u) and the sign of u; near 0 its series.
template <class T>
T eta_of(const T& u, const T& half_square) {
  if (std::abs(value_of(u)) > 0.15) {
    const T root = sqrt_of(T(2.0) * half_square);
    return value_of(u) < 0.0 ? T(0.0) - root : root;
  }
  T sum(0.0);
  for (int k = static_cast<int>(std::size(kEta)) - 1; k >= 0; --k) sum = sum * u + T(kEta[k]);
  return u * sum;
}

// u − ln(1 + u) of u = x/a − 1; its derivative is u/(1 + u).
inline double excess(double u) { return minus_log1p(u); }
template <int N>
Jet<N, false> excess(const Jet<N, false>& u) {
  double taylor[N + 1];
  const double v = value_of(u), r = 1.0 / (1.0 + v);
  taylor[0] = minus_log1p(v);
  taylor[1] = v * r;
  double power = r;
  for (int k = 2; k <= N; ++k) {
    power *= -r;
    taylor[k] = -power / k;
  }
  return compose(taylor, u);
}

// ½ erfc(y), where y² is known better than y is.
inline double half_erfc(double y, double square) { return 0.5 * std::erfc(y) * (1.0 + std::fma(y, y, -square)); }
template <int N>
Jet<N, false> half_erfc(const Jet<N, false>& y, const Jet<N, false>& square) {
  const double v = value_of(y), v_square = value_of(square);
  double gauss[N + 1], taylor[N + 1];  // of e^−y², whose derivative is −2y times it
  gauss[0] = std::exp(-v_square);
  for (int k = 1; k <= N; ++k) gauss[k] = -2.0 * (v * gauss[k - 1] + (k > 1 ? gauss[k - 2] : 0.0)) / k;
  taylor[0] = half_erfc(v, v_square);
  for (int k = 1; k <= N; ++k) taylor[k] = -gauss[k - 1] / (k * 1.77245385090551602730);
  return compose(taylor, y);
}

inline double exp_minus(double x) { return std::exp(-x); }
template <int N>
Jet<N, false> exp_minus(const Jet<N, false>& x) {
  return Jet<N, false>(std::exp(-value_of(x))) * exp_of_rest(Jet<N, false>(0.0) - x);
}

// P where x < a, else Q.
template <class T>
T smaller_by_temme(const T& a, double x) {
  T u = (T(x) - a) / a;
  const T half_square = excess(u), eta = eta_of(u, half_square), square = a * half_square;
  T sum(0.0);
  int row_end = static_cast<int>(std::size(kTemme));
  for (int k = static_cast<int>(std::size(kTemmeTerms)) - 1; k >= 0; --k) {
    T c(0.0);
    for (int n = 0; n < kTemmeTerms[k]; ++n) c = c * eta + T(kTemme[--row_end]);
    sum = sum / a + c;
  }
  const bool left = value_of(u) < 0.0;
  const T y = eta * sqrt_of(a * T(0.5)), rest = exp_minus(square) * sum / sqrt_of(T(kTwoPi) * a);
  return left ? half_erfc(T(0.0) - y, square) - rest : half_erfc(y, square) + rest;
}

inline bool is_uniform(double a, double x) { return a >= kTemmeFrom && std::abs(x - a) <= kTemmeWidth * a; }

// P or Q, whichever the region gives without cancellation.
struct Ratio {
  double value;
  bool upper;
};

inline Ratio ratio_of(double a, double x) {
  if (is_uniform(a, x)) return {smaller_by_temme(a, x), x >= a};
  if (x > 1.1) return x < a ? Ratio{lower_series(a, x), false} : Ratio{upper_fraction(a, x), true};
  const double limit = x <= 0.5 ? -0.4 / std::log(x) : x / 1.1;
  return limit < a ? Ratio{lower_series(a, x), false} : Ratio{upper_series(a, x), true};
}

// What is known at the ends: P, or NaN; `inside` if the algorithms are to be asked.
inline double at_the_ends(double a, double x, bool* inside) {
  *inside = false;
  if (!(a >= 0.0) || !(x >= 0.0)) return kNaN;
  if (a == 0.0) return x > 0.0 ? 1.0 : kNaN;
  if (x == 0.0) return 0.0;
  if (a == kInf) return x == kInf ? kNaN : 0.0;
  if (x == kInf) return 1.0;
  *inside = true;
  return 0.0;
}

}  // namespace incomplete_gamma

// P(a, x)
inline double gammainc(double a, double x) {
  bool inside;
  const double end = incomplete_gamma::at_the_ends(a, x, &inside);
  if (!inside) return end;
  const incomplete_gamma::Ratio r = incomplete_gamma::ratio_of(a, x);
  return r.upper ? 1.0 - r.value : r.value;
}

// Q(a, x) = 1 − P
inline double gammaincc(double a, double x) {
  bool inside;
  const double end = incomplete_gamma::at_the_ends(a, x, &inside);
  if (!inside) return 1.0 - end;
  const incomplete_gamma::Ratio r = incomplete_gamma::ratio_of(a, x);
  return r.upper ? r.value : 1.0 - r.value;
}

// ∂P/∂x
inline double gammainc_density(double a, double x) {
  if (!(a > 0.0) || !(x >= 0.0)) return kNaN;
  if (x == 0.0) return a < 1.0 ? kInf : a == 1.0 ? 1.0 : 0.0;
  if (x == kInf || a == kInf) return 0.0;
  return poisson(a, x) * (a / x);
}

// (∂/∂a)ⁿ P for n up to kGammaincOrders
inline constexpr int kGammaincOrders = 4;
inline double gammainc_by_a(double a, double x, int order) {
  bool inside;
  const double end = incomplete_gamma::at_the_ends(a, x, &inside);
  if (!inside) return end == end && a > 0.0 ? 0.0 : kNaN;
  const auto nth = [&]<int N>() {
    using namespace incomplete_gamma;
    const auto v = Jet<N, false>::first(a);
    const bool upper = x >= a && (x > 1.1 || is_uniform(a, x));
    const auto y = is_uniform(a, x) ? smaller_by_temme(v, x) : upper ? upper_fraction(v, x) : lower_series(v, x);
    double factorial = upper ? -1.0 : 1.0;
    for (int k = 2; k <= order; ++k) factorial *= k;
    return factorial * y.c[order][0];
  };
  return order == 1 ? nth.template operator()<1>() : nth.template operator()<kGammaincOrders>();
}

namespace incomplete_gamma {

// A first guess: Wilson and Hilferty's normal approximation of the cube root, or in the left tail P ≈ xᵃ/Γ(a + 1).
inline double first_guess(double a, double p, double q) {
  const double tail = std::exp((std::log(p) + std::lgamma(a + 1.0)) / a);
  if (a < 0.5 || tail < 0.1 * a) {
    if (tail < 0.5) return tail;
    return a < 0.5 ? std::fmax(0.5, -std::log(q) + (a - 1.0) * std::log(std::fmax(-std::log(q), 0.1))) : tail;
  }
  const double z = p < q ? ndtri(p) : -ndtri(q), s = 1.0 / (9.0 * a), root = 1.0 - s + z * std::sqrt(s);
  const double guess = a * root * root * root;
  return guess > 0.0 ? guess : tail;
}

// The x with P(a, x) = p and Q(a, x) = q, of which the smaller is exact: Halley's steps, kept between bounds that the
// signs of the error give; a step that leaves them is replaced by bisection.
inline double solve(double a, double p, double q) {
  double x = first_guess(a, p, q), low = 0.0, high = kInf;
  if (!(x > std::numeric_limits<double>::min())) return x;  // it has no digits to improve
  for (int k = 0; k < 200; ++k) {
    const double error = p < q ? gammainc(a, x) - p : q - gammaincc(a, x);
    if (error == 0.0) break;
    (error > 0.0 ? high : low) = x;
    const double slope = gammainc_density(a, x), newton = error / slope;
    const double bend = std::fmin(std::fmax(0.5 * newton * ((a - 1.0) / x - 1.0), -0.8), 0.8);
    double next = x - newton / (1.0 - bend);
    const bool halved = !(next >= low && next <= high);
    if (halved) next = high == kInf ? 2.0 * x : low == 0.0 ? 0.25 * x : 0.5 * (low + high);
    const double step = std::abs(next - x);
    x = next;
    // Halley's step cubes the error: after a small one there is nothing left.
    if (step <= (halved ? 2.0 * kEpsilon : 1e-6) * x || high - low <= 4.0 * kEpsilon * low) break;
  }
  return x;
}

}  // namespace incomplete_gamma

// The inverses of P and Q by x.
inline double gammaincinv(double a, double p) {
  if (!(a > 0.0) || !(p >= 0.0 && p <= 1.0) || a == kInf) return kNaN;
  if (p == 0.0) return 0.0;
  return p == 1.0 ? kInf : incomplete_gamma::solve(a, p, 1.0 - p);
}

inline double gammainccinv(double a, double q) {
  if (!(a > 0.0) || !(q >= 0.0 && q <= 1.0) || a == kInf) return kNaN;
  if (q == 1.0) return 0.0;
  return q == 0.0 ? kInf : incomplete_gamma::solve(a, 1.0 - q, q);
}

}  // namespace wengert::special
