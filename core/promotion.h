// The dtype in which an elementwise op computes on tensors and numbers. Eager calls and traces ask here.
#pragma once
#include "ops/op.h"

namespace wengert {

// An operand: a tensor of some dtype, or a number of the host language, which is weak: it takes the dtype of the
// tensors beside it where their kind can hold it.
struct Promoted {
  enum Kind : uint8_t { tensor, boolean, integer, real, complex };
  Kind kind;
  DType dtype = DType::Bool;  // of a tensor
  // Of an integer: its value, or which end of the range of int64 it lies beyond, and then whether uint64 holds it.
  int64_t value = 0;
  int8_t beyond = 0;
  bool fits_uint64 = false;
};

// How an integer lies to the values of an integral dtype: -1 below all of them, 1 above, 0 among them.
int place_among(const Promoted& integer, DType t);

// The dtype of the tensors together with that of a number beside them.
DType with_number(DType t, Promoted::Kind number);

struct OperandPlan {
  DType compute = DType::Bool;  // what tensors are cast to, and numbers are written in
  // In a comparison all values of an integral dtype lie on the same side of a number that it does not hold, as they lie
  // on one side of infinity: 1 or -1 for the operand that infinity of this sign stands for.
  int8_t infinite[3] = {};
  int outside = -1;  // an integer that the dtype does not hold otherwise; the caller refuses it
};

// Of one to three operands, in the order of the op's. Conditions are bool whatever they are beside. Throws where the
// op is not defined for the dtype.
OperandPlan plan_operands(const Op& op, const Promoted* operands, int n);

}  // namespace wengert
