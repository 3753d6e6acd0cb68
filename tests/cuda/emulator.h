// Runs CUDA kernels on the CPU, for tests on machines without a GPU: the threads of a block are fibers that take turns
// at barriers and shuffles, and blocks run one after the other. Included before the source of a kernel.
#pragma once
#include <math.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ [[gnu::always_inline]] inline
#define __grid_constant__
#define __launch_bounds__(...)

namespace emulator {

struct Position {
  unsigned x = 0, y = 0, z = 0;
};

struct Fiber {
  ucontext_t context;
  bool done = false;
  char* stack = nullptr;
};

inline constexpr size_t kStack = size_t{256} << 10;
inline constexpr int kMostThreads = 1024;

inline Fiber fibers[kMostThreads];
inline ucontext_t scheduler;
inline int current = 0;
inline uint32_t exchanged[kMostThreads];
inline void (*body)(const void*) = nullptr;
inline const void* body_words = nullptr;

inline void enter() {
  body(body_words);
  fibers[current].done = true;
  swapcontext(&fibers[current].context, &scheduler);
}

// Lets every other thread come to the same point.
inline void barrier() { swapcontext(&fibers[current].context, &scheduler); }

}  // namespace emulator

inline emulator::Position threadIdx, blockIdx, blockDim, gridDim;

inline void __syncthreads() { emulator::barrier(); }
inline void __syncwarp(unsigned = 0xffffffffu) { emulator::barrier(); }
inline uint32_t __shfl_xor_sync(unsigned, uint32_t value, int step) {
  emulator::exchanged[emulator::current] = value;
  emulator::barrier();
  const uint32_t other = emulator::exchanged[emulator::current ^ step];
  emulator::barrier();
  return other;
}

namespace emulator {

inline void run(void (*kernel)(const void*), const void* words, int64_t grid, int block) {
  body = kernel;
  body_words = words;
  gridDim.x = static_cast<unsigned>(grid);
  blockDim.x = static_cast<unsigned>(block);
  for (int64_t b = 0; b < grid; ++b) {
    blockIdx.x = static_cast<unsigned>(b);
    for (int t = 0; t < block; ++t) {
      Fiber& f = fibers[t];
      f.done = false;
      if (!f.stack) f.stack = static_cast<char*>(std::malloc(kStack));
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack;
      f.context.uc_stack.ss_size = kStack;
      f.context.uc_link = &scheduler;
      makecontext(&f.context, enter, 0);
    }
    for (bool alive = true; alive;) {
      alive = false;
      for (int t = 0; t < block; ++t) {
        if (fibers[t].done) continue;
        current = t;
        threadIdx.x = static_cast<unsigned>(t);
        swapcontext(&scheduler, &fibers[t].context);
        alive = alive || !fibers[t].done;
      }
    }
  }
}

}  // namespace emulator
