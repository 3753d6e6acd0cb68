// Special functions of an integer order, which is an attribute.
#include "../kernels/special.h"
#include "../kernels/gather.h"
#include "check.h"

namespace wengert {

namespace {

constexpr int64_t kMaxOrder = 170;  // 170! is the largest factorial that is a number

template <int lowest>
void infer_ordered(const Op& op, const Type* in, int, const Attrs& attrs, Type* out) {
  if (!is_floating(in[0].dtype)) {
    fail(ErrorKind::dtype, op.name.c_str(), "takes real floating numbers, got " + to_string(in[0]));
  }
  if (attrs[0].i < lowest || attrs[0].i > kMaxOrder) {
    fail(ErrorKind::value, op.name.c_str(),
         "the order must be between " + std::to_string(lowest) + " and " + std::to_string(kMaxOrder) + ", got " +
             std::to_string(attrs[0].i));
  }
  *out = in[0];
}

template <OrderedFunction f>
void compute_ordered(const Op&, Value* const* in, int, const Attrs& attrs, Value** out) {
  map_ordered(f, in[0]->dtype, static_cast<int>(attrs[0].i), Packed(in[0]).data(), out[0]->data, in[0]->size);
}

template <OrderedFunction f, int lowest>
void add_ordered(const char* name) {
  add_op({.name = name,
          .attrs = {{"n", Attr::Kind::integer}},
          .infer = infer_ordered<lowest>,
          .compute = compute_ordered<f>});
}

}  // namespace

void register_special_ops() {
  add_ordered<OrderedFunction::polygamma, 1>("polygamma");
  add_ordered<OrderedFunction::bessel_i, 0>("bessel_i");
  add_ordered<OrderedFunction::bessel_i_scaled, 0>("bessel_i_scaled");
}

}  // namespace wengert
