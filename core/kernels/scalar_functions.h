// Special functions of doubles, one element at a time. Names and conventions are those of scipy.special.
#pragma once
#include <complex>

namespace wengert::special {

// Gamma's: P(a, x), Q(a, x) = 1 − P, ∂P/∂x, and the inverses of P and Q by x.
double gammainc(double a, double x);
double gammaincc(double a, double x);
double gammainc_density(double a, double x);
double gammaincinv(double a, double p);
double gammainccinv(double a, double q);
inline constexpr int kGammaincOrders = 4;
double gammainc_by_a(double a, double x, int order);  // (∂/∂a)ⁿ P for n up to kGammaincOrders

// Beta's: I_x(a, b), ∂I/∂x, and the inverse by x.
double betainc(double a, double b, double x);
double betainc_density(double a, double b, double x);
double betaincinv(double a, double b, double p);
inline constexpr int kBetaincOrders = 4;
double betainc_by_ab(double a, double b, double x, int m, int n);  // (∂/∂a)ᵐ (∂/∂b)ⁿ I for m + n up to kBetaincOrders

// The normal distribution's quantile, and the error functions of complex numbers.
double ndtri(double p);
std::complex<double> erf(std::complex<double> z);
std::complex<double> erfc(std::complex<double> z);

// The von Mises distribution's: F(x; κ) of an angle x around 0, (∂/∂κ)ⁿ F, and the inverse by x in [−π, π].
inline constexpr int kVonMisesOrders = 4;
double von_mises_cdf(double x, double k, int order);
double von_mises_icdf(double p, double k);

// Γ(x) and B(a, b) = Γ(a) Γ(b) / Γ(a + b)
double gamma(double x);
double beta(double a, double b);

// Hurwitz' ζ(s, q) = Σ (q + k)⁻ˢ for s > 1, and (∂/∂s)ⁿ of it
inline constexpr int kZetaOrders = 6;
double zeta(double s, double q);
double zeta_by_s(double s, double q, int order);

// Bessel functions. J and Y of integer order; (∂/∂v)ⁿ of the modified functions of real order, `scaled` by e⁻|x| (I)
// and eˣ (K).
inline constexpr int kBesselOrders = 4;
double bessel_j(int n, double x);
double bessel_y(int n, double x);
double bessel_iv(double v, double x, int order, bool scaled);
double bessel_kv(double v, double x, int order, bool scaled);

}  // namespace wengert::special
