// The GPUs that Python names by their device numbers.
#pragma once
#include "../cuda/device.h"

namespace wengert {

cuda::CudaDevice& gpu_at(int number);       // throws a Python exception if it is none that was opened
cuda::CudaDevice* as_gpu(DeviceId device);  // null if it is none

}  // namespace wengert
