#include "end_fusion.h"

#include <algorithm>

#include "task_order.h"

namespace wengert::cuda {

namespace {

constexpr size_t kMostWords = 450;      // of a kernel, whose parameters have 4 KiB
constexpr size_t kFarthestReader = 16;  // tasks behind the kernel

// A chain at an end, planned for the kernel's packs.
struct Planned {
  size_t task;
  EndChain end;
  Launch launch;
};

class EndFuser : TaskOrder {
 public:
  EndFuser(std::vector<Task>& tasks, const std::vector<Range>& kept, const Recording& recording,
           std::vector<std::unique_ptr<BodyKernel>>& made)
      : TaskOrder(tasks, kept, recording), made_(made) {}

  void run() {
    for (size_t p = 0; p < tasks_.size(); ++p)
      if (tasks_[p].ends && !gone_[p]) join(p = clear_way(p));
    drop(tasks_, gone_);
  }

 private:
  std::vector<std::unique_ptr<BodyKernel>>& made_;

  const void* address(size_t p, int word) const {
    return reinterpret_cast<const void*>(tasks_[p].words[static_cast<size_t>(word)]);
  }

  void join(size_t p) {
    const Ends& ends = *tasks_[p].ends;
    const std::optional<Planned> after = reader(p), before = maker(p, after ? &*after : nullptr);
    if (!after && !before) return;
    const void* result = address(p, ends.result_word);
    const int64_t bytes = ends.size * size_of(ends.dtype);
    const bool replaced = after && contains(tasks_[after->task].writes, recording_.block_of(result));
    const bool kept = after && !replaced && is_read_later(result, bytes, after->task);
    const auto packs = [&](const char* name, int word) {
      return std::string(name) + "<Storage<" + dtype_text(ends.dtype) + ">, " + std::to_string(ends.pack) + ">(words[" +
             std::to_string(word) + "])";
    };
    Task made = tasks_[p];
    made.ends.reset();
    auto& kernel = made_.emplace_back(std::make_unique<BodyKernel>());
    kernel->body = body_with_ends(tasks_[p].kernel->body, ends.function, packs("packs_from", ends.operand_word),
                                  before ? &before->end : nullptr, packs("packs_to", ends.result_word),
                                  after ? &after->end : nullptr, kept);
    if (kernel->body.words > static_cast<int>(kMostWords)) return made_.pop_back();
    made.kernel = kernel.get();
    if (before) {
      std::erase(made.reads, recording_.block_of(address(p, ends.operand_word)));
      add(*before, made);
    }
    if (after) {
      if (!kept) std::erase(made.writes, recording_.block_of(result));
      add(*after, made);
      std::erase_if(made.reads, [&](const char* block) {
        return block == recording_.block_of(result) && !contains(tasks_[p].reads, block);
      });
    }
    tasks_[p] = std::move(made);
  }

  void add(const Planned& planned, Task& made) {
    const Task& chain = tasks_[planned.task];
    describe(*chain.elements, numbers_of(chain), static_cast<int32_t>(made.words.size()), made);
    made.words.insert(made.words.end(), planned.launch.words.begin(), planned.launch.words.end());
    gone_[planned.task] = true;
  }

  std::optional<Planned> plan_for(size_t task, int joint, int pack) const {
    const ElementCall& call = *tasks_[task].elements;
    Planned made{task, {call.chain, {}, joint}, {}};
    made.launch = plan(*call.chain, {static_cast<int>(call.shape.size()), call.shape.data()}, call.in.data(),
                       call.out.data(), pack);
    made.end.form = made.launch.form;
    if (made.end.form.pack != pack) return {};
    return made;
  }

  // The first task that touches the result; p: none near.
  size_t first_reader(size_t p) const {
    const char* block = recording_.block_of(address(p, tasks_[p].ends->result_word));
    const size_t end = std::min(tasks_.size(), p + kFarthestReader);
    for (size_t t = p + 1; block && t < end; ++t)
      if (!gone_[t] && (contains(tasks_[t].reads, block) || contains(tasks_[t].writes, block))) return t;
    return p;
  }

  // What stands between the kernel and its reader and uses memory that the reader then has is done before the kernel,
  // if it can be: a product with the gradient that came before, for example. Returns where the kernel is then.
  size_t clear_way(size_t p) {
    const size_t t = first_reader(p);
    if (t == p || !is_chain(tasks_[t])) return p;
    for (size_t q = p + 1; q < t; ++q) {
      if (gone_[q] || !are_in_order(tasks_[q], tasks_[t])) continue;
      bool can_move = true;
      for (size_t s = p; s < q && can_move; ++s) can_move = gone_[s] || !are_in_order(tasks_[s], tasks_[q]);
      if (!can_move) return p;
      std::rotate(tasks_.begin() + static_cast<ptrdiff_t>(p), tasks_.begin() + static_cast<ptrdiff_t>(q),
                  tasks_.begin() + static_cast<ptrdiff_t>(q) + 1);
      std::rotate(gone_.begin() + static_cast<ptrdiff_t>(p), gone_.begin() + static_cast<ptrdiff_t>(q),
                  gone_.begin() + static_cast<ptrdiff_t>(q) + 1);
      ++p;
    }
    return p;
  }

