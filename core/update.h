// The step of an optimizer: one program, run in place on parameters and their states.
#pragma once
#include "program.h"
#include "tensor.h"

namespace wengert {

// A parameter, its gradient (null: that of its leaf) and its state.
struct Updated {
  Tensor* parameter;
  Tensor* gradient;
  Tensor* const* state;
  size_t n_state;
};

// Runs the program on each: its operands are the parameter, the gradient, the state and the numbers, its results the
// new parameter and the new state. If a gradient is missing nothing is changed, and the positions of those without one
// are returned. Throws, before anything is changed, where something does not fit.
std::vector<size_t> update(const Program& p, const std::vector<Updated>& all, Value* const* numbers, size_t n_numbers);

}  // namespace wengert
