// Random numbers of distributions that have parameters, by rejection or inversion. Every element has a counter of its
// own, so one that is drawn again disturbs no other. Parameters outside of their domain give NaN. Real floating dtypes.
#pragma once
#include <cstdint>

#include "../dtype.h"
#include "random.h"

namespace wengert {

// Gamma(a, 1), or its logarithm, which does not underflow where a is small. Marsaglia and Tsang, "A simple method for
// generating gamma variables", 2000.
void random_gamma(DType dtype, const void* a, void* y, int64_t n, bool logarithm, RandomStream stream);

// Angles in [−π, π] with the density exp(κ cos x) / (2π I₀(κ)). Best and Fisher, "Efficient simulation of the von Mises
// distribution", 1979.
void random_von_mises(DType dtype, const void* concentration, void* y, int64_t n, RandomStream stream);

// Counts with this mean: inversion for small ones, else transformed rejection (Hörmann, "The transformed rejection
// method for generating Poisson random variables", 1993).
void random_poisson(DType dtype, const void* rate, void* y, int64_t n, RandomStream stream);

// How many of `count` trials succeed: inversion, or transformed rejection (Hörmann, "The generation of binomial random
// variates", 1993).
void random_binomial(DType dtype, const void* count, const void* p, void* y, int64_t n, RandomStream stream);

// How many of a row's count trials fall into each of its classes, which have the weights p: binomials in turn.
void random_multinomial(DType dtype, const void* count, const void* p, void* y, int64_t rows, int64_t classes,
                        RandomStream stream);

// `draws` classes of each row of weights p, in y[draw, row].
void random_categorical(DType dtype, const void* p, int64_t* y, int64_t draws, int64_t rows, int64_t classes,
                        RandomStream stream);

}  // namespace wengert
