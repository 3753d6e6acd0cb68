// Tridiagonal form of Hermitian matrices by Householder reflectors. LAPACK's way halves the memory traffic of a large
// matrix; one that stays in the cache is faster updated at once, in the pass that multiplies it by the next vector.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "../threads.h"
#include "lapack.h"
#include "symmetric_rows.h"
#include "tridiagonal.h"

namespace wengert {

namespace {

constexpr int64_t kCacheBytes = 1 << 18;    // of a matrix that stays in a core's second-level cache
constexpr int64_t kTileElements = 1 << 12;  // of the matrix: some 1 µs; more than two tiles cost more to join

template <class R>
struct Reflection {
  R image, tau;
};

// Of x[n], which is zero before `at`: x := the vector, with 1 at `at`, of a reflector that maps x to a multiple of the
// unit vector there, which is `image`.
template <class R>
Reflection<R> reflect(const SymmetricRows<R>& kernels, int64_t n, int64_t at, R* x) {
  using limits = std::numeric_limits<R>;
  constexpr R least = limits::min() / (limits::epsilon() * limits::epsilon());
  R first = std::exchange(x[at], R(0)), rest = kernels.dot(n, x, x), scale = 1;
  if (first * first + rest < least) {  // underflow may have cost digits
    scale = std::abs(first);
    for (int64_t i = 0; i < n; ++i) scale = std::max(scale, std::abs(x[i]));
    if (scale > 0) {
      first /= scale;
      for (int64_t i = 0; i < n; ++i) x[i] /= scale;
      rest = kernels.dot(n, x, x);
    }
  }
  x[at] = 1;
  if (rest == 0) return {first * scale, 0};
  const R image = -std::copysign(std::sqrt(first * first + rest), first);
  for (int64_t i = at + 1; i < n; ++i) x[i] /= first - image;
  return {image * scale, (image - first) / image};
}

template <class R>
void form_in_cache(int64_t n, R* a, R* d, R* e, R* tau) {
  const SymmetricRows<R>& kernels = symmetric_rows(R{});
  constexpr int64_t kStep = kSymmetricStep;
  const int64_t ld = (n + kStep - 1) / kStep * kStep;
  const std::unique_ptr<R[]> memory(new R[(n + 4) * ld + kStep]());
  R* rows = memory.get();
  while (reinterpret_cast<uintptr_t>(rows) % (kStep * 4)) ++rows;
  for (int64_t i = 0; i < n; ++i) std::copy_n(a + i * n, n, rows + i * ld);
  // v and w are the update that is not done yet; x is the next vector, y its product with the matrix.
  R *v = rows + n * ld, *w = v + ld, *x = w + ld, *y = x + ld;
  for (int64_t j = 0; j + 1 < n; ++j) {
    const int64_t next = j + 1, begin = next / kStep * kStep, left = n - next;
    const R* row = rows + j * ld;
    for (int64_t i = j; i < n; ++i) x[i] = row[i] - (v[j] * w[i] + w[j] * v[i]);
    d[j] = x[j];
    std::fill(x + begin, x + next, R(0));
    const auto [image, factor] = reflect(kernels, ld - begin, next - begin, x + begin);
    e[j] = image;
    tau[j] = factor;
    std::copy(x + next + 1, x + n, a + j * n + next + 1);

    const int64_t tiles = left * left < 2 * kTileElements ? 1 : 2;
    parallel_for(tiles, [&](int64_t tile) {
      const int64_t first = next + left * tile / tiles, last = next + left * (tile + 1) / tiles;
      kernels.update_multiply(last - first, ld - begin, rows + first * ld + begin, ld, v + first, w + first, v + begin,
                              w + begin, x + begin, y + first);
    });
    const R along = -factor * factor / 2 * kernels.dot(ld - begin, x + begin, y + begin);
    std::swap(v, x);
    std::fill(w + begin, w + next, R(0));
    for (int64_t i = next; i < n; ++i) w[i] = factor * y[i] + along * v[i];
  }
  d[n - 1] = rows[(n - 1) * ld + n - 1] - 2 * v[n - 1] * w[n - 1];
}

}  // namespace

template <class T>
int tridiagonal_form(int64_t n, T* a, lapack::Real<T>* d, lapack::Real<T>* e, T* tau) {
  if constexpr (!lapack::is_complex_v<T>) {
    if (n * n * static_cast<int64_t>(sizeof(T)) <= kCacheBytes) {
      form_in_cache(n, a, d, e, tau);
      return 0;
    }
  }
  const int order = static_cast<int>(n);
  T asked;
  lapack::hetrd(order, a, order, d, e, tau, &asked, -1);
  const int size = std::max(1, static_cast<int>(std::real(asked)));
  const std::unique_ptr<T[]> work(new T[size]);
  return lapack::hetrd(order, a, order, d, e, tau, work.get(), size);
}

template int tridiagonal_form(int64_t, float*, float*, float*, float*);
template int tridiagonal_form(int64_t, double*, double*, double*, double*);
template int tridiagonal_form(int64_t, lapack::c64*, float*, float*, lapack::c64*);
template int tridiagonal_form(int64_t, lapack::c128*, double*, double*, lapack::c128*);

}  // namespace wengert
