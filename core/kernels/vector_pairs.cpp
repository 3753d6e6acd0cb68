// Two elementwise instructions as one loop, of one instruction set: what the first computes stays in a register. Each
// op rounds as it does alone (-ffp-contract=off), so a pair gives the same bits as its two loops.
#include "vector_map.h"

#include <array>

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

template <class Op>
constexpr bool is_unary = !requires(float a) { Op::apply(a, a); };

// in: the operands of First, then the other operand of Second. kLeft: First gives the left one.
template <class First, class Second, bool kLeft, class T>
void map_pair(void* out, const void* const* in, int64_t n) {
  constexpr int kOther = is_unary<First> ? 1 : 2;
  auto* y = static_cast<T*>(out);
  const auto* a = static_cast<const T*>(in[0]);
  [[maybe_unused]] const auto* b = static_cast<const T*>(in[is_unary<First> ? 0 : 1]);
  [[maybe_unused]] const auto* c = static_cast<const T*>(in[is_unary<Second> ? 0 : kOther]);
#pragma GCC ivdep
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; ++i) {
    T t;
    if constexpr (is_unary<First>)
      t = First::apply(a[i]);
    else
      t = First::apply(a[i], b[i]);
    if constexpr (is_unary<Second>)
      y[i] = Second::apply(t);
    else if constexpr (kLeft)
      y[i] = Second::apply(t, c[i]);
    else
      y[i] = Second::apply(c[i], t);
  }
}

#define WENGERT_PAIRED(X) X(add) X(sub) X(mul) X(div) X(scale) X(square) X(sqrt)

struct Pairs {
  static constexpr int kOps = 7;
  std::array<PairKernel, kOps * kOps * 2 * 2> kernels{};
  int n = 0;

  template <class First, class Second, bool kLeft>
  constexpr void add_pair(Elementwise first, Elementwise second) {
    kernels[n++] = {first, second, DType::Float32, kLeft, map_pair<First, Second, kLeft, float>};
    kernels[n++] = {first, second, DType::Float64, kLeft, map_pair<First, Second, kLeft, double>};
  }

  template <class First>
  constexpr void add_first(Elementwise first) {
#define PAIR(name)                                           \
  add_pair<First, op::name, true>(first, Elementwise::name); \
  if constexpr (!is_unary<op::name>) add_pair<First, op::name, false>(first, Elementwise::name);
    WENGERT_PAIRED(PAIR)
#undef PAIR
  }

  constexpr Pairs() {
#define FIRST(name) add_first<op::name>(Elementwise::name);
    WENGERT_PAIRED(FIRST)
#undef FIRST
  }
};

constexpr Pairs kPairs;

}  // namespace

const PairKernel* pairs(int* n);
const PairKernel* pairs(int* n) {
  *n = kPairs.n;
  return kPairs.kernels.data();
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
