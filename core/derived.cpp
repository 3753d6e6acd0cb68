#include "derived.h"

#include <algorithm>
#include <list>
#include <string>
#include <unordered_map>

namespace wengert {

DeriveHooks derive_hooks;

void gather_sizes(const std::vector<SizeLeaf>& leaves, Value* const* in, const Attrs* attrs, const int64_t* given,
                  int64_t* sizes) {
  for (size_t i = 0; i < leaves.size(); ++i) {
    const SizeLeaf& l = leaves[i];
    switch (l.kind) {
      case SizeLeaf::input: sizes[i] = in[l.source]->shape[l.index]; break;
      case SizeLeaf::attribute: sizes[i] = (*attrs)[l.source].dims[l.index].raw; break;
      case SizeLeaf::content: sizes[i] = reinterpret_cast<const int64_t*>(in[l.source]->data)[l.index]; break;
      case SizeLeaf::given: sizes[i] = given[l.index]; break;
    }
  }
}

void check_leaves(const std::vector<SizeLeaf>& leaves, Value* const* in, size_t n) {
  for (const SizeLeaf& l : leaves) {
    const Value* v = l.source >= 0 && static_cast<size_t>(l.source) < n ? in[l.source] : nullptr;
    const bool axis = l.kind == SizeLeaf::input && v && l.index < v->ndim;
    const bool entry =
        l.kind == SizeLeaf::content && v && v->dtype == DType::Int64 && l.index < v->size && v->contiguous;
    if (!axis && !entry) fail(ErrorKind::value, "program", "reads a size that its operands do not have");
  }
}

// Sizes that programs inside of instructions have for themselves, by the numbers of `transforms/sized.py`. Nobody
// outside knows them, and what is compared with them does not depend on their numbers.
static bool is_own(const SizeLeaf& l) { return l.kind == SizeLeaf::given && l.source >= 1 << 30; }

GuardSet::GuardSet(const std::vector<Guard>& recorded) {
  for (const Guard& r : recorded) {
    const std::vector<SizeLeaf> of_a = leaves_of(r.a), of_b = leaves_of(r.b);
    if (std::ranges::any_of(of_a, is_own) || std::ranges::any_of(of_b, is_own)) continue;
    guards.push_back({sizes.compile(r.a), sizes.compile(r.b), r.comparison, r.outcome});
  }
}

bool GuardSet::evaluate(Value* const* in, const Attrs* attrs, const int64_t* given) const {
  SmallArray<int64_t, 32> leaves(sizes.leaves.size()), results(sizes.steps.size());
  gather_sizes(sizes.leaves, in, attrs, given, leaves.data());
  sizes.evaluate(leaves.data(), results.data());
  for (const Guard& g : guards) {
    int64_t a = SizeProgram::resolve(g.a, results.data()), b = SizeProgram::resolve(g.b, results.data());
    if ((g.comparison == Comparison::equal ? a == b : a < b) != g.outcome) return false;
  }
  return true;
}

Derivative::~Derivative() {
  if (vjp) release(vjp);
  if (python) derive_hooks.drop_object(python);
}

Derived::~Derived() {
  for (auto& v : derivatives) release(v->made);
  for (auto& v : pushes) release(v->made);
  for (auto& v : narrowed) release(v->made);
  for (auto& v : partial)
    if (v->made) release(v->made);
  if (python) derive_hooks.drop_object(python);
}

void run(const Derived& p, Value* const* in, const int64_t* given, Value** out, int n_taken) {
  if (p.all_given) return run(*p.program, in, given, out, nullptr, n_taken);
  SmallArray<int64_t, 16> sizes(p.program->sizes.leaves.size());
  gather_sizes(p.program->sizes.leaves, in, nullptr, given, sizes.data());
  run(*p.program, in, sizes.data(), out, nullptr, n_taken);
}

namespace {

// A cache of what was derived from ops, by signature. Attributes are part of the signature, and a loop may produce ever
// new ones (a computed eps or probability), so the cache keeps only the kCapacity most recently used entries.
template <class T>
class Cache {
 public:
  static constexpr size_t kCapacity = 1024;

