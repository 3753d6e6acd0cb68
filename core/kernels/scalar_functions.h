// Special functions of doubles, one element at a time. Names and conventions are those of scipy.special.
#pragma once

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

// The normal distribution's quantile.
double ndtri(double p);

}  // namespace wengert::special
