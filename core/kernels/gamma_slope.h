// How a draw z of Gamma(a, 1) moves with a while its probability P(a, z) stays: the implicit derivative (Figurnov,
// Mohamed and Mnih, "Implicit reparameterization gradients", 2018), to full accuracy and at every order.
#pragma once
#include <cstdint>

#include "../dtype.h"

namespace wengert {

// y = d ln z / da at l = ln z: −∂P/∂a / (z p(z)), with p the density.
void gamma_slope(DType dtype, const void* a, const void* l, void* y, int64_t n);

// The integrals that its derivatives are made of, of the tail that z cuts off, relative to z p(z) Γ(a):
// −∫₀^z ln(t/z)ᵏ t^(a−1) e^−t dt / (z^a e^−z) where z <= a, else ∫ from z to infinity of the same.
void gamma_tail(DType dtype, const void* a, const void* l, void* y, int64_t n, int order);

}  // namespace wengert
