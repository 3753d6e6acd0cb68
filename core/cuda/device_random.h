// Random numbers: Philox, as on the CPU, so that the same key and counter give the same numbers. A thread makes one
// block of four words. Words: to, n, low and high key, counter.
#pragma once
#include "device_product.h"
#include "scalar_draws.h"
#include "scalar_gamma_slope.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

struct PhiloxBlock {
  uint32_t word[4];
};

// 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
WENGERT_INLINE PhiloxBlock philox(const int64_t* words, int64_t block, uint32_t attempt, uint32_t part = 0) {
  uint32_t low = static_cast<uint32_t>(words[2]), high = static_cast<uint32_t>(words[3]);
  const uint64_t counter = static_cast<uint64_t>(words[4]) + static_cast<uint64_t>(block);
  uint32_t c[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), attempt, part};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    c[0] = static_cast<uint32_t>(b >> 32) ^ c[1] ^ low;
    c[1] = static_cast<uint32_t>(b);
    c[2] = static_cast<uint32_t>(a >> 32) ^ c[3] ^ high;
    c[3] = static_cast<uint32_t>(a);
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

WENGERT_INLINE uint64_t wide_word(const PhiloxBlock& b, int k) {
  return static_cast<uint64_t>(b.word[2 * k + 1]) << 32 | b.word[2 * k];
}

template <DType D>
WENGERT_INLINE void uniform(const int64_t* words, int64_t block_number) {
  constexpr int kPer = D == DType::Float64 ? 2 : 4;
  const int64_t block = global_thread(block_number), n = words[1];
  if (block * kPer >= n) return;
  const PhiloxBlock b = philox(words, block, 0);
  auto* to = address<Storage<D>>(words[0]) + block * kPer;
  for (int k = 0; k < kPer && block * kPer + k < n; ++k) {
    if constexpr (D == DType::Float64) {
      to[k] = static_cast<double>(wide_word(b, k) >> 11) * 0x1p-53;
    } else {
      constexpr int kBits = D == DType::Float16 ? 11 : D == DType::BFloat16 ? 8 : 24;
      to[k] = convert<DType::Float32, D>(static_cast<float>(b.word[k] >> (32 - kBits)) *
                                         (1.0f / static_cast<float>(1 << kBits)));
    }
  }
}

// Two normal numbers of two words, by Box and Muller.
template <class Real, class Word>
WENGERT_INLINE void normal_pair(Word first, Word second, Real* y) {
  constexpr int kBits = sizeof(Word) * 8, kMantissa = sizeof(Real) == 4 ? 24 : 53;
  constexpr Real kUnit = sizeof(Real) == 4 ? Real(0x1p-32) : Real(0x1p-64);
  constexpr Real kTurn = Real(6.283185307179586) * (sizeof(Real) == 4 ? Real(0x1p-24) : Real(0x1p-53));
  const Real radius = libm::sqrt(math::log(static_cast<Real>(first) * kUnit + kUnit / 2) * Real(-2));
  const Real angle = static_cast<Real>(second >> (kBits - kMantissa)) * kTurn;
  y[0] = radius * math::cos(angle);
  y[1] = radius * math::sin(angle);
}

// D: of the parts of a complex number, of which there are n; `scale` is then √½.
template <DType D, bool kParts>
WENGERT_INLINE void normal(const int64_t* words, int64_t block_number) {
  constexpr int kPer = D == DType::Float64 ? 2 : 4;
  using Real = std::conditional_t<D == DType::Float64, double, float>;
  const int64_t block = global_thread(block_number), n = words[1];
  if (block * kPer >= n) return;
  const PhiloxBlock b = philox(words, block, 0);
  Real y[kPer];
  if constexpr (D == DType::Float64) {
    normal_pair<Real>(wide_word(b, 0), wide_word(b, 1), y);
  } else {
    normal_pair<Real>(b.word[0], b.word[1], y);
    normal_pair<Real>(b.word[2], b.word[3], y + 2);
  }
  auto* to = address<Storage<D>>(words[0]) + block * kPer;
  constexpr DType kComputed = D == DType::Float64 ? DType::Float64 : DType::Float32;
  for (int k = 0; k < kPer && block * kPer + k < n; ++k)
    to[k] = convert<kComputed, D>(kParts ? y[k] * (Real(1.4142135623730951) / 2) : y[k]);
}

// Words: …, low, high. As on the CPU, products that would be one too many are drawn again.
WENGERT_INLINE void integers(const int64_t* words, int64_t block_number) {
  const int64_t block = global_thread(block_number), n = words[1];
  if (block * 2 >= n) return;
  const uint64_t low = static_cast<uint64_t>(words[5]), span = static_cast<uint64_t>(words[6]) - low;
  const uint64_t rejected = (0 - span) % span;
  for (int k = 0; k < 2 && block * 2 + k < n; ++k) {
    uint64_t word = wide_word(philox(words, block, 0), k);
    for (uint32_t attempt = 1; word * span < rejected; ++attempt) word = wide_word(philox(words, block, attempt), k);
    address<int64_t>(words[0])[block * 2 + k] = static_cast<int64_t>(low + __umul64hi(word, span));
  }
}

