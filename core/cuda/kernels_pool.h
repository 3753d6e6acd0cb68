// Windows over one to three spatial axes, as kernels of pooling and of convolution know them when they are compiled.
#pragma once
#include <string>

#include "../shape.h"

namespace wengert::cuda {

// `Window<...>` of device_pool.h. `absent`: how many of three axes there are not; they come first.
std::string window_text(int absent, const Dims& sizes, const Dims& strides, const Dims& paddings,
                        const Dims& dilations);

}  // namespace wengert::cuda
