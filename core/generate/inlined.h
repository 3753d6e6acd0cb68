// Which elementwise ops generated code computes in place.
#pragma once
#include "../kernels/vector.h"

namespace wengert::generate {

// The name of the functor. Null if the op must call the core's kernel: it has no functor or, for more than one element,
// its kernel does more than apply the functor.
const char* functor_of(Elementwise op, DType dtype, bool one_element);

// Whether the functor is a long computation, as those of functions on real numbers are: exp, tanh.
bool is_long(Elementwise op);

}  // namespace wengert::generate
