#include "task_order.h"

#include <algorithm>

namespace wengert::cuda {

namespace {

constexpr size_t kMostDistance = 64;  // tasks between two that are joined

}  // namespace

bool contains(const std::vector<const char*>& blocks, const char* block) {
  return std::find(blocks.begin(), blocks.end(), block) != blocks.end();
}

bool overlap(const std::vector<const char*>& a, const std::vector<const char*>& b) {
  return std::any_of(a.begin(), a.end(), [&](const char* x) { return contains(b, x); });
}

bool are_in_order(const Task& first, const Task& second) {
  return overlap(first.reads, second.writes) || overlap(first.writes, second.writes) ||
         overlap(first.writes, second.reads);
}

size_t TaskOrder::maker_of(const char* block, size_t b) const {
  for (size_t t = b, left = kMostDistance; t-- > 0 && left > 0;) {
    if (gone_[t]) continue;
    --left;
    if (contains(tasks_[t].writes, block)) return is_chain(tasks_[t]) ? t : b;
  }
  return b;
}

bool TaskOrder::can_wait(size_t a, size_t b) const {
  for (size_t t = a + 1; t < b; ++t)
    if (!gone_[t] && are_in_order(tasks_[a], tasks_[t])) return false;
  return true;
}

bool TaskOrder::can_come(size_t b, size_t a) const {
  for (size_t t = a + 1; t < b; ++t)
    if (!gone_[t] && are_in_order(tasks_[t], tasks_[b])) return false;
  return true;
}

bool TaskOrder::is_read_later(const void* data, int64_t bytes, size_t b) const {
  const auto* begin = static_cast<const char*>(data);
  for (const Range& r : kept_)
    if (r.begin < begin + bytes && begin < r.end) return true;
  const char* block = recording_.block_of(data);
  for (size_t t = b + 1; t < tasks_.size(); ++t) {
    if (gone_[t]) continue;
    if (contains(tasks_[t].reads, block)) return true;
    if (contains(tasks_[t].writes, block)) return false;
  }
  return false;
}

void TaskOrder::describe(const ElementCall& call, const std::vector<const void*>& numbers, int32_t word,
                         Task& t) const {
  const auto add = [&](std::vector<const char*>& list, const void* data) {
    const char* block = recording_.block_of(data);
    if (block && !contains(list, block)) list.push_back(block);
  };
  for (const void* to : call.out) add(t.writes, to);
  word += static_cast<int32_t>(call.out.size());
  size_t input = 0, number = 0;
  for (const Chain::Register& r : call.chain->registers) {
    if (!r.input) continue;
    const Operand& operand = call.in[input++];
    const int64_t bytes = size_of(r.dtype);
    if (operand.number)
      t.numbers.push_back({word, numbers[number++], bytes});
    else
      add(t.reads, operand.data);
    word += operand.number && bytes > 8 ? 2 : 1;
  }
}

std::vector<const void*> TaskOrder::numbers_of(const Task& t) {
  std::vector<const void*> found;
  for (const Task::Number& number : t.numbers) found.push_back(number.data);
  return found;
}

}  // namespace wengert::cuda
