#include "dim.h"

#include <map>
#include <set>
#include <tuple>

#include "error.h"

namespace wengert {

namespace {

// A symbolic size is a linear combination of atoms plus a constant; an atom is a leaf, a product or a floor division.
// The normal form makes equal expressions identical in the common cases ((n + m) - m is n), without a solver. A sum of
// very many terms, such as the size of a concatenation, is an atom, too: else each of its parts would list all before.
struct Atom {
  enum Kind : uint8_t { leaf, sum, product, quotient } kind;
  SizeLeaf size;  // leaf
  int64_t a, b;   // operands of the others, as raw dims
  int64_t hint;
};

using Terms = std::map<int32_t, int64_t>;  // atom → coefficient
constexpr size_t kMostTerms = 16;

struct Expression {
  Terms terms;
  int64_t constant = 0;
  int64_t hint = 0;
};

// Programs keep their sizes for printing and lowering, so expressions live as long as the process. There are a few
// dozen per derived signature.
struct Table {
  std::vector<Atom> atoms;
  std::vector<Expression> expressions;
  std::map<std::pair<Terms, int64_t>, int64_t> interned;
  std::map<std::tuple<int, int64_t, int64_t>, int32_t> composites;
  std::multimap<std::tuple<int, int32_t, int32_t, int64_t>, int32_t> unused;  // leaf and hint → atom
};

Table& table() {
  static Table t;
  return t;
}

// Guards in the order in which they were asked for first: a long program asks the same again and again.
struct GuardList {
  std::vector<Guard> guards;
  std::set<std::tuple<int64_t, int64_t, Comparison>> known;

