// The inner loops of random draws, for one instruction set; see random_rows.h.
#include "philox.h"
#include "random_rows.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

void write_words(uint32_t* words, RandomStream s, int64_t blocks, uint32_t attempt, uint32_t part) {
  constexpr int kLanes = 8;
  for (int64_t b = 0; b < blocks; b += kLanes) {
    PhiloxLanes<kLanes> x;
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t counter = s.counter + static_cast<uint64_t>(b + i);
      x.c0[i] = static_cast<uint32_t>(counter);
      x.c1[i] = static_cast<uint32_t>(counter >> 32);
      x.c2[i] = attempt, x.c3[i] = part;
    }
    philox_rounds(x, s.key_low, s.key_high);
    for (int i = 0; i < kLanes; ++i) {
      uint32_t* w = words + 4 * (b + i);
      w[0] = x.c0[i], w[1] = x.c1[i], w[2] = x.c2[i], w[3] = x.c3[i];
    }
  }
}

template <class T>
void drop(T* y, const T* x, const uint32_t* words, int64_t n, double p) {
  const float limit = static_cast<float>(p);
  const T scale = static_cast<T>(1.0 / (1.0 - p));
  for (int64_t i = 0; i < n; ++i) {
    const T kept = x[i] * scale;  // of all: the loop has no branches
    const float number = static_cast<float>(static_cast<int32_t>(words[i] >> 8)) * 0x1p-24f;
    y[i] = number >= limit ? kept : T(0);
  }
}

template <class T>
constexpr RandomRows<T> kRows = {write_words, drop<T>};

}  // namespace

const RandomRows<float>& random_rows_f32();
const RandomRows<double>& random_rows_f64();
const RandomRows<float>& random_rows_f32() { return kRows<float>; }
const RandomRows<double>& random_rows_f64() { return kRows<double>; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
