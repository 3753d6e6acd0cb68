// Infinities and NaN, and who made them. A thread that checks results has each one looked at after it was computed;
// what is not finite gets a number (Value::made), by which the bindings find out later which call it came from. A
// thread that checks gradients has only losses and gradients looked at.
#pragma once
#include "calls.h"

namespace wengert {

struct Node;

enum class Checks : uint8_t { none, gradients, results };

// Set once by the bindings.
struct AnomalyHooks {
  // A call has given something that is not finite. `node`: of the instruction whose derivative it is, or null.
  void (*found)(const char* name, Node* node, Value* const* in, int n_in, Value* const* out, int n_out) = nullptr;
  // A call has read such a result.
  void (*read)(uint32_t number) = nullptr;
  // A backward pass is to begin at such a loss, or has given a leaf (or another source) such a gradient. They throw.
  void (*bad_loss)(Value* loss) = nullptr;
  void (*bad_gradient)(Node* of, Value* gradient) = nullptr;
};
extern AnomalyHooks anomaly_hooks;

// Looks at the results of a call.
void check_results(const char* name, Node* node, Value* const* in, int n_in, Value* const* out, int n_out);

}  // namespace wengert
