// Uniform numbers of one element: those of its first attempt, and those of the attempts after it.
#pragma once
#include "random.h"
#include "scalar_draws.h"

namespace wengert {

inline uint64_t wide_word(const uint32_t* w) { return static_cast<uint64_t>(w[1]) << 32 | w[0]; }

inline draws::Uniforms uniforms_of(const uint32_t* words) {
  return {draws::open_unit(wide_word(words)), draws::open_unit(wide_word(words + 2))};
}

// What the element draws after its first attempt, two numbers at a time: Philox numbers these in the upper half of its
// counter.
class ElementStream {
 public:
  ElementStream(RandomStream s, int64_t element) : s_(s), counter_(s.counter + static_cast<uint64_t>(element)) {}

  draws::Uniforms next() {
    const PhiloxBlock b =
        philox({static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32), ++attempt_, 0}, s_.key_low,
               s_.key_high);
    return uniforms_of(b.data());
  }

 private:
  RandomStream s_;
  uint64_t counter_;
  uint32_t attempt_ = 0;
};

// The same, where the first two numbers were drawn together with those of other elements.
class Pairs {
 public:
  Pairs(const uint32_t* words, RandomStream s, int64_t element) : first_(uniforms_of(words)), rest_(s, element) {}

  draws::Uniforms next() {
    if (!used_) return used_ = true, first_;
    return rest_.next();
  }

 private:
  draws::Uniforms first_;
  ElementStream rest_;
  bool used_ = false;
};

}  // namespace wengert
