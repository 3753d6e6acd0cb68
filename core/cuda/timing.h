// Times of work on GPUs, for the profiler: events around what it sees.
#pragma once

namespace wengert::cuda {

void time_profiles();  // from now on; once

}  // namespace wengert::cuda