  T* find(const Op& op, const std::string& key, Value* const* in, const Attrs& attrs, const int64_t* given) {
    const size_t id = static_cast<size_t>(op.id);
    if (id < latest_.size() && latest_[id] != entries_.end() && latest_[id]->key == key)
      if (T* found = use(latest_[id], in, attrs, given)) return found;
    for (auto [it, end] = by_key_.equal_range(key); it != end; ++it) {
      T* found = use(it->second, in, attrs, given);
      if (!found) continue;
      if (id >= latest_.size() && id < kMostOps) latest_.resize(id + 1, entries_.end());
      if (id < kMostOps) latest_[id] = it->second;
      return found;
    }
    return nullptr;
  }

  // Takes the reference.
  void add(const std::string& key, GuardSet guards, T* made) {
    entries_.push_front({key, std::move(guards), made});
    by_key_.emplace(key, entries_.begin());
    while (entries_.size() > kCapacity) forget_last();
  }

 private:
  struct Entry {
    std::string key;
    GuardSet guards;
    T* made;
  };
  using Position = typename std::list<Entry>::iterator;
  static constexpr size_t kMostOps = 1 << 16;  // ops made at run time have higher ids

  T* use(Position place, Value* const* in, const Attrs& attrs, const int64_t* given) {
    if (!place->guards.hold(in, &attrs, given)) return nullptr;
    entries_.splice(entries_.begin(), entries_, place);
    return place->made;
  }

  void forget_last() {
    const Position last = std::prev(entries_.end());
    std::replace(latest_.begin(), latest_.end(), last, entries_.end());
    auto [it, end] = by_key_.equal_range(last->key);
    while (it != end && it->second != last) ++it;
    by_key_.erase(it);
    T* made = last->made;
    entries_.erase(last);
    release(made);  // last, because it may call Python
  }

  std::list<Entry> entries_;  // most recently used first
  std::unordered_multimap<std::string, Position> by_key_;
  std::vector<Position> latest_;  // by op: the entry found last, which is nearly always the next one needed
};

template <class T>
Cache<T>& cache_of_ops() {
  static auto* cache = new Cache<T>;
  return *cache;
}

template <class T>
void append(std::string& key, T x) {
  key.append(reinterpret_cast<const char*>(&x), sizeof x);
}

// As coarse as correctness allows: the key only says which sizes are 1.
void append_sizes(std::string& key, const Dims& d) {
  append(key, static_cast<uint8_t>(d.n));
  uint16_t ones = 0;
  for (int i = 0; i < d.n; ++i) ones |= (d[i].raw == 1) << i;
  append(key, ones);
}

void signature(std::string& key, const Op& op, Value* const* in, int n_in, const Attrs& attrs, uint64_t mask) {
  key.clear();
  append(key, op.id);
  append(key, mask);
  append(key, n_in);
  for (int i = 0; i < n_in; ++i) {
    append(key, in[i]->dtype);
    append_sizes(key, in[i]->dims());
  }
  for (int k = 0; k < attrs.n; ++k) {
    const Attr& a = attrs[k];
    switch (a.kind) {
      case Attr::Kind::integer: append(key, a.i); break;
      case Attr::Kind::real: append(key, a.f); break;
      case Attr::Kind::sizes: append_sizes(key, a.dims); break;
      case Attr::Kind::integers:
        append(key, a.dims.n);
        for (Dim d : a.dims) append(key, d.raw);
    }
  }
}

bool reads_sizes(const Derivative& d) { return !d.sizes.empty() || (d.forward && !d.forward->sizes.leaves.empty()); }
bool reads_sizes(const Derived& p) { return !p.program->sizes.leaves.empty(); }

template <class T>
T* shared(T* made) {
  retain(made);
  return made;
}

// Returns what was derived from an op. `any_shape`, if given, holds the entry that is valid for every rank and size.
template <class T, class Derive>
T* find_of_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs, const int64_t* given, uint64_t mask,
              T** any_shape, Derive derive) {
  static std::string looked_up;  // static, so that its memory is reused
  signature(looked_up, op, in, n_in, attrs, mask);
  Cache<T>& cache = cache_of_ops<T>();
  if (T* known = cache.find(op, looked_up, in, attrs, given)) return shared(known);
  const std::string key = looked_up;  // copied, because deriving may look up other ops
  GuardSet guards;
  T* made = derive(op, in, n_in, attrs, mask, guards);
  if (any_shape && !reads_sizes(*made) && guards.guards.empty()) *any_shape = shared(made);
  cache.add(key, std::move(guards), shared(made));
  return made;
}

template <class T>
Derived::Variant<T>* known_variant(Derived::Variants<T>& variants, Value* const* in, const int64_t* given,
                                   uint64_t mask) {
  for (auto& v : variants)
    if (v->mask == mask && (v->rank == Derived::kAnyRank || v->rank == in[0]->ndim) &&
        v->guards.hold(in, nullptr, given))
      return v.get();
  return nullptr;
}

// A variant of a derived program, derived now if necessary.
template <class T, class Derive>
T& find_variant(Derived::Variants<T>& variants, const Derived& p, Value* const* in, int n_in, const int64_t* given,
                uint64_t mask, Derive derive) {
  if (auto* known = known_variant(variants, in, given, mask)) return *known->made;
  auto v = std::make_unique<Derived::Variant<T>>();
  v->mask = mask;
  v->rank = Derived::kAnyRank;
  v->made = derive(p, in, n_in, given, mask, v->guards, v->rank);
  return *variants.emplace_back(std::move(v))->made;
}

// The table entry of an elementwise op whose operands share one dtype; null if they may differ.
template <class T>
T** place_for_any_shape(const Op& op, T* (&table)[kNumDTypes][8], DType dtype, uint64_t mask) {
  return op.elementwise && mask < 8 ? &table[static_cast<int>(dtype)][mask] : nullptr;
}

}  // namespace