// Words: …, from, p (a double).
template <DType D>
WENGERT_INLINE void dropout(const int64_t* words, int64_t block_number) {
  using Real = std::conditional_t<D == DType::Float64, double, float>;
  constexpr DType kComputed = D == DType::Float64 ? DType::Float64 : DType::Float32;
  const int64_t block = global_thread(block_number), n = words[1];
  if (block * 4 >= n) return;
  const PhiloxBlock b = philox(words, block, 0);
  const double p = constant<double>(words + 6);
  const float limit = static_cast<float>(p);
  const Real scale = static_cast<Real>(1.0 / (1.0 - p));
  for (int k = 0; k < 4 && block * 4 + k < n; ++k) {
    const bool kept = static_cast<float>(b.word[k] >> 8) * 0x1p-24f >= limit;
    const Real x = convert<D, kComputed>(address<const Storage<D>>(words[5])[block * 4 + k]);
    address<Storage<D>>(words[0])[block * 4 + k] = convert<kComputed, D>(kept ? x * scale : Real(0));
  }
}

// sums[row, k] = the weights of classes 0 … k, added one by one: a thread for each row. Words: sums (double), weights,
// rows, classes.
template <DType D>
WENGERT_INLINE void class_sums(const int64_t* words, int64_t block_number) {
  const int64_t row = global_thread(block_number), classes = words[3];
  if (row >= words[2]) return;
  double sum = 0;
  for (int64_t k = row * classes; k < (row + 1) * classes; ++k) {
    sum += static_cast<double>(factor<Accumulator<reduction::sum, Storage<D>>>(address<const Storage<D>>(words[1])[k]));
    address<double>(words[0])[k] = sum;
  }
}

// A class for each draw and row, by its place among the sums. Words: of all draws (device_random.h), sums, rows,
// classes.
WENGERT_INLINE void draw_classes(const int64_t* words, int64_t block_number) {
  const int64_t at = global_thread(block_number), classes = words[7];
  if (at >= words[1]) return;
  const double* sums = address<const double>(words[5]) + remainder(at, words[6]) * classes;
  const double total = sums[classes - 1];
  // Below the total also where the product rounds: the class that is found has a weight.
  const double below = total > 0 ? std::bit_cast<double>(std::bit_cast<int64_t>(total) - 1) : total;
  const double wanted = draws::open_unit(wide_word(philox(words, at, 0), 0)) * total,
               place = wanted < below ? wanted : below;
  int64_t first = 0, count = classes - 1;
  while (count > 0) {
    const int64_t half = count / 2;
    if (place < sums[first + half]) {
      count = half;
    } else {
      first += half + 1;
      count -= half + 1;
    }
  }
  address<int64_t>(words[0])[at] = first;
}

// The uniform numbers of one element, two at a time.
class Pairs {
 public:
  WENGERT_INLINE Pairs(const int64_t* words, int64_t element, uint32_t attempt = 0)
      : words_(words), element_(element), attempt_(attempt) {}

  WENGERT_INLINE draws::Uniforms next() {
    const PhiloxBlock b = philox(words_, element_, attempt_++);
    return {draws::open_unit(wide_word(b, 0)), draws::open_unit(wide_word(b, 1))};
  }

 private:
  const int64_t* words_;
  int64_t element_;
  uint32_t attempt_;
};

// What a number of dtype D is computed in, and how it is read and stored.
template <DType D>
struct DrawnIn {
  static constexpr DType kComputed = D == DType::Float64 ? DType::Float64 : DType::Float32;
  using Real = Storage<kComputed>;
  WENGERT_INLINE static Real load(int64_t word, int64_t at) {
    return convert<D, kComputed>(address<const Storage<D>>(word)[at]);
  }
  WENGERT_INLINE static void store(int64_t word, int64_t at, Real y) {
    address<Storage<D>>(word)[at] = convert<kComputed, D>(y);
  }
};

