// Programs that are applied, and what was derived from them. A derived program runs on plain values; where its operands
// are tracked, its derivative runs and is recorded; where they are duals, its push runs. Variants are derived by Python
// the first time that they are needed, and kept.
#pragma once
#include <functional>
#include <memory>
#include <utility>

#include "program.h"
#include "small_array.h"

namespace wengert {

// Numbers for the leaves of sizes: read from the operands, the attributes (null: there are none), or the sizes that
// were given to the program (null: none).
void gather_sizes(const std::vector<SizeLeaf>& leaves, Value* const* in, const Attrs* attrs, const int64_t* given,
                  int64_t* sizes);

// Throws unless n operands have these: sizes, or entries of a packed int64 tensor.
void check_leaves(const std::vector<SizeLeaf>& leaves, Value* const* in, size_t n);

// Guards in executable form: whether what was derived for one set of sizes holds for another.
struct GuardSet {
  SizeProgram sizes;
  std::vector<Guard> guards;

  GuardSet() = default;
  explicit GuardSet(const std::vector<Guard>& recorded);
  bool hold(Value* const* in, const Attrs* attrs, const int64_t* given = nullptr) const {
    return guards.empty() || evaluate(in, attrs, given);
  }

 private:
  bool evaluate(Value* const* in, const Attrs* attrs, const int64_t* given) const;
};

// What a recorded instruction keeps: an input, an output, or an extra result (residual) of the forward program.
struct SavedRef {
  enum Kind : uint8_t { input, output, residual } kind;
  uint16_t index;
};

// Where an output of a derived program comes from: nowhere (a symbolic zero), an operand, or a result of its own. Only
// results are outputs of a node: an operand that is handed on keeps its edge.
struct OutputRef {
  enum Kind : uint8_t { none, input, result } kind;
  uint16_t index;
};

struct Derived;

// The derivative of an op, a compiled function or a derived program for one signature and one set of tracked operands.
struct Derivative {
  uint32_t refs = 1;
  int n_outputs = 1;                 // of its nodes
  const Op* op = nullptr;            // null: of a program
  std::string name;                  // as printed
  std::shared_ptr<Program> forward;  // null: run the op itself; else outputs of the node are followed by residuals
  Derived* vjp = nullptr;            // operands: cotangents of all outputs, then saved values; outputs: one per edge
  std::vector<SavedRef> saves;
  std::vector<uint16_t> edges;     // operands that receive a cotangent, in order
  std::vector<SizeLeaf> sizes;     // read when recorded: the sizes that are given to `vjp`
  std::vector<OutputRef> outputs;  // of a derived program; empty: the outputs of the node
  void* python = nullptr;          // the derivation, for printing and explaining (a PyObject)
  Derivative() = default;
  Derivative(const Derivative&) = delete;
  ~Derivative();
};
inline void retain(const Derivative* d) { ++const_cast<Derivative*>(d)->refs; }
inline void release(const Derivative* d) {
  if (--const_cast<Derivative*>(d)->refs == 0) delete d;
}

// A derived program. The sizes that it reads are those of its own operands and a list that is given to it. The program
// of a vjp was made in terms of other operands, those of the instruction that was differentiated: the list has a number
// for each of its leaves.
struct Derived {
  static constexpr int kAnyRank = -1;
  template <class T>
  struct Variant {
    uint64_t mask;  // tracked operands, operands with a tangent, or wanted outputs
    int rank;       // of the operands; or kAnyRank
    GuardSet guards;
    T* made;
  };
  template <class T>
  using Variants = std::vector<std::unique_ptr<Variant<T>>>;  // which stay where they are as others are added

