// Inspects what a program has computed, before it writes over what it was given.
#pragma once
#include <vector>

#include "program.h"

namespace wengert {

// The outputs that must be finite, and the step before which they are inspected, when all of them are known.
struct Inspection {
  struct Output {
    int32_t which;
    bool number;  // only if it has one element, as losses do
  };
  std::vector<Output> outputs;
  size_t step = 0;

  // `values` are those of the outputs, or, with `slots` of the outputs, those of all slots.
  bool passes(Value* const* values, const int32_t* slots = nullptr) const;
};

// Thrown where what would be written is not finite; nothing has been written.
struct NotFinite {};

// As `run`, with an inspection before its step; only outputs of later steps may be `donated`. Where a run cannot be
// inspected in the middle, it writes into new values and returns false; the caller then inspects what it computed.
bool run_inspected(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out, Value* const* donated,
                   const Inspection& inspection);

}  // namespace wengert
