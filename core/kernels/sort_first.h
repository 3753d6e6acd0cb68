// The first few elements of a line in order, without sorting the rest.
#pragma once
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "sort_order.h"

namespace wengert {

constexpr int64_t kFilter = 16;  // elements that are compared with the last of a heap at once

// Whether some of the elements from x on come before `last` in the order, or may be NaN. No branch: most hold nothing.
template <bool descending, class T>
bool may_precede(const T* x, int64_t step, T last) {
  if constexpr (std::is_floating_point_v<T>) {
    int found = 0;
    for (int64_t i = 0; i < kFilter; ++i) found |= !(descending ? x[i * step] <= last : x[i * step] >= last);
    return found != 0;
  } else {
    const auto key = key_of(last);
    bool found = false;
    for (int64_t i = 0; i < kFilter; ++i) {
      const auto now = key_of(x[i * step]);
      found |= (descending ? now > key : now < key) || is_nan(x[i * step]);
    }
    return found;
  }
}

// The first few of a line in order: a sorted list if it is short, else a heap.
template <class Key>
class FirstFew {
 public:
  struct Item {
    Key key;
    int64_t position;
    bool operator<(const Item& o) const { return key != o.key ? key < o.key : position < o.position; }
  };
  static constexpr int64_t kShort = 32;

  explicit FirstFew(std::vector<Item> items) : items_(std::move(items)), listed_(std::ssize(items_) <= kShort) {
    listed_ ? std::sort(items_.begin(), items_.end()) : std::make_heap(items_.begin(), items_.end());
  }
  const Item& last() const { return listed_ ? items_.back() : items_.front(); }
  // The item comes before the last, and was met after all that are here.
  void replace_last(Item item) {
    if (!listed_) {
      std::pop_heap(items_.begin(), items_.end());
      items_.back() = item;
      std::push_heap(items_.begin(), items_.end());
      return;
    }
    size_t j = items_.size() - 1;
    for (; j > 0 && item.key < items_[j - 1].key; --j) items_[j] = items_[j - 1];
    items_[j] = item;
  }
  const std::vector<Item>& in_order() {
    if (!listed_) std::sort_heap(items_.begin(), items_.end());
    return items_;
  }

 private:
  std::vector<Item> items_;
  bool listed_;
};

// The first `keep` of a line in order: for few of many.
template <bool descending, class T>
bool first_of_line(const T* x, Line line, int64_t keep, T* values, int64_t* indices) {
  using Key = typename Order<T>::Key;
  using B = typename Order<T>::Bits;
  using First = FirstFew<Key>;
  const int64_t step = line.step;
  const Key turn = descending ? static_cast<B>(~B{0}) : Key{0};
  std::vector<typename First::Item> items(static_cast<size_t>(keep));
  bool nan = false;
  for (int64_t i = 0; i < keep; ++i) {
    items[i] = {key_of(x[i * step]) ^ turn, i};
    nan |= is_nan(x[i * step]);
  }
  First first(std::move(items));
  for (int64_t start = keep; start < line.n; start += kFilter) {
    const int64_t end = std::min(line.n, start + kFilter);
    const T* from = x + start * step;
    const T last = x[first.last().position * step];
    if (end == start + kFilter &&
        !(step == 1 ? may_precede<descending>(from, 1, last) : may_precede<descending>(from, step, last))) {
      continue;
    }
    for (int64_t i = start; i < end; ++i) {
      const Key key = key_of(x[i * step]) ^ turn;
      nan |= is_nan(x[i * step]);
      if (key < first.last().key) first.replace_last({key, i});
    }
  }
  const auto& ordered = first.in_order();
  for (int64_t i = 0; i < keep; ++i) {
    if (values != nullptr) values[i * step] = x[ordered[i].position * step];
    if (indices != nullptr) indices[i * step] = ordered[i].position;
  }
  return nan;
}

}  // namespace wengert
