// The rounds of Philox4x32-10 on several counters side by side, for the vectoriser. Every file that includes this has
// code of its own, for the instruction set that it is compiled for.
#pragma once
#include <cstdint>

namespace wengert {

// The four words of each counter.
template <int kLanes>
struct PhiloxLanes {
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
};

template <int kLanes>
static inline void philox_rounds(PhiloxLanes<kLanes>& x, uint32_t key_low, uint32_t key_high) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t a = kMultiplier0 * x.c0[i], b = kMultiplier1 * x.c2[i];
      x.c0[i] = static_cast<uint32_t>(b >> 32) ^ x.c1[i] ^ key_low;
      x.c1[i] = static_cast<uint32_t>(b);
      x.c2[i] = static_cast<uint32_t>(a >> 32) ^ x.c3[i] ^ key_high;
      x.c3[i] = static_cast<uint32_t>(a);
    }
    key_low += kWeyl0;
    key_high += kWeyl1;
  }
}

}  // namespace wengert