  // The chain that is the first to touch the result, if it can be done already here.
  std::optional<Planned> reader(size_t p) const {
    const Ends& ends = *tasks_[p].ends;
    const size_t t = first_reader(p);
    const Task& e = tasks_[t];
    if (t == p || !is_chain(e) || e.elements->row_axes || !can_come(t, p)) return {};
    const int given = recording_.register_of(*e.elements, address(p, ends.result_word), ends.dtype, ends.size);
    if (given < 0 || !writes_behind_reads(e, p)) return {};
    return plan_for(t, given, ends.pack);
  }

  // Whether what the chain writes is nothing that the kernel touches, but for elements at the same place.
  bool writes_behind_reads(const Task& e, size_t p) const {
    const Task& kernel = tasks_[p];
    const Ends& ends = *kernel.ends;
    size_t output = 0;
    for (const Chain::Register& r : e.elements->chain->registers) {
      if (!r.output) continue;
      const void* to = e.elements->out[output++];
      const char* block = recording_.block_of(to);
      if (!contains(kernel.reads, block) && !contains(kernel.writes, block)) continue;
      const bool same =
          address(p, ends.result_word) == to ||
          std::any_of(ends.same_place.begin(), ends.same_place.end(), [&](int word) { return address(p, word) == to; });
      if (!same || size_of(r.dtype) != size_of(ends.dtype)) return false;
    }
    return true;
  }

  // Whether the kernel reads memory of the operand by another word, too: then it has to be there.
  bool reads_otherwise(size_t p, const char* block) const {
    const std::vector<int64_t>& words = tasks_[p].words;
    for (size_t k = 0; k < words.size(); ++k)
      if (static_cast<int>(k) != tasks_[p].ends->operand_word &&
          recording_.block_of(reinterpret_cast<const void*>(words[k])) == block)
        return true;
    return false;
  }

  // The chain that makes the operand and nothing else, which nobody else reads.
  std::optional<Planned> maker(size_t p, const Planned* after) const {
    const Ends& ends = *tasks_[p].ends;
    const void* operand = address(p, ends.operand_word);
    const char* block = recording_.block_of(operand);
    const size_t a = block ? maker_of(block, p) : p;
    if (a == p || tasks_[a].elements->row_axes || tasks_[a].elements->size() != ends.size) return {};
    if (reads_otherwise(p, block)) return {};
    const ElementCall& call = *tasks_[a].elements;
    const int made = call.written_at(operand, ends.dtype);
    if (made < 0 || call.out.size() != 1 || !can_wait(a, p)) return {};
    if (is_read_later(operand, ends.size * size_of(ends.dtype), p)) return {};
    if (!reads_before_writes(call, tasks_[p].writes, nullptr)) return {};
    if (after && !reads_before_writes(call, tasks_[after->task].writes, tasks_[after->task].elements.get())) return {};
    return plan_for(a, made, ends.pack);
  }

  // Whether nothing that the chain reads is among these blocks, but for elements at the place where `writer` writes
  // them.
  bool reads_before_writes(const ElementCall& call, const std::vector<const char*>& blocks,
                           const ElementCall* writer) const {
    size_t input = 0;
    for (const Chain::Register& r : call.chain->registers) {
      if (!r.input) continue;
      const Operand& operand = call.in[input++];
      if (operand.number || !contains(blocks, recording_.block_of(operand.data))) continue;
      if (!writer || !call.is_packed(operand.strides) || !writes_over(*writer, operand.data, r.dtype)) return false;
    }
    return true;
  }

  static bool writes_over(const ElementCall& writer, const void* data, DType dtype) {
    size_t output = 0;
    for (const Chain::Register& r : writer.chain->registers)
      if (r.output && writer.out[output++] == data) return size_of(r.dtype) == size_of(dtype);
    return false;
  }
};

}  // namespace

void fuse_ends(std::vector<Task>& tasks, const std::vector<Range>& kept, const Recording& recording,
               std::vector<std::unique_ptr<BodyKernel>>& made) {
  EndFuser(tasks, kept, recording, made).run();
}

}  // namespace wengert::cuda
