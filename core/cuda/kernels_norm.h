// Norms by kernels of their own, where rows lie packed; what they do not take is made of chains (kernels_rows.cpp).
#pragma once
#include "device.h"

namespace wengert::cuda {

// Each returns false, and has done nothing, where it does not take these rows. Operands are those of the ops.
bool standardise_long_rows(CudaDevice& gpu, Value* const* in, const Attrs& attrs, Value** out);
bool long_rows_cotangent(CudaDevice& gpu, Value* const* in, const Attrs& attrs, Value** out);
bool packed_rows_cotangent(CudaDevice& gpu, Value* const* in, const Attrs& attrs, Value** out);

}  // namespace wengert::cuda
