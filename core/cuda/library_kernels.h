// Ops without a kernel of ours that a library for Python computes on our memory and our stream, step by step and never
// in graphs. Set by the bindings.
#pragma once
#include "../ops/op.h"

namespace wengert::cuda {

struct LibraryKernels {
  bool (*serve)(const Op& op) = nullptr;
  // Fills packed outputs. Throws what the library raised.
  void (*run)(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) = nullptr;
};
extern LibraryKernels library_kernels;

}  // namespace wengert::cuda