// Words: of all draws, shapes, whether logarithms are drawn.
template <DType D>
WENGERT_INLINE void draw_gamma(const int64_t* words, int64_t block_number) {
  using In = DrawnIn<D>;
  using Real = typename In::Real;
  constexpr DType kComputed = In::kComputed;
  const int64_t at = global_thread(block_number);
  if (at >= words[1]) return;
  const Real a = In::load(words[5], at);
  const bool small = a < Real(1), logarithm = words[6] != 0;
  const PhiloxBlock b = philox(words, at, 0);
  Real first, angle, uniform, boost;
  if constexpr (kComputed == DType::Float64) {
    const PhiloxBlock more = philox(words, at, 0, 1);
    first = draws::open_unit(wide_word(b, 0)), angle = draws::open_unit(wide_word(b, 1));
    uniform = draws::open_unit(wide_word(more, 0)), boost = draws::open_unit(wide_word(more, 1));
  } else {
    first = draws::open_unit(b.word[0]), angle = static_cast<float>(b.word[1] >> 8) * 0x1p-24f;
    uniform = draws::open_unit(b.word[2]), boost = draws::open_unit(b.word[3]);
  }
  const Real radius = map<op::sqrt, kComputed>(map<op::log, kComputed>(first) * Real(-2));
  const Real normal = map<op::cos, kComputed>(angle * Real(6.283185307179586)) * radius;
  Real y = draws::squeezed_gamma(small ? a + Real(1) : a, normal, uniform);
  if (!(a > Real(0))) {
    y = static_cast<Real>(draws::kNaN);
  } else if (!(y >= Real(0))) {
    const double shape = small ? double{a} + 1.0 : double{a};
    y = static_cast<Real>(draws::redrawn_gamma(shape, normal, uniform, Pairs(words, at, 1)));
  }
  // Gamma(a) is Gamma(a + 1) times U^(1/a).
  const Real log_boost = small ? map<op::log, kComputed>(boost) / a : Real(0);
  if (logarithm) {
    y = map<op::log, kComputed>(y) + log_boost;
  } else {
    constexpr Real kLeast = static_cast<Real>(draws::least_gamma(D));
    if (small) y *= map<op::exp, kComputed>(log_boost);
    y = y < kLeast ? kLeast : y;
  }
  In::store(words[0], at, y);
}

// Words of these: of all draws, one parameter or two.
template <DType D>
WENGERT_INLINE void draw_von_mises(const int64_t* words, int64_t block_number) {
  using In = DrawnIn<D>;
  const int64_t at = global_thread(block_number);
  if (at >= words[1]) return;
  Pairs pairs(words, at);
  In::store(words[0], at, static_cast<typename In::Real>(draws::von_mises(In::load(words[5], at), pairs)));
}

template <DType D>
WENGERT_INLINE void draw_poisson(const int64_t* words, int64_t block_number) {
  using In = DrawnIn<D>;
  const int64_t at = global_thread(block_number);
  if (at >= words[1]) return;
  Pairs pairs(words, at);
  const double rate = In::load(words[5], at);
  const double none = map<op::exp, DType::Float64>(-rate);
  In::store(words[0], at, static_cast<typename In::Real>(draws::poisson(rate, none, pairs)));
}

template <DType D>
WENGERT_INLINE void draw_binomial(const int64_t* words, int64_t block_number) {
  using In = DrawnIn<D>;
  const int64_t at = global_thread(block_number);
  if (at >= words[1]) return;
  Pairs pairs(words, at);
  const double count = In::load(words[5], at), p = In::load(words[6], at);
  In::store(words[0], at, static_cast<typename In::Real>(draws::binomial(count, p, pairs)));
}

// A thread for each row, of which there are n. Words: of all draws, counts, weights, room (a double for each weight),
// classes.
template <DType D>
WENGERT_INLINE void draw_multinomial(const int64_t* words, int64_t block_number) {
  using In = DrawnIn<D>;
  const int64_t row = global_thread(block_number), classes = words[8], start = row * classes;
  if (row >= words[1]) return;
  draws::multinomial(
      In::load(words[5], row), classes, address<double>(words[7]) + start,
      [&](int64_t k) { return double{In::load(words[6], start + k)}; },
      [&](int64_t k) { return Pairs(words, start + k); },
      [&](int64_t k, double count) { In::store(words[0], start + k, static_cast<typename In::Real>(count)); });
}

// How draws of Gamma(a, 1) move with a. Words: y, n, a, logarithms of the draws.
template <DType D>
WENGERT_INLINE void gamma_slope(const int64_t* words, int64_t block_number) {
  using In = DrawnIn<D>;
  constexpr int kNodes = D == DType::Float64 ? slopes::kNodes : slopes::kNodesNarrow;
  const int64_t at = global_thread(block_number);
  if (at >= words[1]) return;
  const double a = In::load(words[2], at), l = In::load(words[3], at);
  const double psi = map<op::digamma, DType::Float64>(a + 1.0);
  In::store(words[0], at, static_cast<typename In::Real>(slopes::slope<kNodes>(a, l, psi)));
}

// The same, and the order.
template <DType D>
WENGERT_INLINE void gamma_tail(const int64_t* words, int64_t block_number) {
  using In = DrawnIn<D>;
  const int64_t at = global_thread(block_number);
  if (at >= words[1]) return;
  const double y = slopes::tail(In::load(words[2], at), In::load(words[3], at), static_cast<int>(words[4]));
  In::store(words[0], at, static_cast<typename In::Real>(y));
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
