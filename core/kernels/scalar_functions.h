// Special functions of doubles, one element at a time, on the CPU and in kernels of GPUs: the whole of them. Names and
// conventions are those of scipy.special. A `scalar_` header names the C library as `std::`, throws nothing, and does
// not recurse: a GPU's stacks are short.
#pragma once
#include "scalar_bessel.h"
#include "scalar_complex_erf.h"
#include "scalar_gamma.h"
#include "scalar_incomplete_beta.h"
#include "scalar_incomplete_gamma.h"
#include "scalar_normal_quantile.h"
#include "scalar_von_mises.h"
