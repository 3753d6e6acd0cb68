// Which elementwise ops generated code computes in place.
#pragma once
#include "../kernels/vector.h"

namespace wengert::generate {

// The name of the functor. Null if the op must call the core's kernel: it has no functor or, for more than one element,
// its kernel does more than apply the functor.
const char* functor_of(Elementwise op, DType dtype, bool one_element);

}  // namespace wengert::generate
