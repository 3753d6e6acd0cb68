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
  int n_conditions = 0;                    // of an elementwise op: its first operands, which are bool
  bool compares = false;                   // an elementwise op on two operands that are ordered or equal
  FusionRole fusion = FusionRole::none;    // how it takes part in fused groups
  Reduction reduction = Reduction::count;  // of an op that reduces rows there
  // Of an elementwise op, by the operands' dtype: the kernel, null where operands must be converted first or the
  // dtype is refused, and the dtype of the result.
  MapFn map[kNumDTypes] = {};
  DType map_result[kNumDTypes] = {};
  Precision precision = Precision::any;
  bool differentiable = true;             // false: outputs carry no gradient at all (comparisons, argmax)
  bool moves = false;                     // its last attribute says on which device the output is
  bool on_host = false;                   // what it makes is a number of the host, on every device
  std::shared_ptr<const void> data = {};  // of ops whose kernel is a Python function
  std::weak_ptr<const Op> owned = {};     // of an op that is made at run time: who refers to it shares it

  // Of the common case, all operands of one dtype, no attributes and any shape: [dtype][which need gradients, or have
  // a tangent].
  Derivative* derivatives[kNumDTypes][8] = {};
  Derived* pushes[kNumDTypes][8] = {};
};

inline constexpr int kMaxOutputs = 4;

Op& add_op(Op op);                                  // at start only
std::shared_ptr<const Op> add_temporary_op(Op op);  // which has its name as long as somebody refers to it
Op* find_op(const std::string& name);
const std::vector<Op*>& all_ops();
void register_ops();  // adds the ops of every family

// How an elementwise op treats dtypes; `in` are the operands' dtypes, already promoted among each other.
struct ElementwiseTypes {
  DType compute;  // the operands' dtype (but for the condition of `where`, which is bool)
  DType result;
};
ElementwiseTypes elementwise_types(const Op& op, DType promoted);
// Runs an elementwise op; a new reference. `spare`, if given, is an operand that nobody needs any more, contiguous and
// of the result's dtype: the result takes its place. Operands that have not one shape and a dtype that it computes in
// are refused; run_unified trusts the caller for that.
Value* run_elementwise(const Op& op, Value* const* in, int n_in, Value* spare = nullptr);
Value* run_unified(const Op& op, Value* const* in, int n_in, Value* spare = nullptr);
// Whether the result of an elementwise op lies in memory as its operands do, of which none is packed.
bool keeps_layout(Value* const* in, int n_in);

// Runs an op on values: outputs are new references. Nothing is recorded. Throws.
void run_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out);

// A normalised axis, or a shape error (IndexError's sibling) that names the op and the rank.
int normalize_axis(const char* op, int64_t axis, int ndim);

// A family of ops. Each file of a family has one, as `static const OpFamily family(add_ops);`, and so registers itself.
struct OpFamily {
  explicit OpFamily(void (*add)());
  void (*add)();
  const OpFamily* next;
};

}  // namespace wengert
