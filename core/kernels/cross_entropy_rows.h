// Cross entropy of rows of logits and a class each, compiled once per instruction set from vector_cross_entropy.cpp.
// The probabilities are p = exp((x − largest) − log_total); q is 1 at the class of a row, and 0 elsewhere.
#pragma once
#include <cstdint>

namespace wengert {

template <class T>
struct ClassRows {
  const T* x;              // packed
  const int64_t* classes;  // of each row, in [0, cols)
  T *largest, *log_total;
  int64_t rows, cols;
};

template <class T>
struct CrossEntropyRows {
  void (*losses)(T* loss, const ClassRows<T>& in);  // −ln p of the class; sets largest and log_total
  // Linear in x_dot and loss_bar. Zeros give zeros, whatever x is.
  void (*tangents)(T* loss_dot, const T* x_dot, const ClassRows<T>& in);    // Σ (p − q) x_dot
  void (*cotangents)(T* x_bar, const T* loss_bar, const ClassRows<T>& in);  // (p − q) loss_bar
};

const CrossEntropyRows<float>& cross_entropy_rows(float);
const CrossEntropyRows<double>& cross_entropy_rows(double);

}  // namespace wengert
