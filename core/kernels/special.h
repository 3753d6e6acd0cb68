// Special functions of an integer order, element by element in double.
#pragma once
#include <cstdint>

#include "../dtype.h"

namespace wengert {

enum class OrderedFunction : uint8_t {
  polygamma,        // the n-th derivative of digamma
  bessel_i,         // I_n(x) / x^n, an even entire function whose derivative is x I_{n+1}(x) / x^{n+1}
  bessel_i_scaled,  // the same times e^-|x|
};

// y[i] = f_n(x[i]) for n elements of a real floating dtype.
void map_ordered(OrderedFunction f, DType dtype, int order, const void* x, void* y, int64_t n);

}  // namespace wengert