  uint32_t refs = 1;
  bool all_given = false;  // the list has a number for each leaf of the program
  int n_given = 0;
  std::shared_ptr<Program> program;
  void* python = nullptr;  // what variants are derived from (a PyObject)
  Variants<Derivative> derivatives;
  Variants<Derived> pushes;  // operands: its own, then a tangent for each in the mask; outputs: its own, then tangents
  Variants<Derived> narrowed;  // with some of the outputs only
  // Of a vjp, which is linear in its cotangents: with those in the mask only, where the others are zero. Null where its
  // program needs them all.
  Variants<Derived> partial;
  Derived() = default;
  Derived(const Derived&) = delete;
  ~Derived();
};
inline void retain(Derived* p) { ++p->refs; }
inline void release(Derived* p) {
  if (--p->refs == 0) delete p;
}

// Runs one on plain values, with the sizes that are given to it; the first `n_taken` references are taken, as by `run`.
void run(const Derived& p, Value* const* in, const int64_t* given, Value** out, int n_taken = 0);

// Which operands need gradients, as bits; the last bit stands for all operands from there on.
inline constexpr int kLastBit = 63;

// How variants are derived; set once by the bindings. What they return is new; `guards` says for which sizes it holds.
struct DeriveHooks {
  Derivative* (*op)(const Op& op, Value* const* in, int n_in, const Attrs& attrs, uint64_t mask,
                    GuardSet& guards) = nullptr;
  // Of a derived program on operands like these; `rank` becomes that of the operands if it holds for no other.
  Derivative* (*program)(const Derived& p, Value* const* in, int n_in, const int64_t* given, uint64_t mask,
                         GuardSet& guards, int& rank) = nullptr;
  Derived* (*push_op)(const Op& op, Value* const* in, int n_in, const Attrs& attrs, uint64_t mask,
                      GuardSet& guards) = nullptr;
  Derived* (*push_program)(const Derived& p, Value* const* in, int n_in, const int64_t* given, uint64_t mask,
                           GuardSet& guards, int& rank) = nullptr;
  Derived* (*narrow)(const Derived& p, uint64_t mask) = nullptr;
  // Null if the program cannot do without the cotangents that are not in the mask. `in` has zeros for these.
  Derived* (*partial)(const Derived& p, Value* const* in, int n_in, const int64_t* given, int n_bars, uint64_t mask,
                      GuardSet& guards, int& rank) = nullptr;
  void* (*share_object)(void* object) = nullptr;  // a new reference to a PyObject
  void (*drop_object)(void* object) = nullptr;
};
extern DeriveHooks derive_hooks;

// A reference to something that is counted.
template <class T>
struct Handle {
  T* held;
  explicit Handle(T* owned) : held(owned) {}
  Handle(const Handle& o) : held(o.held) { retain(held); }
  Handle& operator=(const Handle&) = delete;
  ~Handle() { release(held); }
  T* share() const {
    retain(held);
    return held;
  }
};

// The derivative of an op by the operands in the mask, or of a derived program: known, or derived now. What was derived
// of ops is forgotten when it was not asked for in a long time; the handle keeps it.
Handle<const Derivative> find_derivative(const Op& op, Value* const* in, int n_in, const Attrs& attrs, uint64_t mask);
const Derivative& find_derivative(Derived& p, Value* const* in, int n_in, const int64_t* given, uint64_t mask);
// The push of an op by the operands in the mask, or of a derived program. The sizes that are given to that of an op are
// those among its attributes.
Handle<Derived> find_push(const Op& op, Value* const* in, int n_in, const Attrs& attrs, const int64_t* given,
                          uint64_t mask);
Derived& find_push(Derived& p, Value* const* in, int n_in, const int64_t* given, uint64_t mask);
// The derived program with only those outputs that are in the mask.
Derived& find_narrowed(Derived& p, uint64_t mask);
// A vjp with only those cotangents that are in the mask; null if it needs all. `in`: these, then what was saved.
// `complete`: makes all operands, for deriving.
using Complete = std::function<std::vector<Value*>()>;
Derived* find_partial(Derived& p, Value* const* in, const int64_t* given, int n_bars, uint64_t mask,
                      const Complete& complete);

}  // namespace wengert