Handle<const Derivative> find_derivative(const Op& op, Value* const* in, int n_in, const Attrs& attrs, uint64_t mask) {
  auto* place = place_for_any_shape(op, const_cast<Op&>(op).derivatives, in[n_in - 1]->dtype, mask);
  return Handle<const Derivative>(find_of_op(op, in, n_in, attrs, nullptr, mask, place, derive_hooks.op));
}

const Derivative& find_derivative(Derived& p, Value* const* in, int n_in, const int64_t* given, uint64_t mask) {
  return find_variant(p.derivatives, p, in, n_in, given, mask, derive_hooks.program);
}

Handle<Derived> find_push(const Op& op, Value* const* in, int n_in, const Attrs& attrs, const int64_t* given,
                          uint64_t mask) {
  auto* place = place_for_any_shape(op, const_cast<Op&>(op).pushes, in[n_in - 1]->dtype, mask);
  if (place && *place) return Handle<Derived>(shared(*place));
  return Handle<Derived>(find_of_op(op, in, n_in, attrs, given, mask, place, derive_hooks.push_op));
}

Derived& find_push(Derived& p, Value* const* in, int n_in, const int64_t* given, uint64_t mask) {
  return find_variant(p.pushes, p, in, n_in, given, mask, derive_hooks.push_program);
}

Derived& find_narrowed(Derived& p, uint64_t mask) {
  for (auto& v : p.narrowed)
    if (v->mask == mask) return *v->made;
  auto v = std::make_unique<Derived::Variant<Derived>>();
  v->mask = mask;
  v->made = derive_hooks.narrow(p, mask);
  return *p.narrowed.emplace_back(std::move(v))->made;
}

namespace {

// A program with many outputs may get a different set of cotangents in every walk. Beyond this many variants, missing
// cotangents are filled with zeros.
constexpr size_t kMostPartial = 16;

}  // namespace

Derived* find_partial(Derived& p, Value* const* in, const int64_t* given, int n_bars, uint64_t mask,
                      const Complete& complete) {
  if (auto* known = known_variant(p.partial, in, given, mask)) return known->made;
  if (p.partial.size() >= kMostPartial) return nullptr;
  const std::vector<Value*> all = complete();
  auto v = std::make_unique<Derived::Variant<Derived>>();
  v->mask = mask;
  v->rank = Derived::kAnyRank;
  v->made = derive_hooks.partial(p, all.data(), static_cast<int>(all.size()), given, n_bars, mask, v->guards, v->rank);
  if (v->rank != Derived::kAnyRank) v->rank = in[0]->ndim;  // the first operand that is present
  return p.partial.emplace_back(std::move(v))->made;
}

}  // namespace wengert
