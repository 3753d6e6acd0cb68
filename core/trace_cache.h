// The traces of one function, by signature. Static values may differ in every call, so the cache is bounded and evicts
// the least recently used traces.
#pragma once
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace wengert {

// `Entry` has `used` and `running`, as a Trace.
template <class Entry>
class TraceCache {
 public:
  static constexpr size_t kMostEntries = 128;
  using Entries = std::list<Entry>;  // traces of one signature, most recently used first; addresses are stable

  // The traces for a signature, or null. The signature of the last call is nearly always that of the next.
  Entries* find(std::string_view signature) {
    if (!latest_ || latest_->first != signature) {
      auto it = by_signature_.find(std::string(signature));
      latest_ = it == by_signature_.end() ? nullptr : &*it;
    }
    return latest_ ? &latest_->second : nullptr;
  }

  Entries& add(std::string_view signature, Entry&& e) {
    if (count_ >= kMostEntries) drop_one();
    Entries& entries = by_signature_[std::string(signature)];
    entries.push_front(std::move(e));
    ++count_;
    return entries;
  }

  void use(Entries& entries, typename Entries::iterator at) {
    at->used = ++calls_;
    if (at != entries.begin()) entries.splice(entries.begin(), entries, at);  // the next call is likely the same
  }

  // The caller frees the result, because destroying entries may call Python.
  TraceCache take_all() {
    latest_ = nullptr;
    return std::exchange(*this, {});
  }

  template <class F>
  void for_each(F&& f) {
    for (auto& [signature, entries] : by_signature_)
      for (Entry& e : entries) f(e);
  }

 private:
  using Map = std::unordered_map<std::string, Entries>;
  Map by_signature_;
  typename Map::value_type* latest_ = nullptr;
  size_t count_ = 0;
  uint64_t calls_ = 0;

  // Evicts the least recently used entry that no call is using.
  void drop_one() {
    auto bucket = by_signature_.end();
    typename Entries::iterator oldest;
    for (auto b = by_signature_.begin(); b != by_signature_.end(); ++b)
      for (auto e = b->second.begin(); e != b->second.end(); ++e)
        if (!e->running && (bucket == by_signature_.end() || e->used < oldest->used)) {
          bucket = b;
          oldest = e;
        }
    if (bucket == by_signature_.end()) return;
    Entries gone;  // freed last
    gone.splice(gone.end(), bucket->second, oldest);
    --count_;
    if (!bucket->second.empty()) return;
    if (latest_ == &*bucket) latest_ = nullptr;
    by_signature_.erase(bucket);
  }
};

// Keeps an entry in its cache while a call uses it.
template <class Entry>
class InUse {
  Entry& e_;

 public:
  explicit InUse(Entry& e) : e_(e) { ++e_.running; }
  ~InUse() { --e_.running; }
  InUse(const InUse&) = delete;
};

}  // namespace wengert
