#include "finite.h"

#include <algorithm>
#include <atomic>

#include "kernels/finite_rows.h"
#include "ops/op.h"
#include "threads.h"

namespace wengert {

namespace {

constexpr int64_t kTile = 32768;      // elements
constexpr int64_t kBlock = 1024;      // elements per early-exit check; the loop over a block is vectorised
constexpr int64_t kMostRead = 65536;  // elements sampled in search of a nonzero one

// Infinities and NaN have an exponent of all ones.
bool finite_halves(const uint16_t* x, int64_t n, uint16_t exponent) {
  for (int64_t from = 0; from < n; from += kBlock) {
    const int64_t to = std::min(n, from + kBlock);
    uint16_t found = 0;
    for (int64_t i = from; i < to; ++i) found |= static_cast<uint16_t>((x[i] & exponent) == exponent);
    if (found) return false;
  }
  return true;
}

bool finite_elements(DType dtype, const char* data, int64_t from, int64_t n) {
  const char* at = data + from * size_of(dtype);
  switch (dtype) {
    case DType::Float16: return finite_halves(reinterpret_cast<const uint16_t*>(at), n, 0x7c00);
    case DType::BFloat16: return finite_halves(reinterpret_cast<const uint16_t*>(at), n, 0x7f80);
    case DType::Float32: return finite_rows(float()).finite(reinterpret_cast<const float*>(at), n);
    default: return finite_rows(double()).finite(reinterpret_cast<const double*>(at), n);
  }
}

template <class Bits>
bool zero_bits(const Bits* x, int64_t n, int64_t step) {
  for (int64_t i = 0; i < n; i += step)
    if (static_cast<Bits>(x[i] << 1)) return false;  // without the sign
  return true;
}

}  // namespace

namespace {

// Computed where the value is; one byte is copied to the host, which waits for it.
bool all_finite_elsewhere(const Value* v) {
  static const Op *isfinite = find_op("isfinite"), *all = find_op("all");
  static const Attrs none;
  Attrs every_axis;
  Attr& axes = every_axis.add(Attr::Kind::integers);
  for (int a = 0; a < v->ndim; ++a) axes.dims.push(a);
  every_axis.add(Attr::Kind::integer);  // axes are not kept
  Value* x = const_cast<Value*>(v);
  Value* made = nullptr;
  run_op(*isfinite, &x, 1, none, &made);
  const Ref finite(made);
  run_op(*all, &made, 1, every_axis, &x);
  const Ref one(x), here(on_device(x, kCpu));
  return *here->data != 0;
}

}  // namespace

bool all_finite(const Value* v) {
  if (!is_inexact(v->dtype) || v->size == 0) return true;
  if (v->device != kCpu) return all_finite_elsewhere(v);
  const DType dtype = real_of(v->dtype);
  const int64_t parts = is_complex(v->dtype) ? 2 : 1;
  if (is_uniform(v)) return finite_elements(dtype, v->data, 0, parts);
  const Ref packed(contiguous(v));
  const int64_t n = v->size * parts;
  const char* data = packed->data;
  if (n <= kTile) return finite_elements(dtype, data, 0, n);
  std::atomic<bool> finite = true;
  parallel_for((n + kTile - 1) / kTile, [&](int64_t tile) {
    const int64_t from = tile * kTile;
    if (finite.load(std::memory_order_relaxed) && !finite_elements(dtype, data, from, std::min(kTile, n - from)))
      finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

bool looks_zero(const Value* v) {
  if (!is_inexact(v->dtype) || v->size == 0 || v->device != kCpu) return false;
  const Ref packed(contiguous(v));
  const DType dtype = real_of(v->dtype);
  const int64_t n = v->size * (is_complex(v->dtype) ? 2 : 1), step = std::max<int64_t>(1, n / kMostRead) | 1;
  switch (size_of(dtype)) {
    case 2: return zero_bits(reinterpret_cast<const uint16_t*>(packed->data), n, step);
    case 4: return zero_bits(reinterpret_cast<const uint32_t*>(packed->data), n, step);
    default: return zero_bits(reinterpret_cast<const uint64_t*>(packed->data), n, step);
  }
}

}  // namespace wengert
