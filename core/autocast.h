// Autocast: the precision in which each op runs, and casts of leaves that are reused until the leaf is written to.
#pragma once
#include "tape.h"

namespace wengert {

// The settings of an autocast context. Policies live as long as the process.
struct CastPolicy {
  DType low;    // float16 or bfloat16
  uint32_t id;  // part of the signature of compiled functions
  // Ops and compiled functions whose default precision is overridden, by address.
  std::unordered_map<const void*, Precision> overrides;

  Precision precision_of(const void* unit, Precision own) const {
    if (overrides.empty()) return own;
    auto found = overrides.find(unit);
    return found == overrides.end() ? own : found->second;
  }
};

// What operands of these dtypes are cast to; one that has no say is cast to nothing. Float64 and complex operands were
// made so on purpose: beside one of them `low` leaves everything as it is.
class CastRule {
  Precision precision_;
  DType low_;

 public:
  CastRule(Precision precision, DType low) : precision_(precision), low_(low) {}
  void see(DType t) {
    if (precision_ == Precision::low && (t == DType::Float64 || is_complex(t))) precision_ = Precision::any;
  }
  DType wanted(DType t) const {
    const bool half = t == DType::Float16 || t == DType::BFloat16;
    if (precision_ == Precision::low && (half || t == DType::Float32)) return low_;
    return precision_ == Precision::full && half ? DType::Float32 : t;
  }
};

void set_autocast(const CastPolicy* policy);  // of this thread; null: none

// Inside, nothing is cast.
struct AutocastOff {
  const CastPolicy* before = thread_state.autocast;
  AutocastOff() { set_autocast(nullptr); }
  AutocastOff(const AutocastOff&) = delete;
  ~AutocastOff() { set_autocast(before); }
};

Value* cast_value(Value* v, DType t);  // in another dtype, by a recorded cast; a new reference
// The same; of a leaf the same cast again, until the leaf is written to.
Value* cast_operand(Value* v, DType t);
void forget_casts();  // of this thread's leaves

}  // namespace wengert
