// The kernels of elementwise_scalar.def: loops over the functions of doubles, for each real floating dtype.
#include "number.h"
#include "scalar_functions.h"
#include "vector.h"

namespace wengert {

namespace {

template <class T, auto f, int operands>
void map_scalar(void* out, const void* const* in, int64_t n) {
  using N = Number<T>;
  const auto at = [&](int k, int64_t i) { return static_cast<double>(N::widen(static_cast<const T*>(in[k])[i])); };
  for (int64_t i = 0; i < n; ++i) {
    double y;
    if constexpr (operands == 1) y = f(at(0, i));
    if constexpr (operands == 2) y = f(at(0, i), at(1, i));
    if constexpr (operands == 3) y = f(at(0, i), at(1, i), at(2, i));
    static_cast<T*>(out)[i] = N::narrow(static_cast<typename N::Wide>(y));
  }
}

template <auto f, int operands>
void fill(MapFn* by_dtype) {
  by_dtype[static_cast<int>(DType::Float64)] = map_scalar<double, f, operands>;
  by_dtype[static_cast<int>(DType::Float32)] = map_scalar<float, f, operands>;
  by_dtype[static_cast<int>(DType::Float16)] = map_scalar<Half, f, operands>;
  by_dtype[static_cast<int>(DType::BFloat16)] = map_scalar<BFloat, f, operands>;
}

// Complex numbers of which foreign buffers promise the alignment of a part only.
template <class T, special::ComplexNumber (*f)(special::ComplexNumber)>
void map_complex(void* out, const void* const* in, int64_t n) {
  const auto* x = static_cast<const T*>(in[0]);
  auto* y = static_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) {
    const special::ComplexNumber value = f({x[2 * i], x[2 * i + 1]});
    y[2 * i] = static_cast<T>(value.re);
    y[2 * i + 1] = static_cast<T>(value.im);
  }
}

// Of real numbers it is a vector kernel.
template <special::ComplexNumber (*f)(special::ComplexNumber)>
void fill_complex(MapFn* by_dtype) {
  by_dtype[static_cast<int>(DType::Complex64)] = map_complex<float, f>;
  by_dtype[static_cast<int>(DType::Complex128)] = map_complex<double, f>;
}

}  // namespace

void fill_scalar_maps(VectorKernels& table) {
#define ELEMENTWISE(name, operands, dtype_class, result) \
  fill<special::name, operands>(table.map[static_cast<int>(Elementwise::name)]);
#include "elementwise_scalar.def"
#undef ELEMENTWISE
  fill_complex<special::erf>(table.map[static_cast<int>(Elementwise::erf)]);
  fill_complex<special::erfc>(table.map[static_cast<int>(Elementwise::erfc)]);
}

}  // namespace wengert
