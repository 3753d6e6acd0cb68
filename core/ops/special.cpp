// Special functions of integer orders, which are attributes.
#include "../kernels/special.h"

#include "../kernels/gather.h"
#include "../kernels/scalar_functions.h"
#include "check.h"

namespace wengert {

namespace {

struct Ordered {
  const char* name;
  int operands;
  const char* orders[2];  // names of the attributes; the second may be null
  int lowest, highest;    // limits of their sum
  OrderedFunction function;
};

constexpr int kMaxOrder = 170;  // 170! is the largest factorial that float64 can represent

using namespace special;

constexpr Ordered kOrdered[] = {
#define ORDERED(name, operands, first, second, lowest, highest, ...) \
  {#name,  operands, {first, second},                                \
   lowest, highest,  []([[maybe_unused]] const double* x, const int* n) -> double { return __VA_ARGS__; }},
#include "../kernels/scalar_ordered.def"
#undef ORDERED
};

int count_orders(const Ordered& f) { return f.orders[1] == nullptr ? 1 : 2; }

template <int which>
void infer_ordered(const Op& op, const Type* in, int n_in, const Attrs& attrs, Type* out) {
  constexpr const Ordered& f = kOrdered[which];
  for (int k = 0; k < n_in; ++k) {
    if (!is_floating(in[k].dtype)) {
      fail(ErrorKind::dtype, op.name.c_str(), "takes real floating numbers, got " + operands(in, n_in));
    }
    if (in[k].dtype != in[0].dtype || !(in[k].shape == in[0].shape)) {
      fail(in[k].dtype != in[0].dtype ? ErrorKind::dtype : ErrorKind::shape, op.name.c_str(),
           "the operands must have the same shape and dtype, got " + operands(in, n_in));
    }
  }
  int64_t sum = 0, least = 0;
  for (int k = 0; k < count_orders(f); ++k) {
    sum += attrs[k].i;
    least = std::min(least, attrs[k].i);
  }
  if (least < 0 || sum < f.lowest || sum > f.highest) {
    fail(ErrorKind::value, op.name.c_str(),
         "the order must be between " + std::to_string(f.lowest) + " and " + std::to_string(f.highest) + ", got " +
             std::to_string(sum));
  }
  *out = in[0];
}

template <int which>
void compute_ordered(const Op&, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  constexpr const Ordered& f = kOrdered[which];
  int orders[2] = {};
  for (int k = 0; k < count_orders(f); ++k) orders[k] = static_cast<int>(attrs[k].i);
  const Packed first(in[0]), second(in[n_in > 1 ? 1 : 0]), third(in[n_in > 2 ? 2 : 0]);
  const void* x[] = {first.data(), second.data(), third.data()};
  map_ordered(f.function, in[0]->dtype, orders, x, n_in, out[0]->data, in[0]->size);
}

template <int which>
void add_ordered() {
  constexpr const Ordered& f = kOrdered[which];
  Op op{.name = f.name, .n_inputs = f.operands, .infer = infer_ordered<which>, .compute = compute_ordered<which>};
  for (int k = 0; k < count_orders(f); ++k) op.attrs.push_back({f.orders[k], Attr::Kind::integer});
  add_op(op);
}

template <int... which>
void add_all(std::integer_sequence<int, which...>) {
  (add_ordered<which>(), ...);
}

}  // namespace

static void add_ops() { add_all(std::make_integer_sequence<int, std::size(kOrdered)>{}); }
static const OpFamily family(add_ops);

}  // namespace wengert
