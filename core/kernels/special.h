// Special functions that have integer orders besides their operands, element by element in double.
#pragma once
#include <cstdint>

#include "../dtype.h"

namespace wengert {

// f(operands, orders)
using OrderedFunction = double (*)(const double* x, const int* orders);

// y[i] = f({x[0][i], x[1][i], …}, orders) for n elements of a real floating dtype.
void map_ordered(OrderedFunction f, DType dtype, const int* orders, const void* const* x, int operands, void* y,
                 int64_t n);

}  // namespace wengert
