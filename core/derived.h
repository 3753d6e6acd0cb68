// Derived programs and their variants. A derived program runs on plain values. If operands are tracked, its derivative
// runs and is recorded; if they are duals, its push runs. Python derives a variant when it is first needed; it is then
// kept.
#pragma once
#include <functional>
#include <memory>
#include <utility>

#include "program.h"
#include "small_array.h"

namespace wengert {

// Evaluates size leaves from the operands, the attributes (may be null), or the sizes given to the program (may be
// null).
void gather_sizes(const std::vector<SizeLeaf>& leaves, Value* const* in, const Attrs* attrs, const int64_t* given,
                  int64_t* sizes);

// Throws unless the n operands have what the leaves refer to: these axes, or these entries of a packed int64 tensor.
void check_leaves(const std::vector<SizeLeaf>& leaves, Value* const* in, size_t n);

// Guards in executable form: whether a program derived for one set of sizes is valid for another.
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

// Where an output of a derived program comes from: a symbolic zero, an operand, or a computed result. Only results are
// outputs of a node; an operand that is passed through keeps its edge.
struct OutputRef {
  enum Kind : uint8_t { none, input, result } kind;
  uint16_t index;
};

struct Derived;

// The derivative of an op, a compiled function or a derived program for one signature and one set of tracked operands.
struct Derivative {
  static inline uint64_t made = 0;
  const uint64_t number = ++made;  // tells it from others that were at its address before
  uint32_t refs = 1;
  int n_outputs = 1;                 // of its nodes
  const Op* op = nullptr;            // null: derived from a program
  std::string name;                  // as printed
  std::shared_ptr<Program> forward;  // null: run the op itself. Its outputs are those of the node, then residuals
  Derived* vjp = nullptr;            // operands: cotangents of all outputs, then saved values; outputs: one per edge
  std::vector<SavedRef> saves;
  std::vector<uint16_t> edges;     // operands that receive a cotangent, in order
  std::vector<SizeLeaf> sizes;     // the sizes given to `vjp`, read when the node is recorded
  std::vector<OutputRef> outputs;  // if derived from a program; empty: simply the node's outputs
  void* python = nullptr;          // the derivation, for printing and explaining (a PyObject)
  Derivative() = default;
  Derivative(const Derivative&) = delete;
  ~Derivative();
};
inline void retain(const Derivative* d) { ++const_cast<Derivative*>(d)->refs; }
inline void release(const Derivative* d) {
  if (--const_cast<Derivative*>(d)->refs == 0) delete d;
}

// A derived program. It reads sizes from its own operands and from a list that the caller supplies. A vjp program was
// derived in terms of other operands, those of the differentiated instruction, so its list has a number for every leaf.
struct Derived {
  static constexpr int kAnyRank = -1;
  template <class T>
  struct Variant {
    uint64_t mask;  // tracked operands, operands with a tangent, or wanted outputs
    int rank;       // of the operands, or kAnyRank
    GuardSet guards;
    T* made;
  };
  template <class T>
  using Variants = std::vector<std::unique_ptr<Variant<T>>>;  // addresses stay valid when variants are added

  uint32_t refs = 1;
  bool all_given = false;  // the caller's list has a number for every leaf
  int n_given = 0;
  std::shared_ptr<Program> program;
  void* python = nullptr;  // the Python program that variants are derived from (a PyObject)
  Variants<Derivative> derivatives;
  // Operands: its own, then a tangent for each in the mask; outputs: its own, then their tangents.
  Variants<Derived> pushes;
  Variants<Derived> narrowed;  // computing only some of the outputs
  // Of a vjp, which is linear in its cotangents: taking only those in the mask, the others being zero. Null if the
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

// Runs a derived program on plain values with the given sizes; takes the first `n_taken` references, as `run` does.
void run(const Derived& p, Value* const* in, const int64_t* given, Value** out, int n_taken = 0);

// Operands that need gradients are bits of a mask; the last bit covers all remaining operands.
inline constexpr int kLastBit = 63;

// Callbacks that derive variants in Python; set once by the bindings. They return new references, and `guards` receives
// the sizes for which the result is valid.
struct DeriveHooks {
  Derivative* (*op)(const Op& op, Value* const* in, int n_in, const Attrs& attrs, uint64_t mask,
                    GuardSet& guards) = nullptr;
  // For a derived program on operands like these. Sets `rank` if the result is valid only for operands of this rank.
  Derivative* (*program)(const Derived& p, Value* const* in, int n_in, const int64_t* given, uint64_t mask,
                         GuardSet& guards, int& rank) = nullptr;
  Derived* (*push_op)(const Op& op, Value* const* in, int n_in, const Attrs& attrs, uint64_t mask,
                      GuardSet& guards) = nullptr;
  Derived* (*push_program)(const Derived& p, Value* const* in, int n_in, const int64_t* given, uint64_t mask,
                           GuardSet& guards, int& rank) = nullptr;
  Derived* (*narrow)(const Derived& p, uint64_t mask) = nullptr;
  // Null if the program needs the cotangents outside the mask. `in` has zeros for these.
  Derived* (*partial)(const Derived& p, Value* const* in, int n_in, const int64_t* given, int n_bars, uint64_t mask,
                      GuardSet& guards, int& rank) = nullptr;
  void* (*share_object)(void* object) = nullptr;  // a new reference to a PyObject
  void (*drop_object)(void* object) = nullptr;
};
extern DeriveHooks derive_hooks;

// An owning pointer to a reference-counted object.
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

// The derivative of an op, or of a derived program, with respect to the operands in the mask; derived now if necessary.
// The cache forgets derivatives of ops that have not been used for long; the handle keeps its own alive.
Handle<const Derivative> find_derivative(const Op& op, Value* const* in, int n_in, const Attrs& attrs, uint64_t mask);
const Derivative& find_derivative(Derived& p, Value* const* in, int n_in, const int64_t* given, uint64_t mask);
// The push of an op, or of a derived program, for tangents of the operands in the mask. The sizes given to an op's push
// are those among its attributes.
Handle<Derived> find_push(const Op& op, Value* const* in, int n_in, const Attrs& attrs, const int64_t* given,
                          uint64_t mask);
Derived& find_push(Derived& p, Value* const* in, int n_in, const int64_t* given, uint64_t mask);
// The derived program that computes only the outputs in the mask.
Derived& find_narrowed(Derived& p, uint64_t mask);
// A vjp that takes only the cotangents in the mask; null if it needs all of them. `in` has these, then the saved
// values. `complete` makes the full operand list, for deriving.
using Complete = std::function<std::vector<Value*>()>;
Derived* find_partial(Derived& p, Value* const* in, const int64_t* given, int n_bars, uint64_t mask,
                      const Complete& complete);

}  // namespace wengert
