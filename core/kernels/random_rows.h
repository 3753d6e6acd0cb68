// The inner loops of random draws, compiled once per instruction set from vector_random.cpp. Their bits are the same in
// all.
#pragma once
#include <cstdint>

#include "random.h"

namespace wengert {

template <class T>
struct RandomRows {
  // As philox_words.
  void (*words)(uint32_t* words, RandomStream stream, int64_t blocks, uint32_t attempt, uint32_t part);
  // y = x / (1 − p), or 0 where the number in [0, 1) that the upper 24 bits of the word stand for is less than p.
  void (*drop)(T* y, const T* x, const uint32_t* words, int64_t n, double p);
};

const RandomRows<float>& random_rows(float);
const RandomRows<double>& random_rows(double);

}  // namespace wengert
