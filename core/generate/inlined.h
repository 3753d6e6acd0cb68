// Which elementwise ops generated code computes in place.
#pragma once
#include "../kernels/vector.h"

namespace wengert::generate {

// The name of the functor; null where the op has to call the core's kernel: it has no functor, or (for more than one
// element) one whose loop is more than the functor.
const char* functor_of(Elementwise op, DType dtype, bool one_element);

}  // namespace wengert::generate
