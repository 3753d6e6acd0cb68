// The native half of an op's record: shape-and-dtype rule and kernel. The mathematical half, under the same name, is
// in src/wengert/ops/; the two are joined at import.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "../fuse.h"
#include "../kernels/vector.h"
#include "../value.h"

namespace wengert {

struct Derivative;
struct Derived;

// What autocast casts floating operands to: nothing, the low precision, float32 where they are in half precision.
enum class Precision : uint8_t { any, low, full };

// How an op puts elements into their places, where it does nothing else, for those who write code of their own for it.
// Each of its operands is copied (`fill` has none, and `size` is a number that a program reads):
enum class Placing : uint8_t {
  none,       // it does something else
  copy,       // as it is
  convert,    // in another dtype
  fill,       // the last attribute, everywhere
  join,       // one after the other along an axis
  in_zeros,   // to a part of zeros: shape, starts, steps
  in_a_copy,  // the second to a part of the first: starts, steps
  size,       // the first attribute
};

struct Op {
  // Types of the outputs from types of the inputs; throws an Error that names the op. Sizes may be symbolic.
  using Infer = void (*)(const Op& op, const Type* in, int n_in, const Attrs& attrs, Type* out);
  // Fills outputs that are allocated as `infer` says. Inputs may have any strides.
  using Compute = void (*)(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out);
  // An output that shares the input's buffer; null where only a copy will do (then `compute` runs).
  using View = Value* (*)(const Op& op, const Value* in, const Attrs& attrs, const Type& out);

  std::string name;
  int id = -1;
  int n_inputs = 1;  // -1: any number
  int n_outputs = 1;
  std::vector<AttrSpec> attrs = {};
  Infer infer = nullptr;
  Compute compute = nullptr;
  View view = nullptr;
  bool elementwise = false;
  Elementwise kernel = Elementwise::count;
  int n_conditions = 0;                    // of an elementwise op: how many leading operands are bool conditions
  bool compares = false;                   // an elementwise comparison of two operands
  FusionRole fusion = FusionRole::none;    // how it takes part in fused groups
  Reduction reduction = Reduction::count;  // the reduction it performs in fused groups
  // Of an elementwise op, by the operands' dtype: the kernel, null where operands must be converted first or the
  // dtype is refused, and the dtype of the result.
  MapFn map[kNumDTypes] = {};
  DType map_result[kNumDTypes] = {};
  bool matrix_product = false;  // the product of two matrices
  Placing placing = Placing::none;
  Precision precision = Precision::any;
  bool differentiable = true;             // false: outputs carry no gradient at all (comparisons, argmax)
  bool moves = false;                     // its last attribute says on which device the output is
  bool on_host = false;                   // its result is a number on the host, on every device
  std::shared_ptr<const void> data = {};  // of ops whose kernel is a Python function
  std::weak_ptr<const Op> owned = {};     // of an op made at run time: shared by everyone who refers to it

  // For the common case (all operands of one dtype, no attributes, any shape): [dtype][mask of operands that need
  // gradients, or have a tangent].
  Derivative* derivatives[kNumDTypes][8] = {};
  Derived* pushes[kNumDTypes][8] = {};
};

inline constexpr int kMaxOutputs = 4;

Op& add_op(Op op);                                  // at start only
std::shared_ptr<const Op> add_temporary_op(Op op);  // registered by name for as long as somebody refers to it
Op* find_op(const std::string& name);
const std::vector<Op*>& all_ops();
void register_ops();  // adds the ops of every family

// How an elementwise op treats dtypes; `in` are the operands' dtypes, already promoted among each other.
struct ElementwiseTypes {
  DType compute;  // the operands' dtype (except the condition of `where`, which is bool)
  DType result;
};
ElementwiseTypes elementwise_types(const Op& op, DType promoted);
// Runs an elementwise op; returns a new reference. `spare`, if given, is a contiguous operand of the result's dtype
// that nobody needs any more, so its memory is reused. Checks that the operands have one shape and a supported dtype,
// which run_unified leaves to the caller.
Value* run_elementwise(const Op& op, Value* const* in, int n_in, Value* spare = nullptr);
Value* run_unified(const Op& op, Value* const* in, int n_in, Value* spare = nullptr);
// Whether the result of an elementwise op takes the memory layout of its operands, none of which is packed.
bool keeps_layout(Value* const* in, int n_in);

// Runs an op on values: outputs are new references. Nothing is recorded. Throws.
void run_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out);

// A normalised axis, or a shape error (IndexError's sibling) that names the op and the rank.
int normalize_axis(const char* op, int64_t axis, int ndim);

// Registers a family of ops: each family's file has one, as `static const OpFamily family(add_ops);`.
struct OpFamily {
  explicit OpFamily(void (*add)());
  void (*add)();
  const OpFamily* next;
};

}  // namespace wengert
