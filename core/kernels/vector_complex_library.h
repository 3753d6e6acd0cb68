// The functions of complex numbers that the C library has; on a GPU there are formulas instead.
#pragma once
#include "vector_types.h"

#ifdef WENGERT_DEVICE_CODE
#include "../cuda/device_complex.h"
#else

namespace wengert::WENGERT_ISA_NAMESPACE::complex {

WENGERT_INLINE Complex<float> unpack(__complex__ float z) { return {__real__ z, __imag__ z}; }
WENGERT_INLINE Complex<double> unpack(__complex__ double z) { return {__real__ z, __imag__ z}; }
WENGERT_INLINE __complex__ float pack(Complex<float> a) {
  __complex__ float z;
  __real__ z = a.re;
  __imag__ z = a.im;
  return z;
}
WENGERT_INLINE __complex__ double pack(Complex<double> a) {
  __complex__ double z;
  __real__ z = a.re;
  __imag__ z = a.im;
  return z;
}

#define WENGERT_COMPLEX(name)                                                                    \
  inline Complex<float> name(Complex<float> x) { return unpack(__builtin_c##name##f(pack(x))); } \
  inline Complex<double> name(Complex<double> x) { return unpack(__builtin_c##name(pack(x))); }
WENGERT_COMPLEX(exp)
WENGERT_COMPLEX(log)
WENGERT_COMPLEX(sqrt)
WENGERT_COMPLEX(sin)
WENGERT_COMPLEX(cos)
WENGERT_COMPLEX(tan)
WENGERT_COMPLEX(asin)
WENGERT_COMPLEX(acos)
WENGERT_COMPLEX(atan)
WENGERT_COMPLEX(sinh)
WENGERT_COMPLEX(cosh)
WENGERT_COMPLEX(tanh)
WENGERT_COMPLEX(asinh)
WENGERT_COMPLEX(acosh)
WENGERT_COMPLEX(atanh)
#undef WENGERT_COMPLEX

inline Complex<double> library_pow(Complex<double> x, Complex<double> y) {
  return unpack(__builtin_cpow(pack(x), pack(y)));
}

}  // namespace wengert::WENGERT_ISA_NAMESPACE::complex

#endif
