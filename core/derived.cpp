#include "derived.h"

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

GuardSet::GuardSet(const std::vector<Guard>& recorded) {
  for (const Guard& r : recorded) guards.push_back({sizes.compile(r.a), sizes.compile(r.b), r.comparison, r.outcome});
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
  if (python) derive_hooks.drop_object(python);
}

namespace {

template <class T>
struct Known {
  GuardSet guards;
  T* made;
};

// What was derived from ops, by signature. There is a bounded number of signatures in a program; they are never freed.
template <class T>
using Cache = std::unordered_map<std::string, std::vector<Known<T>>>;

template <class T>
Cache<T>& cache_of_ops() {
  static auto* cache = new Cache<T>;
  return *cache;
}

template <class T>
void append(std::string& key, T x) {
  key.append(reinterpret_cast<const char*>(&x), sizeof x);
}

// As coarse as correctness allows: sizes enter only by whether they are 1.
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

// What was derived from an op. `any_shape`, if given: where that is kept which holds for every rank and every size.
template <class T, class Derive>
T& find_of_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs, const int64_t* given, uint64_t mask,
              T** any_shape, Derive derive) {
  static std::string looked_up;  // keeps its memory from call to call
  signature(looked_up, op, in, n_in, attrs, mask);
  Cache<T>& cache = cache_of_ops<T>();
  if (auto it = cache.find(looked_up); it != cache.end())
    for (const Known<T>& k : it->second)
      if (k.guards.hold(in, &attrs, given)) return *k.made;
  const std::string key = looked_up;  // deriving may look up others
  GuardSet guards;
  T* made = derive(op, in, n_in, attrs, mask, guards);
  if (any_shape && !reads_sizes(*made) && guards.guards.empty()) *any_shape = made;
  cache[key].push_back({std::move(guards), made});
  return *made;
}

// A variant of a derived program: known, or derived now.
template <class T, class Derive>
T& find_variant(Derived::Variants<T>& variants, const Derived& p, Value* const* in, int n_in, const int64_t* given,
                uint64_t mask, Derive derive) {
  for (auto& v : variants)
    if (v->mask == mask && (v->rank == Derived::kAnyRank || v->rank == in[0]->ndim) &&
        v->guards.hold(in, nullptr, given))
      return *v->made;
  auto v = std::make_unique<Derived::Variant<T>>();
  v->mask = mask;
  v->rank = Derived::kAnyRank;
  v->made = derive(p, in, n_in, given, mask, v->guards, v->rank);
  return *variants.emplace_back(std::move(v))->made;
}

// Of an elementwise op whose operands have one dtype; null where they may have several.
template <class T>
T** place_for_any_shape(const Op& op, T* (&table)[kNumDTypes][8], DType dtype, uint64_t mask) {
  return op.elementwise && mask < 8 ? &table[static_cast<int>(dtype)][mask] : nullptr;
}

}  // namespace

const Derivative& find_derivative(const Op& op, Value* const* in, int n_in, const Attrs& attrs, uint64_t mask) {
  auto* place = place_for_any_shape(op, const_cast<Op&>(op).derivatives, in[n_in - 1]->dtype, mask);
  return find_of_op(op, in, n_in, attrs, nullptr, mask, place, derive_hooks.op);
}

const Derivative& find_derivative(Derived& p, Value* const* in, int n_in, const int64_t* given, uint64_t mask) {
  return find_variant(p.derivatives, p, in, n_in, given, mask, derive_hooks.program);
}

Derived& find_push(const Op& op, Value* const* in, int n_in, const Attrs& attrs, const int64_t* given, uint64_t mask) {
  auto* place = place_for_any_shape(op, const_cast<Op&>(op).pushes, in[n_in - 1]->dtype, mask);
  if (place && *place) return **place;
  return find_of_op(op, in, n_in, attrs, given, mask, place, derive_hooks.push_op);
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

}  // namespace wengert
