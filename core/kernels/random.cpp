#include "random.h"

#include <algorithm>
#include <numbers>

#include "../threads.h"
#include "philox.h"
#include "random_rows.h"
#include "vector.h"

namespace wengert {

namespace {

constexpr int64_t kTile = 2048;  // elements; a whole number of blocks

constexpr int64_t per_block(bool wide) { return wide ? 2 : 4; }

// Calls f(words, first, count) for tiles of elements. Words are 32 or, if wide, 64 bits per element; the
// buffer always holds a whole tile, so that pairs and lanes may run past `count`.
template <class Word, class F>
void for_tiles(int64_t n, RandomStream s, F&& f) {
  constexpr int64_t per = per_block(sizeof(Word) == 8);
  parallel_for((n + kTile - 1) / kTile, [&](int64_t tile) {
    const int64_t first = tile * kTile, count = std::min(kTile, n - first);
    Word words[kTile];
    uint32_t raw[kTile * sizeof(Word) / 4];
    const int64_t blocks = (count + per - 1) / per;
    philox_words(raw, {s.key_low, s.key_high, s.counter + static_cast<uint64_t>(first / per)}, blocks);
    for (int64_t i = 0; i < blocks * per; ++i) {
      if constexpr (sizeof(Word) == 8) {
        words[i] = static_cast<uint64_t>(raw[2 * i + 1]) << 32 | raw[2 * i];
      } else {
        words[i] = raw[i];
      }
    }
    f(words, first, count);
  });
}

MapFn map_kernel(Elementwise e, DType d) { return kernels().map[static_cast<int>(e)][static_cast<int>(d)]; }

// Two normal numbers per pair of words: radius √(−2 log u), angle 2πv. u is in (0, 1].
template <class Real, class Word>
void box_muller(DType dtype, Real* y, const Word* words, int64_t pairs) {
  constexpr int kBits = sizeof(Word) * 8, kMantissa = sizeof(Real) == 4 ? 24 : 53;
  constexpr Real kUnit = sizeof(Real) == 4 ? Real(0x1p-32) : Real(0x1p-64);
  constexpr Real kTurn = Real(2 * std::numbers::pi) * (sizeof(Real) == 4 ? Real(0x1p-24) : Real(0x1p-53));
  Real radius[kTile / 2], angle[kTile / 2], cosine[kTile / 2], sine[kTile / 2];
  for (int64_t p = 0; p < pairs; ++p) {
    radius[p] = static_cast<Real>(words[2 * p]) * kUnit + kUnit / 2;
    angle[p] = static_cast<Real>(words[2 * p + 1] >> (kBits - kMantissa)) * kTurn;
  }
  const void* in = radius;
  map_kernel(Elementwise::log, dtype)(radius, &in, pairs);
  for (int64_t p = 0; p < pairs; ++p) radius[p] *= -2;
  map_kernel(Elementwise::sqrt, dtype)(radius, &in, pairs);
  in = angle;
  map_kernel(Elementwise::cos, dtype)(cosine, &in, pairs);
  map_kernel(Elementwise::sin, dtype)(sine, &in, pairs);
  for (int64_t p = 0; p < pairs; ++p) {
    y[2 * p] = radius[p] * cosine[p];
    y[2 * p + 1] = radius[p] * sine[p];
  }
}

// Draws in float32 or float64 and converts to the dtype. draw(out, words, count) may write a few elements
// further.
template <class Real, class Word, class F>
void draw_tiles(DType dtype, void* y, int64_t n, RandomStream s, F&& draw) {
  const DType computed = sizeof(Real) == 4 ? DType::Float32 : DType::Float64;
  const CastFn cast = kernels().cast[static_cast<int>(computed)][static_cast<int>(dtype)];
  for_tiles<Word>(n, s, [&](const Word* words, int64_t first, int64_t count) {
    Real out[kTile];
    draw(out, words, count);
    cast(static_cast<char*>(y) + first * size_of(dtype), out, count);
  });
}

// Two parts of variance ½ each.
template <class Real>
void halve_variance(Real* parts, int64_t count) {
  for (int64_t i = 0; i < count; ++i) parts[i] *= std::numbers::sqrt2_v<Real> / 2;
}

}  // namespace

PhiloxBlock philox(PhiloxBlock counter, uint32_t key_low, uint32_t key_high) {
  PhiloxLanes<1> x = {{counter[0]}, {counter[1]}, {counter[2]}, {counter[3]}};
  philox_rounds(x, key_low, key_high);
  return {x.c0[0], x.c1[0], x.c2[0], x.c3[0]};
}

void philox_words(uint32_t* words, RandomStream s, int64_t blocks, uint32_t attempt, uint32_t part) {
  random_rows(float()).words(words, s, blocks, attempt, part);
}

int64_t random_counters(RandomKind kind, int64_t size, DType dtype) {
  const int64_t per = per_block(kind == RandomKind::integers || real_of(dtype) == DType::Float64);
  if (is_complex(dtype)) size *= 2;
  return (size + per - 1) / per;
}

void random_words(uint32_t* words, int64_t first, int64_t n, RandomStream s) {
  uint32_t raw[kTile];
  const int64_t lead = first % 4;
  for (int64_t done = 0; done < n;) {
    const int64_t from = done == 0 ? lead : 0, count = std::min(kTile - from, n - done);
    const uint64_t block = static_cast<uint64_t>((first + done) / 4);
    philox_words(raw, {s.key_low, s.key_high, s.counter + block}, (from + count + 3) / 4);
    std::copy_n(raw + from, count, words + done);
    done += count;
  }
}

void random_uniform(DType dtype, void* y, int64_t n, RandomStream s) {
  if (dtype == DType::Float64) {
    draw_tiles<double, uint64_t>(dtype, y, n, s, [](double* out, const uint64_t* words, int64_t count) {
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<double>(words[i] >> 11) * 0x1p-53;
    });
    return;
  }
  const int bits = dtype == DType::Float16 ? 11 : dtype == DType::BFloat16 ? 8 : 24;
  const float unit = 1.0f / static_cast<float>(1 << bits);
  draw_tiles<float, uint32_t>(dtype, y, n, s, [&](float* out, const uint32_t* words, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(words[i] >> (32 - bits)) * unit;
  });
}

void random_normal(DType dtype, void* y, int64_t n, RandomStream s) {
  if (dtype == DType::Complex128) {
    draw_tiles<double, uint64_t>(DType::Float64, y, 2 * n, s, [](double* out, const uint64_t* words, int64_t count) {
      box_muller(DType::Float64, out, words, (count + 1) / 2);
      halve_variance(out, count);
    });
    return;
  }
  if (dtype == DType::Complex64) {
    draw_tiles<float, uint32_t>(DType::Float32, y, 2 * n, s, [](float* out, const uint32_t* words, int64_t count) {
      box_muller(DType::Float32, out, words, (count + 1) / 2);
      halve_variance(out, count);
    });
    return;
  }
  if (dtype == DType::Float64) {
    draw_tiles<double, uint64_t>(dtype, y, n, s, [](double* out, const uint64_t* words, int64_t count) {
      box_muller(DType::Float64, out, words, (count + 1) / 2);
    });
  } else {
    draw_tiles<float, uint32_t>(dtype, y, n, s, [](float* out, const uint32_t* words, int64_t count) {
      box_muller(DType::Float32, out, words, (count + 1) / 2);
    });
  }
}

void random_dropout(DType dtype, const void* x, void* y, int64_t n, double p, RandomStream s) {
  const DType wide = dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  const CastFn widen = kernels().cast[static_cast<int>(dtype)][static_cast<int>(wide)];
  const CastFn narrow = kernels().cast[static_cast<int>(wide)][static_cast<int>(dtype)];
  const auto drop = [p](auto* to, const auto* from, const uint32_t* words, int64_t count) {
    random_rows(*to).drop(to, from, words, count, p);
  };
  for_tiles<uint32_t>(n, s, [&](const uint32_t* words, int64_t first, int64_t count) {
    const char* from = static_cast<const char*>(x) + first * size_of(dtype);
    char* to = static_cast<char*>(y) + first * size_of(dtype);
    if (dtype == DType::Float64) {
      drop(reinterpret_cast<double*>(to), reinterpret_cast<const double*>(from), words, count);
    } else if (dtype == DType::Float32) {
      drop(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from), words, count);
    } else {
      float block[kTile];
      widen(block, from, count);
      drop(block, block, words, count);
      narrow(to, block, count);
    }
  });
}

void random_integers(int64_t* y, int64_t n, RandomStream s, int64_t low, int64_t high) {
  using uint128 = unsigned __int128;
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const uint64_t rejected = -span % span;  // 2⁶⁴ mod span: the products below it would be one too many
  for_tiles<uint64_t>(n, s, [&](const uint64_t* words, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      uint128 product = static_cast<uint128>(words[i]) * span;
      for (uint32_t attempt = 1; static_cast<uint64_t>(product) < rejected; ++attempt) {
        const uint64_t counter = s.counter + static_cast<uint64_t>((first + i) / 2);
        const PhiloxBlock block = philox(
            {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), attempt, 0}, s.key_low, s.key_high);
        const int word = (first + i) % 2 * 2;
        product = (static_cast<uint128>(block[word + 1]) << 32 | block[word]) * span;
      }
      y[first + i] = static_cast<int64_t>(static_cast<uint64_t>(low) + static_cast<uint64_t>(product >> 64));
    }
  });
}

}  // namespace wengert
