// Running sums, products, extrema and sums of exponentials along an axis, and linear recurrences.
#include "../kernels/indices.h"
#include "device.h"

namespace wengert::cuda {

namespace {

int64_t word_of(const void* p) { return reinterpret_cast<int64_t>(p); }

void scan(CudaDevice& gpu, const Op& op, const std::string& functor, Value* x, const Attrs& attrs, bool reverse,
          Value** out) {
  const AxisExtents e = around_axis(x->shape, x->ndim, normalize_axis(op.name.c_str(), attrs[0].i, x->ndim));
  if (e.outer * e.size * e.inner == 0) return;
  const Ref from(contiguous(x));
  const std::string dtype = dtype_text(x->dtype);
  gpu.run_kernel("device_scan.h",
                 "scan_line<scanned::" + functor + "Storage<" + dtype + ">>, " + dtype + ">(words, block_number)",
                 {word_of(out[0]->data), op.n_outputs > 1 ? word_of(out[1]->data) : 0, word_of(from->data), e.size,
                  e.inner, reverse},
                 256 * e.outer * e.inner, op.n_outputs, 256 * 32);
}

void cumsum(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  scan(gpu, op, "Reduced<reduction::sum, ", in[0], attrs, attrs[1].i != 0, out);
}
void cumprod(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  scan(gpu, op, "Reduced<reduction::prod, ", in[0], attrs, attrs[1].i != 0, out);
}
void logcumsumexp(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  scan(gpu, op, "Exponentials<", in[0], attrs, attrs[1].i != 0, out);
}
void cummax(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  scan(gpu, op, "Extremum<true, ", in[0], attrs, false, out);
}
void cummin(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  scan(gpu, op, "Extremum<false, ", in[0], attrs, false, out);
}

void linear_recurrence(CudaDevice& gpu, const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  const Value* y = out[0];
  const AxisExtents e = around_axis(y->shape, y->ndim, normalize_axis(op.name.c_str(), attrs[0].i, y->ndim));
  if (y->size == 0) return;
  const Ref a(contiguous(in[0])), b(contiguous(in[1]));
  gpu.run_kernel(
      "device_scan.h", "recur<" + dtype_text(y->dtype) + ">(words, block_number)",
      {word_of(y->data), word_of(a->data), word_of(b->data), e.size, e.inner, attrs[1].i != 0, e.outer * e.inner},
      e.outer * e.inner);
}

}  // namespace

void register_scan_kernels() {
  add_kernel("cumsum", cumsum);
  add_kernel("cumprod", cumprod);
  add_kernel("logcumsumexp", logcumsumexp);
  add_kernel("cummax", cummax);
  add_kernel("cummin", cummin);
  add_kernel("linear_recurrence", linear_recurrence);
}

}  // namespace wengert::cuda
