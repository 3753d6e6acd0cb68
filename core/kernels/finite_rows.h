// Looking for infinities and NaN, compiled once per instruction set from vector_finite.cpp.
#pragma once
#include <cstdint>

namespace wengert {

template <class T>
struct FiniteRows {
  bool (*finite)(const T* x, int64_t n);  // whether all of them are
};

const FiniteRows<float>& finite_rows(float);
const FiniteRows<double>& finite_rows(double);

}  // namespace wengert
