#include "promotion.h"

namespace wengert {

int place_among(const Promoted& integer, DType t) {
  const bool is_signed = info(t).kind == 'i';
  const int bits = static_cast<int>(8 * size_of(t)) - (is_signed ? 1 : 0);
  if (integer.beyond) return integer.beyond > 0 && bits == 64 && integer.fits_uint64 ? 0 : integer.beyond;
  const int64_t i = integer.value;
  if (i < 0) return is_signed && (~i >> bits) == 0 ? 0 : -1;
  return bits >= 63 || (i >> bits) == 0 ? 0 : 1;
}

DType with_number(DType t, Promoted::Kind number) {
  switch (number) {
    case Promoted::real: return is_inexact(t) ? t : DType::Float32;
    case Promoted::integer: return t == DType::Bool ? DType::Int64 : t;
    case Promoted::complex: return is_complex(t) ? t : t == DType::Float64 ? DType::Complex128 : DType::Complex64;
    default: return t;
  }
}

namespace {

// Replaces numbers out of range of the tensors' dtype by infinities.
void find_infinities(const Promoted* operands, int n, DType t, OperandPlan& plan) {
  if (!is_integer(t)) return;
  for (int i = 0; i < n; ++i)
    if (operands[i].kind == Promoted::integer) plan.infinite[i] = static_cast<int8_t>(place_among(operands[i], t));
}

}  // namespace

OperandPlan plan_operands(const Op& op, const Promoted* operands, int n) {
  OperandPlan plan;
  const int first = op.n_conditions;
  bool any = false;
  DType t = DType::Bool;
  for (int i = first; i < n; ++i)
    if (operands[i].kind == Promoted::tensor) {
      t = any ? promote(t, operands[i].dtype) : operands[i].dtype;
      any = true;
    }
  if (op.compares && any) find_infinities(operands, n, t, plan);
  for (int i = first; i < n; ++i)  // numbers only: their default dtypes
    if (operands[i].kind != Promoted::tensor) t = with_number(t, plan.infinite[i] ? Promoted::real : operands[i].kind);
  plan.compute = op.map[static_cast<int>(t)] ? t : elementwise_types(op, t).compute;
  if (!is_integer(plan.compute)) return plan;
  for (int i = first; i < n && plan.outside < 0; ++i)
    if (operands[i].kind == Promoted::integer && place_among(operands[i], plan.compute)) plan.outside = i;
  return plan;
}

}  // namespace wengert
