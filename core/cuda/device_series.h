// Special functions that are computed element by element in double: the functors of elementwise_scalar.def, which
// chains name like all others, and functions with integer orders. They are those of the CPU; the C library's functions
// in them are NVIDIA's.
#pragma once
#include "device_product.h"
#include "scalar_functions.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace op {

#define ELEMENTWISE(name, operands, dtype_class, result)                \
  struct name {                                                         \
    template <Float T, class... Rest>                                   \
      requires(sizeof...(Rest) + 1 == operands)                         \
    static T apply(T x, Rest... rest) {                                 \
      return static_cast<T>(special::name(double{x}, double{rest}...)); \
    }                                                                   \
  };
#include "elementwise_scalar.def"
#undef ELEMENTWISE

#define WENGERT_OF_COMPLEX(name)                                                                          \
  struct complex_##name {                                                                                 \
    template <class T>                                                                                    \
    static Complex<T> apply(Complex<T> z) {                                                               \
      const special::ComplexNumber y = special::name(special::ComplexNumber{double{z.re}, double{z.im}}); \
      return {static_cast<T>(y.re), static_cast<T>(y.im)};                                                \
    }                                                                                                     \
  };
WENGERT_OF_COMPLEX(erf)
WENGERT_OF_COMPLEX(erfc)
#undef WENGERT_OF_COMPLEX

}  // namespace op

namespace ordered {

using namespace special;
#define ORDERED(name, operands, first, second, lowest, highest, ...)           \
  struct call_##name {                                                         \
    static constexpr int kOperands = operands;                                 \
    static double apply(const double* x, const int* n) { return __VA_ARGS__; } \
  };
#include "scalar_ordered.def"
#undef ORDERED

}  // namespace ordered

// y = f(operands, orders). Words: y, three operands, n, two orders.
template <class F, DType D>
WENGERT_INLINE void map_ordered(const int64_t* words, int64_t block_number) {
  constexpr DType kComputed = D == DType::Float64 ? DType::Float64 : DType::Float32;
  const int64_t at = global_thread(block_number);
  if (at >= words[4]) return;
  const int orders[] = {static_cast<int>(words[5]), static_cast<int>(words[6])};
  double x[F::kOperands];
  for (int k = 0; k < F::kOperands; ++k) x[k] = convert<D, kComputed>(address<const Storage<D>>(words[1 + k])[at]);
  address<Storage<D>>(words[0])[at] = convert<kComputed, D>(static_cast<Storage<kComputed>>(F::apply(x, orders)));
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE
