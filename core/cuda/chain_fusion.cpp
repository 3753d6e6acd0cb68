#include "chain_fusion.h"

#include <algorithm>
#include <map>

#include "../shape.h"

namespace wengert::cuda {

namespace {

constexpr size_t kMostWords = 400;     // of a joined chain, whose parameters have 4 KiB
constexpr size_t kMostRegisters = 64;  // and what a thread can hold
constexpr size_t kMostDistance = 64;   // tasks between two that are joined

bool contains(const std::vector<const char*>& list, const char* block) {
  return std::find(list.begin(), list.end(), block) != list.end();
}
bool overlap(const std::vector<const char*>& a, const std::vector<const char*>& b) {
  return std::any_of(a.begin(), a.end(), [&](const char* x) { return contains(b, x); });
}

bool is_packed(const std::vector<int64_t>& shape, const int64_t* strides) {
  int64_t expected = 1;
  for (size_t a = shape.size(); a-- > 0; expected *= shape[a])
    if (shape[a] != 1 && strides[a] != expected) return false;
  return true;
}

// The strides over shape `to` of what has these over shape `from`, both of the same elements in the same order. False:
// there are none.
bool restride(const std::vector<int64_t>& from, const int64_t* strides, const std::vector<int64_t>& to,
              std::vector<int64_t>& made) {
  made.assign(to.size(), 0);
  size_t i = from.size(), k = to.size();
  while (i > 0 || k > 0) {
    while (i > 0 && from[i - 1] == 1) --i;
    while (k > 0 && to[k - 1] == 1) --k;
    if (i == 0 || k == 0) return i == k;
    // A run of axes of each that has the same elements.
    int64_t n = from[--i], m = to[--k];
    const size_t last_from = i, last_to = k;
    while (n != m) {
      if (n < m) {
        if (i == 0) return false;
        n *= from[--i];
      } else {
        if (k == 0) return false;
        m *= to[--k];
      }
    }
    for (size_t a = i; a < last_from; ++a)
      if (from[a] != 1 && strides[a] != strides[last_from] * [&] {
            int64_t within = 1;
            for (size_t b = a + 1; b <= last_from; ++b) within *= from[b];
            return within;
          }())
        return false;
    int64_t stride = strides[last_from];
    for (size_t b = last_to + 1; b-- > k; stride *= to[b]) made[b] = stride;
  }
  return true;
}

// A chain with its operands, while it is put together.
struct Joined {
  std::shared_ptr<Chain> chain = std::make_shared<Chain>();
  std::vector<int64_t> shape;
  int row_axes = 0;
  std::vector<Operand> in;
  std::vector<std::vector<int64_t>> strides;
  std::vector<const void*> numbers;  // of the host, of the operands that are numbers
  std::vector<void*> out;
};

class ChainFuser {
 public:
  ChainFuser(std::vector<Task>& tasks, const std::vector<Range>& kept, const Recording& recording,
             std::vector<std::unique_ptr<BodyKernel>>& made)
      : tasks_(tasks), kept_(kept), recording_(recording), made_(made), gone_(tasks.size()) {}

  void run() {
    for (size_t b = 0; b < tasks_.size(); ++b)
      while (join_with_maker(b)) continue;
    drop(tasks_, gone_);
  }

 private:
  std::vector<Task>& tasks_;
  const std::vector<Range>& kept_;
  const Recording& recording_;
  std::vector<std::unique_ptr<BodyKernel>>& made_;
  std::vector<bool> gone_;
  std::map<std::string, BodyKernel*> kernels_;

  static bool is_chain(const Task& t) { return t.kernel && t.elements && !t.product; }

  bool join_with_maker(size_t b) {
    if (!is_chain(tasks_[b]) || gone_[b]) return false;
    const ElementCall& call = *tasks_[b].elements;
    size_t input = 0;
    for (const Chain::Register& r : call.chain->registers) {
      if (!r.input) continue;
      const Operand& operand = call.in[input++];
      if (r.row || operand.number || !is_packed(call.shape, operand.strides)) continue;
      const char* block = recording_.block_of(operand.data);
      const size_t a = block ? maker_of(block, b) : b;
      if (a != b && join(a, b)) return true;
    }
    return false;
  }

  // The last task before b that writes this block; b: none near.
  size_t maker_of(const char* block, size_t b) const {
    for (size_t t = b, left = kMostDistance; t-- > 0 && left > 0;) {
      if (gone_[t]) continue;
      --left;
      if (contains(tasks_[t].writes, block)) return is_chain(tasks_[t]) ? t : b;
    }
    return b;
  }

  // Whether the work of a can be done at b: nobody between reads what it writes, or writes what it touches.
  bool can_wait(size_t a, size_t b) const {
    for (size_t t = a + 1; t < b; ++t) {
      if (gone_[t]) continue;
      if (overlap(tasks_[t].reads, tasks_[a].writes) || overlap(tasks_[t].writes, tasks_[a].writes) ||
          overlap(tasks_[t].writes, tasks_[a].reads))
        return false;
    }
    return true;
  }

  // Whether memory that a task wrote is read after task b has run.
  bool is_read_later(const void* data, int64_t bytes, size_t b) const {
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

  // The register of a's chain that is written to this address; -1: none that has an element per point.
  static int written_at(const ElementCall& a, const void* data, DType dtype) {
    size_t output = 0;
    for (size_t k = 0; k < a.chain->registers.size(); ++k) {
      const Chain::Register& r = a.chain->registers[k];
      if (!r.output || a.out[output++] != data) continue;
      return r.row || r.dtype != dtype ? -1 : static_cast<int>(k);
    }
    return -1;
  }

  bool join(size_t a, size_t b) {
    const ElementCall &first = *tasks_[a].elements, &second = *tasks_[b].elements;
    if ((first.row_axes && second.row_axes) || first.size() != second.size() || !can_wait(a, b) ||
        !writes_behind_reads(tasks_[b], tasks_[a]))
      return false;
    Joined j;
    const ElementCall& space = first.row_axes ? first : second;
    j.shape = space.shape;
    j.row_axes = space.row_axes;
    j.chain->rows = space.row_axes != 0;
    if (!add_first(a, b, j) || !add_second(a, b, j)) return false;
    return replace(a, b, j, space);
  }

  // Whether b writes nothing that a reads, but for elements that are read at the same position: memory that was free
  // between them may have been given to b.
  bool writes_behind_reads(const Task& b, const Task& a) const {
    size_t input = 0;
    for (const Chain::Register& r : a.elements->chain->registers) {
      if (!r.input) continue;
      const Operand& operand = a.elements->in[input++];
      if (operand.number || !contains(b.writes, recording_.block_of(operand.data))) continue;
      if (r.row || !is_packed(a.elements->shape, operand.strides) ||
          !is_written_over(*b.elements, operand.data, r.dtype))
        return false;
    }
    return true;
  }

  bool add_operand(const Task& t, const ElementCall& call, const Chain::Register& r, size_t input, size_t number,
                   Joined& j) const {
    Operand operand = call.in[input];
    std::vector<int64_t>& strides = j.strides.emplace_back();
    if (r.row)
      strides.assign(operand.strides, operand.strides + (call.shape.size() - static_cast<size_t>(call.row_axes)));
    else if (!restride(call.shape, operand.strides, j.shape, strides))
      return false;
    if (operand.number) j.numbers.push_back(t.numbers[number].data);
    j.in.push_back(operand);
    return true;
  }

  // The chain whose result is read: its outputs stay where others need them.
  bool add_first(size_t a, size_t b, Joined& j) const {
    const ElementCall& call = *tasks_[a].elements;
    size_t input = 0, output = 0, number = 0;
    for (const Chain::Register& r : call.chain->registers) {
      Chain::Register made = r;
      if (r.output) {
        void* to = call.out[output++];
        const int64_t bytes = (r.row ? rows_of(call) : call.size()) * size_of(r.dtype);
        const bool replaced = contains(tasks_[b].writes, recording_.block_of(to));
        if (replaced && !is_written_over(*tasks_[b].elements, to, r.dtype)) return false;
        made.output = !replaced && is_read_later(to, bytes, b);
        if (made.output) j.out.push_back(to);
      }
      if (r.input) {
        const bool is_number = call.in[input].number;
        if (!add_operand(tasks_[a], call, r, input++, number, j)) return false;
        number += is_number;
      }
      j.chain->registers.push_back(made);
    }
    j.chain->code = call.chain->code;
    return true;
  }
  static int64_t rows_of(const ElementCall& call) {
    int64_t n = 1;
    for (size_t k = 0; k + static_cast<size_t>(call.row_axes) < call.shape.size(); ++k) n *= call.shape[k];
    return n;
  }
  // Whether the call writes its elements where these were.
  static bool is_written_over(const ElementCall& call, const void* data, DType dtype) {
    size_t output = 0;
    for (const Chain::Register& r : call.chain->registers)
      if (r.output && call.out[output++] == data) return !r.row && size_of(r.dtype) == size_of(dtype);
    return false;
  }

  bool add_second(size_t a, size_t b, Joined& j) const {
    const ElementCall &first = *tasks_[a].elements, &call = *tasks_[b].elements;
    std::vector<int16_t> place(call.chain->registers.size());
    size_t input = 0, output = 0, number = 0;
    for (size_t k = 0; k < place.size(); ++k) {
      const Chain::Register& r = call.chain->registers[k];
      place[k] = static_cast<int16_t>(j.chain->registers.size());
      if (r.output) j.out.push_back(call.out[output++]);
      if (r.input) {
        const Operand& operand = call.in[input];
        if (!operand.number && contains(tasks_[a].writes, recording_.block_of(operand.data))) {
          const int made = written_at(first, operand.data, r.dtype);
          if (made < 0 || r.row || r.output || !is_packed(call.shape, operand.strides)) return false;
          place[k] = static_cast<int16_t>(made);
          ++input;
          continue;
        }
        if (!add_operand(tasks_[b], call, r, input++, number, j)) return false;
        number += operand.number;
      }
      j.chain->registers.push_back(r);
    }
    for (Chain::Instruction i : call.chain->code) {
      for (int k = 0; k < i.n_in; ++k) i.in[k] = place[static_cast<size_t>(i.in[k])];
      i.out = place[static_cast<size_t>(i.out)];
      j.chain->code.push_back(i);
    }
    return true;
  }

  // A row's sum is taken by threads as the plan of its chain shares it; so has it to stay.
  static bool keeps_sums(const ElementCall& rows, const Form& form) {
    if (!rows.row_axes) return true;
    const Launch before = plan(*rows.chain, {static_cast<int>(rows.shape.size()), rows.shape.data(), rows.row_axes},
                               rows.in.data(), rows.out.data());
    return before.form.pack == form.pack && before.form.threads == form.threads && before.form.each == form.each;
  }

  bool replace(size_t a, size_t b, Joined& j, const ElementCall& space) {
    if (j.chain->registers.size() > kMostRegisters) return false;
    for (size_t k = 0; k < j.in.size(); ++k) j.in[k].strides = j.strides[k].data();
    const Launch l =
        plan(*j.chain, {static_cast<int>(j.shape.size()), j.shape.data(), j.row_axes}, j.in.data(), j.out.data());
    if (l.words.size() > kMostWords || !keeps_sums(space, l.form)) return false;
    auto call = std::make_shared<ElementCall>();
    call->owned = j.chain;
    call->chain = j.chain.get();
    call->shape = std::move(j.shape);
    call->row_axes = j.row_axes;
    call->in = std::move(j.in);
    call->strides = std::move(j.strides);
    call->sources = {tasks_[a].elements, tasks_[b].elements};  // whose bytes its numbers are
    call->out = std::move(j.out);
    Task made;
    made.kernel = kernel_of(body(*j.chain, l.form));
    made.grid = l.grid;
    made.words = l.words;
    describe(*call, j.numbers, made);
    made.elements = std::move(call);
    tasks_[b] = std::move(made);
    gone_[a] = true;
    return true;
  }

  void describe(const ElementCall& call, const std::vector<const void*>& numbers, Task& t) const {
    const auto add = [&](std::vector<const char*>& list, const void* data) {
      const char* block = recording_.block_of(data);
      if (block && !contains(list, block)) list.push_back(block);
    };
    for (const void* to : call.out) add(t.writes, to);
    auto word = static_cast<int32_t>(call.out.size());
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

  BodyKernel* kernel_of(const Body& body) {
    BodyKernel*& found = kernels_[body.text];
    if (!found) found = made_.emplace_back(std::make_unique<BodyKernel>(BodyKernel{body})).get();
    return found;
  }
};

}  // namespace

void fuse_chains(std::vector<Task>& tasks, const std::vector<Range>& kept, const Recording& recording,
                 std::vector<std::unique_ptr<BodyKernel>>& made) {
  ChainFuser(tasks, kept, recording, made).run();
}

}  // namespace wengert::cuda
