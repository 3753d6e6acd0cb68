// An optimizer's step: one program that runs in place on all parameters and their states.
#pragma once
#include "program.h"
#include "tensor.h"

namespace wengert {

// A parameter, its gradient (null: that of its leaf) and its optimizer state.
struct Updated {
  Tensor* parameter;
  Tensor* gradient;
  Tensor* const* state;
  size_t n_state;
};

// Runs the program on each parameter. Operands: the parameter, the gradient, the state and the numbers. Results: the
// new parameter and the new state. If gradients are missing, nothing changes and the positions of those parameters are
// returned. Throws on mismatched types before anything changes.
std::vector<size_t> update(const Program& p, const std::vector<Updated>& all, Value* const* numbers, size_t n_numbers);

}  // namespace wengert
