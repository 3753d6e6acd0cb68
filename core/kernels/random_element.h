// Uniform numbers of one element: those of its first attempt, and those of the attempts after it.
#pragma once
#include <array>

#include "random.h"

namespace wengert {

inline uint64_t wide_word(const uint32_t* w) { return static_cast<uint64_t>(w[1]) << 32 | w[0]; }

// In (0, 1): the middles of 2²³ or 2⁵² equal parts.
inline float open_unit(uint32_t word) { return static_cast<float>(word >> 9) * 0x1p-23f + 0x1p-24f; }
inline double open_unit(uint64_t word) { return static_cast<double>(word >> 12) * 0x1p-52 + 0x1p-53; }

// What the element draws after its first attempt, two numbers at a time: Philox numbers these in the upper half of its
// counter.
class ElementStream {
 public:
  ElementStream(RandomStream s, int64_t element) : s_(s), counter_(s.counter + static_cast<uint64_t>(element)) {}

  std::array<double, 2> next() {
    const PhiloxBlock b =
        philox({static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32), ++attempt_, 0}, s_.key_low,
               s_.key_high);
    return {open_unit(wide_word(b.data())), open_unit(wide_word(b.data() + 2))};
  }

 private:
  RandomStream s_;
  uint64_t counter_;
  uint32_t attempt_ = 0;
};

// The same, where the first two numbers were drawn together with those of other elements.
class Pairs {
 public:
  Pairs(const uint32_t* words, RandomStream s, int64_t element)
      : first_{open_unit(wide_word(words)), open_unit(wide_word(words + 2))}, rest_(s, element) {}

  std::array<double, 2> next() {
    if (!used_) return used_ = true, first_;
    return rest_.next();
  }

 private:
  std::array<double, 2> first_;
  ElementStream rest_;
  bool used_ = false;
};

}  // namespace wengert
