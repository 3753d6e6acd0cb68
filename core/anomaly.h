// Finding what made an infinity or NaN. While a thread checks results, each one is checked after it was computed; one
// that is not finite gets a number (Value::made) by which the bindings later find the call it came from. While a thread
// checks gradients, only losses and gradients are checked.
#pragma once
#include "calls.h"

namespace wengert {

struct Node;

enum class Checks : uint8_t { none, gradients, results };

// Set once by the bindings.
struct AnomalyHooks {
  // A call returned a result that is not finite. `node` is the instruction whose derivative it computes, or null.
  void (*found)(const char* name, Node* node, Value* const* in, int n_in, Value* const* out, int n_out) = nullptr;
  // A call read such a result.
  void (*read)(uint32_t number) = nullptr;
  // A backward pass starts at a loss that is not finite, or produced such a gradient for a leaf or source. They throw.
  void (*bad_loss)(Value* loss) = nullptr;
  void (*bad_gradient)(Node* of, Value* gradient) = nullptr;
};
extern AnomalyHooks anomaly_hooks;

// Checks the results of a call.
void check_results(const char* name, Node* node, Value* const* in, int n_in, Value* const* out, int n_out);

}  // namespace wengert
