// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011). An element is a function of the key, the counter and its position, so a replay draws the same and
// threads do not matter.
#pragma once
#include <array>
#include <cstdint>

#include "../dtype.h"

namespace wengert {

using PhiloxBlock = std::array<uint32_t, 4>;
PhiloxBlock philox(PhiloxBlock counter, uint32_t key_low, uint32_t key_high);

// Counters are 64 bits wide; the upper half of Philox's 128 numbers what one element draws: its further attempts, and
// the parts of an attempt that needs more than four words.
struct RandomStream {
  uint32_t key_low, key_high;
  uint64_t counter;
};

// The four words of each of `blocks` consecutive counters; writes whole lanes, up to seven blocks more.
void philox_words(uint32_t* words, RandomStream stream, int64_t blocks, uint32_t attempt = 0, uint32_t part = 0);

enum class RandomKind : uint8_t { uniform, normal, integers };

// How many counters a draw of `size` elements uses: one for four elements of up to 32 bits, one for two of
// float64 or int64, where a complex number is two. The next draw from the same key starts that much further.
int64_t random_counters(RandomKind kind, int64_t size, DType dtype);

// In [0, 1), on the grid of the dtype's precision below 1 (2⁻⁵³, 2⁻²⁴, 2⁻¹¹, 2⁻⁸), so that rounding never
// gives 1.
void random_uniform(DType dtype, void* y, int64_t n, RandomStream stream);
// The 32-bit words of elements [first, first + n) of a draw of float32: what random_uniform makes its numbers of.
void random_words(uint32_t* words, int64_t first, int64_t n, RandomStream stream);
// Box–Muller on pairs of uniforms, with the logarithm, sine and cosine of the vector kernels. A complex number has
// variance 1: ½ in each part.
void random_normal(DType dtype, void* y, int64_t n, RandomStream stream);
// y = x / (1 − p), or 0 where the number in [0, 1) that belongs to the element is less than p. Real floating dtypes.
void random_dropout(DType dtype, const void* x, void* y, int64_t n, double p, RandomStream stream);
// In [low, high), low < high, every value equally likely (Lemire, "Fast random integer generation in an
// interval", 2019).
void random_integers(int64_t* y, int64_t n, RandomStream stream, int64_t low, int64_t high);

}  // namespace wengert