  void add(const Guard& g) {
    if (known.emplace(g.a.raw, g.b.raw, g.comparison).second) guards.push_back(g);
  }
};
thread_local std::vector<GuardList> open_lists;

constexpr int64_t index_of(int64_t raw) { return Dim::kSymbolic - 1 - raw; }

Expression expression(Dim d) {
  if (d.symbolic()) return table().expressions[index_of(d.raw)];
  return {{}, d.raw, d.raw};
}

Dim intern(Expression e) {
  std::erase_if(e.terms, [](const auto& t) { return t.second == 0; });
  if (e.terms.empty()) return Dim(e.constant);
  auto [it, fresh] = table().interned.try_emplace({e.terms, e.constant}, 0);
  if (fresh) {
    it->second = Dim::kSymbolic - 1 - static_cast<int64_t>(table().expressions.size());
    table().expressions.push_back(std::move(e));
  }
  return Dim(it->second);
}

Dim of_atom(int32_t atom) { return intern({{{atom, 1}}, 0, table().atoms[atom].hint}); }

Dim composite(Atom::Kind kind, Dim a, Dim b, int64_t hint) {
  auto [it, fresh] = table().composites.try_emplace({kind, a.raw, b.raw}, 0);
  if (fresh) {
    it->second = static_cast<int32_t>(table().atoms.size());
    table().atoms.push_back({kind, {}, a.raw, b.raw, hint});
  }
  return of_atom(it->second);
}

// Sizes too large for anything stay the largest number: whoever allocates them refuses.
int64_t saturating_mul(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

// By 0 it is 0: an expression may be evaluated for sizes at which its program does not run.
int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

// Sums and multiples in parentheses: a text of a size means one thing.
std::string operand_string(Dim d) {
  const Expression e = expression(d);
  const bool plain = e.terms.empty() || (e.terms.size() == 1 && e.constant == 0 && e.terms.begin()->second == 1);
  return plain ? to_string(d) : "(" + to_string(d) + ")";
}

std::string atom_string(int32_t id) {
  const Atom& a = table().atoms[id];
  if (a.kind == Atom::leaf) {
    const char* const letters[] = {"n", "a", "k", "s"};
    return letters[a.size.kind] + std::to_string(a.size.source) + "_" + std::to_string(a.size.index);
  }
  const char* sign = a.kind == Atom::sum ? "+" : a.kind == Atom::product ? "*" : "//";
  return "(" + operand_string(Dim(a.a)) + sign + operand_string(Dim(a.b)) + ")";
}

}  // namespace

int64_t Dim::hint() const { return symbolic() ? table().expressions[index_of(raw)].hint : raw; }

Dim dim_add(Dim a, Dim b) {
  Expression e = expression(a), f = expression(b);
  for (auto [atom, coefficient] : f.terms) e.terms[atom] += coefficient;
  if (e.terms.size() > kMostTerms) return composite(Atom::sum, a, b, saturating_add(e.hint, f.hint));
  e.constant += f.constant;
  e.hint = saturating_add(e.hint, f.hint);
  return intern(std::move(e));
}

Dim dim_mul(Dim a, Dim b) {
  if (a.symbolic() && b.symbolic()) {
    if (b.raw < a.raw) std::swap(a, b);
    return composite(Atom::product, a, b, saturating_mul(a.hint(), b.hint()));
  }
  if (!a.symbolic()) std::swap(a, b);
  Expression e = expression(a);
  for (auto& [atom, coefficient] : e.terms) coefficient = saturating_mul(coefficient, b.raw);
  e.constant = saturating_mul(e.constant, b.raw);
  e.hint = saturating_mul(e.hint, b.raw);
  return intern(std::move(e));
}

Dim dim_floordiv(Dim a, Dim b) {
  if (!a.symbolic() && !b.symbolic()) return Dim(floor_div(a.raw, b.raw));
  if (b.raw == 1) return a;
  if (a.raw == b.raw) return Dim(1);
  return composite(Atom::quotient, a, b, floor_div(a.hint(), b.hint()));
}

namespace {

// A size of an operand that is a symbol is not 1: which sizes are is part of every signature.
bool is_operand_size(Dim d) {
  if (!d.symbolic()) return false;
  const Expression& e = table().expressions[index_of(d.raw)];
  if (e.terms.size() != 1 || e.constant != 0 || e.terms.begin()->second != 1) return false;
  const Atom& a = table().atoms[e.terms.begin()->first];
  return a.kind == Atom::leaf && a.size.kind != SizeLeaf::content && a.hint != 1;
}

}  // namespace

bool dim_compare(Dim a, Dim b, Comparison c) {
  if (c == Comparison::equal && ((b.raw == 1 && is_operand_size(a)) || (a.raw == 1 && is_operand_size(b))))
    return false;
  Dim difference = a - b;
  if (!difference.symbolic()) return c == Comparison::equal ? difference.raw == 0 : difference.raw < 0;
  bool outcome = c == Comparison::equal ? a.hint() == b.hint() : a.hint() < b.hint();
  if (!open_lists.empty()) open_lists.back().add({a, b, c, outcome});
  return outcome;
}

namespace {

thread_local std::vector<std::vector<int32_t>> symbols_at_work;

int32_t unused_symbol(SizeLeaf leaf, int64_t hint) {
  auto& unused = table().unused;
  if (auto it = unused.find({leaf.kind, leaf.source, leaf.index, hint}); it != unused.end()) {
    const int32_t id = it->second;
    unused.erase(it);
    return id;
  }
  table().atoms.push_back({Atom::leaf, leaf, 0, 0, hint});
  return static_cast<int32_t>(table().atoms.size()) - 1;
}

}  // namespace

Dim new_symbol(SizeLeaf leaf, int64_t hint) {
  const int32_t id = unused_symbol(leaf, hint);
  if (!symbols_at_work.empty()) symbols_at_work.back().push_back(id);
  return of_atom(id);
}

void open_symbols() { symbols_at_work.emplace_back(); }

void close_symbols() {
  if (symbols_at_work.empty()) fail(ErrorKind::value, "close_symbols", "no list of symbols is open in this thread");
  for (int32_t id : symbols_at_work.back()) {
    const Atom& a = table().atoms[id];
    table().unused.insert({{a.size.kind, a.size.source, a.size.index, a.hint}, id});
  }
  symbols_at_work.pop_back();
}

std::string to_string(Dim d) {
  if (!d.symbolic()) return std::to_string(d.raw);
  const Expression& e = table().expressions[index_of(d.raw)];
  std::string s;
  for (auto [atom, coefficient] : e.terms) {
    if (!s.empty()) s += "+";
    if (coefficient != 1) s += std::to_string(coefficient) + "*";
    s += atom_string(atom);
  }
  if (e.constant > 0) s += "+" + std::to_string(e.constant);
  if (e.constant < 0) s += std::to_string(e.constant);
  return s;
}

std::vector<SizeLeaf> leaves_of(Dim d) {
  std::vector<SizeLeaf> found;
  if (!d.symbolic()) return found;
  for (auto [id, coefficient] : expression(d).terms) {
    const Atom a = table().atoms[id];
    if (a.kind == Atom::leaf) {
      found.push_back(a.size);
      continue;
    }
    for (Dim part : {Dim(a.a), Dim(a.b)})
      for (SizeLeaf l : leaves_of(part)) found.push_back(l);
  }
  return found;
}

bool is_leaf(Dim d) {
  if (!d.symbolic()) return false;
  const Expression e = expression(d);
  if (e.constant != 0 || e.terms.size() != 1) return false;
  auto [id, coefficient] = *e.terms.begin();
  return coefficient == 1 && table().atoms[id].kind == Atom::leaf;
}

SizeSubstitution::SizeSubstitution(const std::vector<SizeLeaf>& leaves, const std::vector<Dim>& values) {
  for (size_t i = 0; i < leaves.size(); ++i) values_.emplace(leaves[i].key(), values[i]);
}

Dim SizeSubstitution::operator()(Dim d) {
  if (!d.symbolic()) return d;
  if (auto known = made_.find(d.raw); known != made_.end()) return known->second;
  const Expression e = table().expressions[index_of(d.raw)];
  Dim sum(e.constant);
  for (auto [id, coefficient] : e.terms) {
    const Atom a = table().atoms[id];
    Dim term;
    if (a.kind == Atom::leaf) {
      auto found = values_.find(a.size.key());
      term = found != values_.end() ? found->second : of_atom(id);
    } else {
      Dim left = (*this)(Dim(a.a)), right = (*this)(Dim(a.b));
      term = a.kind == Atom::sum ? left + right : a.kind == Atom::product ? left * right : dim_floordiv(left, right);
    }
    sum = sum + term * Dim(coefficient);
  }
  made_.emplace(d.raw, sum);
  return sum;
}

void open_guards() { open_lists.emplace_back(); }

std::vector<Guard> close_guards() {
  if (open_lists.empty()) fail(ErrorKind::value, "close_guards", "no list of guards is open in this thread");
  std::vector<Guard> guards = std::move(open_lists.back().guards);
  open_lists.pop_back();
  return guards;
}

Dim SizeProgram::place(Kind kind, Dim a, Dim b) {
  steps.push_back({kind, a, b});
  return Dim(Dim::kSymbolic - static_cast<int64_t>(steps.size()));
}

void SizeProgram::set_leaves(const std::vector<SizeLeaf>& first) {
  for (const SizeLeaf& l : first) number(l);
}

int64_t SizeProgram::number(SizeLeaf leaf) {
  auto [it, fresh] = numbers_.try_emplace(leaf.key(), static_cast<int64_t>(leaves.size()));
  if (fresh) leaves.push_back(leaf);
  return it->second;
}

Dim SizeProgram::compile(Dim d) {
  if (!d.symbolic()) return d;
  if (auto known = compiled_.find(d.raw); known != compiled_.end()) return Dim(known->second);
  const Expression e = table().expressions[index_of(d.raw)];  // a copy: compiling operands may grow the table
  auto atom = [&](int32_t id) {
    const Atom a = table().atoms[id];
    if (a.kind == Atom::leaf) return place(Kind::leaf, Dim(number(a.size)), Dim(0));
    Dim left = compile(Dim(a.a)), right = compile(Dim(a.b));
    return place(a.kind == Atom::sum ? Kind::add : a.kind == Atom::product ? Kind::mul : Kind::floordiv, left, right);
  };
  Dim sum(e.constant);
  bool first = e.constant == 0;
  for (auto [id, coefficient] : e.terms) {
    bool alone = e.terms.size() == 1 && coefficient == 1 && first;
    Dim term = alone ? atom(id) : compile(of_atom(id));
    if (coefficient != 1) term = place(Kind::mul, term, Dim(coefficient));
    sum = first ? term : place(Kind::add, sum, term);
    first = false;
  }
  compiled_.emplace(d.raw, sum.raw);
  return sum;
}

void SizeProgram::evaluate(const int64_t* leaf_values, int64_t* results) const {
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& s = steps[i];
    if (s.kind == Kind::leaf) {
      results[i] = leaf_values[s.a.raw];
      continue;
    }
    int64_t a = resolve(s.a, results), b = resolve(s.b, results);
    switch (s.kind) {
      case Kind::add: results[i] = saturating_add(a, b); break;
      case Kind::mul: results[i] = saturating_mul(a, b); break;
      default: results[i] = floor_div(a, b);
    }
  }
}

}  // namespace wengert
