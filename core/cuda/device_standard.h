// The few names of the C++ standard library that device code uses: NVRTC comes without its headers.
#pragma once

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;

namespace std {

using size_t = decltype(sizeof(0));

template <class T, T v>
struct integral_constant {
  static constexpr T value = v;
};

template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class A, class B>
concept same_as = is_same_v<A, B>;

template <bool condition, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool condition, class A, class B>
using conditional_t = typename conditional<condition, A, B>::type;

template <class T>
inline constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, double>;
template <class T>
inline constexpr bool is_integral_v = false;
template <class T>
inline constexpr bool is_signed_v = T(-1) < T(0);
template <class T>
struct Signedness;
#define WENGERT_INTEGER(name, signed_name, unsigned_name) \
  template <>                                             \
  inline constexpr bool is_integral_v<name> = true;       \
  template <>                                             \
  struct Signedness<name> {                               \
    using with = signed_name;                             \
    using without = unsigned_name;                        \
  };
WENGERT_INTEGER(bool, signed char, unsigned char)
WENGERT_INTEGER(signed char, signed char, unsigned char)
WENGERT_INTEGER(short, short, unsigned short)
WENGERT_INTEGER(int, int, unsigned int)
WENGERT_INTEGER(long long, long long, unsigned long long)
WENGERT_INTEGER(unsigned char, signed char, unsigned char)
WENGERT_INTEGER(unsigned short, short, unsigned short)
WENGERT_INTEGER(unsigned int, int, unsigned int)
WENGERT_INTEGER(unsigned long long, long long, unsigned long long)
#undef WENGERT_INTEGER
template <class T>
using make_signed_t = typename Signedness<T>::with;
template <class T>
using make_unsigned_t = typename Signedness<T>::without;

template <class To, class From>
constexpr To bit_cast(From x) {
  return __builtin_bit_cast(To, x);
}

template <class T>
struct numeric_limits;
template <>
struct numeric_limits<float> {
  static constexpr float infinity() { return __builtin_bit_cast(float, 0x7f800000u); }
  static constexpr float quiet_NaN() { return __builtin_bit_cast(float, 0x7fc00000u); }
  static constexpr float min() { return 0x1p-126f; }
};
template <>
struct numeric_limits<double> {
  static constexpr double infinity() { return __builtin_bit_cast(double, 0x7ff0000000000000ull); }
  static constexpr double quiet_NaN() { return __builtin_bit_cast(double, 0x7ff8000000000000ull); }
  static constexpr double min() { return 0x1p-1022; }
};

// The C library, whose functions the compiler has without a header, as the `scalar_` headers name it: of doubles.
inline double abs(double x) { return ::fabs(x); }
using ::acos, ::asin, ::asinh, ::ceil, ::copysign, ::cos, ::erf, ::erfc, ::exp, ::expm1, ::floor, ::fma, ::fmax, ::fmin,
    ::fmod, ::hypot, ::lgamma, ::log, ::log1p, ::pow, ::rint, ::sin, ::sinh, ::sqrt, ::tan, ::tgamma;

template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T, size_t N>
constexpr size_t size(const T (&)[N]) {
  return N;
}

template <size_t... I>
struct index_sequence {};
template <size_t N, size_t... I>
struct IndexSequence {
  using type = typename IndexSequence<N - 1, N - 1, I...>::type;
};
template <size_t... I>
struct IndexSequence<0, I...> {
  using type = index_sequence<I...>;
};
template <size_t N>
using make_index_sequence = typename IndexSequence<N>::type;

}  // namespace std

using std::size_t;
