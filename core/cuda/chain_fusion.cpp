#include "chain_fusion.h"

#include <algorithm>
#include <map>

#include "../shape.h"
#include "task_order.h"

namespace wengert::cuda {

namespace {

constexpr size_t kMostWords = 400;     // of a joined chain, whose parameters have 4 KiB
constexpr size_t kMostRegisters = 64;  // and what a thread can hold

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

class ChainFuser : TaskOrder {
 public:
  ChainFuser(std::vector<Task>& tasks, const std::vector<Range>& kept, const Recording& recording,
             std::vector<std::unique_ptr<BodyKernel>>& made)
      : TaskOrder(tasks, kept, recording), made_(made) {}

  void run() {
    for (size_t b = 0; b < tasks_.size(); ++b)
      while (join_with_maker(b)) continue;
    drop(tasks_, gone_);
  }

 private:
  std::vector<std::unique_ptr<BodyKernel>>& made_;
  std::map<std::string, BodyKernel*> kernels_;

  bool join_with_maker(size_t b) {
    if (!is_chain(tasks_[b]) || gone_[b]) return false;
    const ElementCall& call = *tasks_[b].elements;
    size_t input = 0;
    for (const Chain::Register& r : call.chain->registers) {
      if (!r.input) continue;
      const Operand& operand = call.in[input++];
      if (r.row || operand.number || !call.is_packed(operand.strides)) continue;
      const char* block = recording_.block_of(operand.data);
      const size_t a = block ? maker_of(block, b) : b;
      if (a != b && join(a, b)) return true;
    }
    return false;
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
      if (r.row || !a.elements->is_packed(operand.strides) || !is_written_over(*b.elements, operand.data, r.dtype))
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
        const int64_t bytes = (r.row ? call.rows() : call.size()) * size_of(r.dtype);
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
          const int made = first.written_at(operand.data, r.dtype);
          if (made < 0 || r.row || r.output || !call.is_packed(operand.strides)) return false;
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
    describe(*call, j.numbers, 0, made);
    made.elements = std::move(call);
    tasks_[b] = std::move(made);
    gone_[a] = true;
    return true;
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
