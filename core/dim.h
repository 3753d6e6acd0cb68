// A size: an integer in eager execution, an expression over sizes while tracing. Shape rules are written once over
// this type. Comparing two sizes that are not known to be equal asks the example sizes of the trace and records a
// guard: the traced program is valid wherever its guards hold.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace wengert {

struct Dim {
  int64_t raw;

  // Symbolic sizes are encoded far below any integer that arithmetic on real sizes produces.
  static constexpr int64_t kSymbolic = INT64_MIN / 2;
  Dim() = default;  // unset: lists of sizes are made on the path of every op
  constexpr Dim(int64_t value) : raw(value) {}
  Dim(const Dim&) = default;
  Dim& operator=(const Dim&) & = default;  // not of temporaries: what is read from a constant list is a copy
  constexpr bool symbolic() const { return raw < kSymbolic; }
  int64_t hint() const;  // the example value; the value itself if concrete
};

Dim dim_add(Dim a, Dim b);
Dim dim_mul(Dim a, Dim b);
Dim dim_floordiv(Dim a, Dim b);
enum class Comparison : uint8_t { equal, less };
bool dim_compare(Dim a, Dim b, Comparison c);

inline Dim operator+(Dim a, Dim b) { return a.symbolic() || b.symbolic() ? dim_add(a, b) : Dim(a.raw + b.raw); }
inline Dim operator*(Dim a, Dim b) { return a.symbolic() || b.symbolic() ? dim_mul(a, b) : Dim(a.raw * b.raw); }
inline Dim operator-(Dim a, Dim b) { return a + b * Dim(-1); }
inline bool operator==(Dim a, Dim b) {
  if (a.raw == b.raw) return true;
  return a.symbolic() || b.symbolic() ? dim_compare(a, b, Comparison::equal) : false;
}
inline bool operator<(Dim a, Dim b) {
  return a.symbolic() || b.symbolic() ? dim_compare(a, b, Comparison::less) : a.raw < b.raw;
}
inline bool operator<=(Dim a, Dim b) { return !(b < a); }

// A number that a program reads when it runs: axis `index` of input `source`, entry `index` of attribute `source`, the
// integer at `index` of the contents of input `source` (the place in a stream of random numbers), or entry `index` of a
// list of sizes that is given to the program.
struct SizeLeaf {
  enum Kind : uint8_t { input, attribute, content, given } kind;
  int32_t source, index;
  bool operator==(const SizeLeaf&) const = default;
  uint64_t key() const {  // no two leaves of a program have the same; an axis or entry is a small number
    return static_cast<uint64_t>(kind) << 62 | static_cast<uint64_t>(static_cast<uint32_t>(source)) << 30 |
           static_cast<uint32_t>(index);
  }
};

// A symbol that no trace and no derivation which is at work has. Those made since `open_symbols` are for others after
// `close_symbols`: a finished program reads its sizes by their leaves. Expressions that they occur in are shared, too.
Dim new_symbol(SizeLeaf leaf, int64_t hint);
void open_symbols();
void close_symbols();
std::string to_string(Dim d);
// The leaves that a size is made of; and whether it is nothing but one leaf.
std::vector<SizeLeaf> leaves_of(Dim d);
bool is_leaf(Dim d);

// Replaces leaves in sizes; those that are not listed stay symbols.
class SizeSubstitution {
 public:
  SizeSubstitution(const std::vector<SizeLeaf>& leaves, const std::vector<Dim>& values);
  Dim operator()(Dim d);

 private:
  std::unordered_map<uint64_t, Dim> values_;  // by key of the leaf
  std::unordered_map<int64_t, Dim> made_;     // by raw size: large expressions share parts
};

struct Guard {
  Dim a, b;
  Comparison comparison;
  bool outcome;
};

// Guards are recorded into the innermost list that is open on this thread; with none open, none are recorded, and there
// is none to close.
void open_guards();
std::vector<Guard> close_guards();

// Size expressions in executable form. A program evaluates them once per run, in order.
struct SizeProgram {
  enum class Kind : uint8_t { leaf, add, mul, floordiv };
  struct Step {
    Kind kind;
    Dim a, b;  // concrete numbers, or references to earlier steps; for a leaf, a is its index
  };
  std::vector<SizeLeaf> leaves;
  std::vector<Step> steps;

  // Begins with these leaves, those of another program, so that the same numbers can be passed to both.
  void set_leaves(const std::vector<SizeLeaf>& first);
  // A reference to the step that will hold d (d itself if concrete). Leaves and steps are shared.
  Dim compile(Dim d);
  int64_t number(SizeLeaf leaf);  // its index among the leaves, of which it becomes one
  void evaluate(const int64_t* leaf_values, int64_t* results) const;
  static int64_t index_of(Dim reference) { return Dim::kSymbolic - 1 - reference.raw; }
  static int64_t resolve(Dim d, const int64_t* results) { return d.symbolic() ? results[index_of(d)] : d.raw; }

 private:
  Dim place(Kind kind, Dim a, Dim b);
  std::unordered_map<int64_t, int64_t> compiled_;  // raw symbol → reference
  std::unordered_map<uint64_t, int64_t> numbers_;  // key of a leaf → its index
};

}  // namespace wengert
