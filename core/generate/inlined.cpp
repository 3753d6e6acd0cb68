#define WENGERT_ISA_NAMESPACE inspected  // only inspects the functors, calls nothing
#include "inlined.h"

#include <iterator>

#include "../kernels/vector_elementwise.h"

namespace wengert::generate {

namespace {

using namespace inspected;

enum class Kind : uint8_t { kernel, far, functor };

template <class Op, int kOperands, DType D>
constexpr Kind kind_of() {
  using T = Storage<D>;
  if constexpr (HalfNumber<T>) {
    return Kind::kernel;  // converted in blocks
  } else if constexpr (ComplexNumber<T> && (std::is_same_v<Op, op::erf> || std::is_same_v<Op, op::erfc>)) {
    return Kind::kernel;  // compiled once, in a file of its own
  } else if constexpr (HasFar<Op, T, kOperands>) {
    return Kind::far;
  } else {
    return Kind::functor;
  }
}

struct Functor {
  const char* name;
  bool is_long;
  Kind kind[kNumDTypes];
};

// Classes of dtypes of the list: what is defined for floating numbers alone is not one machine instruction.
constexpr bool any = false, number = false, real = false, bits = false, integer = false, boolean = false,
               cfloat = false, floating = true, rfloat = true, wfloat = true;

// Divisions and roots take long as well, but a processor works on many at once: each is one instruction.
template <class Op>
constexpr bool kOneInstruction = std::is_same_v<Op, op::div> || std::is_same_v<Op, op::unscale> ||
                                 std::is_same_v<Op, op::reciprocal> || std::is_same_v<Op, op::sqrt>;

template <class Op, int kOperands>
constexpr Functor functor(const char* name, bool floating_only) {
  Functor f = {name, floating_only && !kOneInstruction<Op>, {}};
  for_each_dtype(
      [&]<DType D>(std::integral_constant<DType, D>) { f.kind[static_cast<int>(D)] = kind_of<Op, kOperands, D>(); });
  return f;
}

constexpr Functor kFunctors[] = {
#define ELEMENTWISE(name, operands, dtype_class, result) functor<op::name, operands>(#name, dtype_class),
#include "../kernels/elementwise.def"
#undef ELEMENTWISE
};

}  // namespace

const char* functor_of(Elementwise op, DType dtype, bool one_element) {
  if (static_cast<size_t>(op) >= std::size(kFunctors)) return nullptr;
  const Functor& f = kFunctors[static_cast<int>(op)];
  const Kind kind = f.kind[static_cast<int>(dtype)];
  return kind == Kind::functor || (kind == Kind::far && one_element) ? f.name : nullptr;
}

bool is_long(Elementwise op) {
  return static_cast<size_t>(op) < std::size(kFunctors) && kFunctors[static_cast<int>(op)].is_long;
}

}  // namespace wengert::generate
