// Runs CUDA kernels on the CPU, for tests on machines without a GPU: the threads of a block are fibers that take turns
// at barriers and shuffles, and blocks run one after the other. A barrier that some threads never reach ends the program. Included before the source of a kernel.
#pragma once
#include <math.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ [[gnu::always_inline]] inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __noinline__
#define WENGERT_EMULATED

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
inline void (*body)(const void*) = nullptr;
inline const void* body_words = nullptr;

// Threads that come to the same point: of a block, or of a warp.
struct Meeting {
  int alive = 0, arrived = 0;
  int64_t held = 0;  // how many meetings there were
};

inline bool turn[kMostThreads];
inline Meeting of_block, of_warp[kMostThreads / 32];
inline int64_t progress = 0;  // whether anything happens in a round

inline void yield() { swapcontext(&fibers[current].context, &scheduler); }

inline void end_if_all(Meeting& m) {
  if (m.arrived == 0 || m.arrived < m.alive) return;
  m.arrived = 0;
  ++m.held;
  ++progress;
}

// Waits for all threads that have not ended.
inline void meet(Meeting& m) {
  const int64_t before = m.held;
  ++m.arrived;
  ++progress;
  end_if_all(m);
  while (m.held == before) yield();
}

inline void enter() {
  body(body_words);
  fibers[current].done = true;
  ++progress;
  for (Meeting* m : {&of_block, &of_warp[current / 32]}) {
    --m->alive;
    end_if_all(*m);
  }
  yield();
}

}  // namespace emulator

inline emulator::Position threadIdx, blockIdx, blockDim, gridDim;

inline void __syncthreads() { emulator::meet(emulator::of_block); }
inline void __syncwarp(unsigned = 0xffffffffu) { emulator::meet(emulator::of_warp[emulator::current / 32]); }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}

namespace emulator {

// What each thread of a warp shows to the others, who read it after they have met: there are two, since nobody comes to
// the second meeting before all have read what was shown at the first.
template <class T>
inline const T* shown_by_warp(const T& mine) {
  static T of_thread[2][kMostThreads];
  T* now = of_thread[turn[current] = !turn[current]];
  now[current] = mine;
  __syncwarp();
  return now + current / 32 * 32;
}

}  // namespace emulator

inline uint32_t __shfl_xor_sync(unsigned, uint32_t value, int step) {
  return emulator::shown_by_warp(value)[emulator::current % 32 ^ step];
}

namespace emulator {

struct Fragments {
  uint32_t a[4], b[2];
};

// mma.m16n8k16 of the threads of a warp: D += a b, with the elements where PTX says that each thread has them.
template <class Widen>
inline void multiply_fragments(float& d0, float& d1, float& d2, float& d3, const uint32_t (&a)[4],
                               const uint32_t (&b)[2], Widen widen) {
  const Fragments* of_lane = shown_by_warp(Fragments{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
  const int lane = current % 32;
  const auto half = [&](uint32_t pair, int k) { return widen(static_cast<uint16_t>(pair >> (k % 2 * 16))); };
  const auto at = [&](int row, int column, float& d) {
    for (int k = 0; k < 16; ++k) {
      const float x = half(of_lane[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2], k);
      const float y = half(of_lane[column * 4 + k % 8 / 2].b[k / 8], k);
      d += x * y;
    }
  };
  at(lane / 4, lane % 4 * 2, d0);
  at(lane / 4, lane % 4 * 2 + 1, d1);
  at(lane / 4 + 8, lane % 4 * 2, d2);
  at(lane / 4 + 8, lane % 4 * 2 + 1, d3);
}

// mma.m16n8k8 of TF32: the last 13 bits of factors count for nothing.
inline void multiply_truncated(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const Fragments* of_lane = shown_by_warp(Fragments{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
  const int lane = current % 32;
  const auto number = [](uint32_t bits) {
    float x;
    bits &= 0xffffe000u;
    std::memcpy(&x, &bits, sizeof(x));
    return x;
  };
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 8; ++k)
      d[i] += number(of_lane[row % 8 * 4 + k % 4].a[row / 8 + k / 4 * 2]) * number(of_lane[column * 4 + k % 4].b[k / 4]);
  }
}

// ldmatrix.x4 of the threads of a warp.
inline void load_fragments(uint32_t (&to)[4], const char* row, bool transposed) {
  const char* const* rows = shown_by_warp(row);
  const int lane = current % 32;
  const auto element = [&](int matrix, int r, int c) {
    uint16_t bits;
    std::memcpy(&bits, rows[matrix * 8 + r] + 2 * c, sizeof(bits));
    return static_cast<uint32_t>(bits);
  };
  for (int m = 0; m < 4; ++m) {
    const int i = lane / 4, k = lane % 4 * 2;
    to[m] = transposed ? element(m, k, i) | element(m, k + 1, i) << 16 : element(m, i, k) | element(m, i, k + 1) << 16;
  }
}

// What cp.async copies is not there before it was waited for.
struct Copy {
  char* to;
  const void* from;
  int bytes;
  bool present;
};
inline std::vector<std::vector<Copy>> copies[kMostThreads];  // of each thread, the groups: the last one is open
alignas(16) inline char dynamic_shared[227 << 10];

inline void copy_async(char* to, const void* from, int bytes, bool present) {
  if (reinterpret_cast<uintptr_t>(to) % bytes || (present && reinterpret_cast<uintptr_t>(from) % bytes)) {
    std::fprintf(stderr, "an asynchronous copy of %d bytes is not aligned\n", bytes);
    std::abort();
  }
  if (copies[current].empty()) copies[current].emplace_back();
  copies[current].back().push_back({to, from, bytes, present});
}
inline void commit_copies() {
  if (copies[current].empty()) copies[current].emplace_back();
  copies[current].emplace_back();
}
inline void wait_for_copies(int groups) {
  auto& mine = copies[current];
  while (static_cast<int>(mine.size()) > groups + 1) {
    for (const Copy& c : mine.front()) {
      std::memset(c.to, 0, c.bytes);
      if (c.present) std::memcpy(c.to, c.from, c.bytes);
    }
    mine.erase(mine.begin());
  }
}

inline void run(void (*kernel)(const void*), const void* words, int64_t grid, int block) {
  body = kernel;
  body_words = words;
  gridDim.x = static_cast<unsigned>(grid);
  blockDim.x = static_cast<unsigned>(block);
  for (int64_t b = 0; b < grid; ++b) {
    blockIdx.x = static_cast<unsigned>(b);
    of_block = {block};
    std::memset(turn, 0, sizeof(turn));
    std::memset(dynamic_shared, 0xFF, sizeof(dynamic_shared));  // NaN, as which no result may depend on it
    for (auto& of_thread : copies) of_thread.clear();
    for (int w = 0; w < block; w += 32) of_warp[w / 32] = {block - w < 32 ? block - w : 32};
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
      const int64_t before = progress;
      alive = false;
      for (int t = 0; t < block; ++t) {
        if (fibers[t].done) continue;
        current = t;
        threadIdx.x = static_cast<unsigned>(t);
        swapcontext(&scheduler, &fibers[t].context);
        alive = alive || !fibers[t].done;
      }
      if (alive && progress == before) {
        std::fprintf(stderr, "threads of block %ld wait at a barrier that others do not reach\n", static_cast<long>(b));
        std::abort();
      }
    }
  }
}

}  // namespace emulator
