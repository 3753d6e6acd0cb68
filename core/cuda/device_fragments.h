// What the threads of a warp do together for its matrix unit (sm_80 and later): products of small matrices whose
// elements are spread over the threads, their loads from shared memory, and copies to shared memory that go on while
// threads compute.
#pragma once
#include "device_memory.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

// An address in shared memory as these instructions take it.
#ifdef WENGERT_EMULATED
using SharedAddress = char*;
WENGERT_INLINE SharedAddress shared_address(void* p) { return static_cast<char*>(p); }
WENGERT_INLINE void* dynamic_shared() { return emulator::dynamic_shared; }
#else
using SharedAddress = uint32_t;
WENGERT_INLINE SharedAddress shared_address(void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
WENGERT_INLINE void* dynamic_shared() {  // as much as the launch says
  extern __shared__ __align__(16) char bytes[];
  return bytes;
}
#endif

// D += a b for a of 16 by 16 and b of 16 by 8 elements, which the threads of a warp share as PTX's mma.m16n8k16 has it.
template <class S>
WENGERT_INLINE void multiply_fragments(float& d0, float& d1, float& d2, float& d3, const uint32_t (&a)[4],
                                       const uint32_t (&b)[2]) {
#ifdef WENGERT_EMULATED
  emulator::multiply_fragments(d0, d1, d2, d3, a, b, [](uint16_t bits) { return widen(S{bits}); });
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<S, BFloat>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

// D += a b for a of 16 by 8 and b of 8 by 8 numbers, of which the unit takes the first 11 bits (mma.m16n8k8).
WENGERT_INLINE void multiply_truncated(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#ifdef WENGERT_EMULATED
  emulator::multiply_truncated(d, a, b);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// Four matrices of 8 by 8 elements of 16 bits: thread t says where row t % 8 of matrix t / 8 begins, and gets elements
// (t / 4, 2 (t % 4)) and the one right of it of each, or of their transposes.
template <bool kTransposed>
WENGERT_INLINE void load_fragments(uint32_t (&to)[4], SharedAddress row) {
#ifdef WENGERT_EMULATED
  emulator::load_fragments(to, row, kTransposed);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
  }
#endif
}

// Neighbours of 16 bits.
template <class S>
WENGERT_INLINE uint32_t pack_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  if constexpr (std::is_same_v<S, BFloat>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  return std::bit_cast<uint16_t>(narrow<S>(low)) | uint32_t{std::bit_cast<uint16_t>(narrow<S>(high))} << 16;
#endif
}

// kBytes (4 or 16) from global to shared memory, or zeros if there is nothing to be read. It is there once the thread
// has committed and waited.
template <int kBytes>
WENGERT_INLINE void copy_async(SharedAddress to, const void* from, bool present) {
#ifdef WENGERT_EMULATED
  emulator::copy_async(to, from, kBytes, present);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const int bytes = present ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  }
#endif
}
WENGERT_INLINE void commit_copies() {
#ifdef WENGERT_EMULATED
  emulator::commit_copies();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}
// Until all but the latest kGroups that this thread has committed are there.
template <int kGroups>
WENGERT_INLINE void wait_for_copies() {
#ifdef WENGERT_EMULATED
  emulator::wait_for_copies(kGroups);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroups) : "memory");
#endif
}

// 2ˣ to two units in the last place; 0 instead of subnormal numbers.
WENGERT_INLINE float power_of_two(float x) {
#ifdef WENGERT_EMULATED
  return ::exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
#endif
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
