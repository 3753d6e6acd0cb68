// The dtype in which an elementwise op computes on tensors and numbers. Eager calls and traces ask here.
#pragma once
#include "ops/op.h"

namespace wengert {

// An operand: a tensor of some dtype, or a Python number, which promotes weakly: it takes the dtype of the tensors
// beside it if their kind can hold it.
struct Promoted {
  enum Kind : uint8_t { tensor, boolean, integer, real, complex };
  Kind kind;
  DType dtype = DType::Bool;  // of a tensor
  // For an integer: its value, or the end of int64's range that it exceeds, and then whether uint64 holds it.
  int64_t value = 0;
  int8_t beyond = 0;
  bool fits_uint64 = false;
};

// How an integer compares with the range of an integral dtype: -1 below it, 1 above, 0 inside.
int place_among(const Promoted& integer, DType t);

// The promoted dtype of tensors and a number beside them.
DType with_number(DType t, Promoted::Kind number);

struct OperandPlan {
  DType compute = DType::Bool;  // the dtype that tensors are cast to and numbers are stored in
  // In a comparison, a number outside the range of an integral dtype behaves like an infinity: 1 or -1 for an operand
  // that is replaced by an infinity of this sign.
  int8_t infinite[3] = {};
  int outside = -1;  // an integer that the dtype does not hold otherwise; the caller refuses it
};

// The plan for one to three operands, in order. Conditions are always bool. Throws if the op is not defined for the
// dtype.
OperandPlan plan_operands(const Op& op, const Promoted* operands, int n);

}  // namespace wengert
