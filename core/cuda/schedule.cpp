#include "schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "chain_fusion.h"
#include "end_fusion.h"
#include "task_order.h"

namespace wengert::cuda {

namespace {

constexpr int64_t kMostJoinedBlocks = 1024;  // of a task: more fill the GPU alone
constexpr int64_t kMostJoinedWords = 500;    // of a launch, whose parameters have 4 KiB
constexpr size_t kMostTexts = 8;             // different bodies in a kernel
constexpr int kMostShared = 40 << 10;        // bytes of shared memory of all of them: a block has 48 KiB
constexpr int64_t kTinyBlocks = 2;           // of a task that one block runs after others
constexpr size_t kLongestSequence = 8;

// ------------------------------------------------------------------------------- elementwise work on results of
// products

struct Accesses {
  struct Access {
    size_t task;
    bool write;
  };
  std::unordered_map<const char*, std::vector<Access>> of;

  explicit Accesses(const std::vector<Task>& tasks) {
    for (size_t t = 0; t < tasks.size(); ++t) {
      for (const char* block : tasks[t].reads) of[block].push_back({t, false});
      for (const char* block : tasks[t].writes) of[block].push_back({t, true});
    }
  }
  bool written_between(const char* block, size_t first, size_t last) const {
    const auto found = of.find(block);
    return found != of.end() && std::any_of(found->second.begin(), found->second.end(), [&](const Access& a) {
             return a.write && a.task > first && a.task < last;
           });
  }
};

class Fuser {
 public:
  Fuser(std::vector<Task>& tasks, const std::vector<Range>& kept, const Recording& recording, Schedule& schedule)
      : tasks_(tasks), kept_(kept), recording_(recording), schedule_(schedule), accesses_(tasks), gone_(tasks.size()) {}

  void run() {
    for (size_t p = 0; p < tasks_.size(); ++p)
      if (tasks_[p].product && tasks_[p].kernel && !tasks_[p].elements) fuse(p);  // elements: it was joined already
    drop(tasks_, gone_);
  }

 private:
  std::vector<Task>& tasks_;
  const std::vector<Range>& kept_;
  const Recording& recording_;
  Schedule& schedule_;
  Accesses accesses_;
  std::vector<bool> gone_;

  // The next task that touches the product's result, and who else reads it later.
  void fuse(size_t p) {
    const Product& product = *tasks_[p].product;
    const char* y = recording_.block_of(product.y);
    if (!y) return;
    size_t reader = 0, readers = 0;
    for (const Accesses::Access& a : accesses_.of[y]) {
      if (a.task <= p) continue;
      if (a.write) break;
      if (++readers == 1) reader = a.task;
    }
    if (readers == 0 || gone_[reader]) return;
    const Task& e = tasks_[reader];
    const int given =
        e.elements && !e.elements->row_axes && !e.product
            ? recording_.register_of(*e.elements, product.y, product.dtype, product.batch * product.m * product.n)
            : -1;
    if (given < 0 || !can_wait(p, reader) || overlap(e.writes, tasks_[p].reads)) return;
    const bool replaced = contains(e.writes, y);  // the elementwise work is done in place
    if (replaced && !is_in_place(product, e, y)) return;
    const bool read_later = std::any_of(kept_.begin(), kept_.end(), [&](const Range& r) {
      const char* begin = static_cast<const char*>(product.y);
      return r.begin < begin + product.batch * product.m * product.n * size_of(product.dtype) && begin < r.end;
    });
    join(p, reader, given, !replaced && (readers > 1 || read_later));
  }

  bool is_in_place(const Product& product, const Task& e, const char* y) const {
    size_t output = 0;
    for (const Chain::Register& r : e.elements->chain->registers) {
      if (!r.output) continue;
      const void* to = e.elements->out[output++];
      if (recording_.block_of(to) == y && (to != product.y || r.dtype != product.dtype)) return false;
    }
    return true;
  }

  // Whether the product can be made where its reader is: nobody between writes what it reads.
  bool can_wait(size_t p, size_t reader) const {
    return std::none_of(tasks_[p].reads.begin(), tasks_[p].reads.end(),
                        [&](const char* block) { return accesses_.written_between(block, p, reader); });
  }

  void join(size_t p, size_t reader, int given, bool kept) {
    Task &product = tasks_[p], &e = tasks_[reader];
    const ElementCall& call = *e.elements;
    const auto planned = [&](int64_t pack) {
      return plan(*call.chain, {static_cast<int>(call.shape.size()), call.shape.data()}, call.in.data(),
                  call.out.data(), static_cast<int>(pack));
    };
    const int64_t pack = product_pack(*product.product);
    Launch l = planned(pack);
    if (l.form.pack != pack) l = planned(1);
    auto& kernel = schedule_.made.emplace_back(std::make_unique<BodyKernel>());
    kernel->body = product_body(*product.product, kept, *call.chain, l.form, given);
    if (kernel->body.words > kMostJoinedWords) return schedule_.made.pop_back();
    std::vector<int64_t> words = product.words;
    words.insert(words.end(), l.words.begin(), l.words.end());
    for (Task::Number& number : e.numbers) number.word += kProductWords;
    e.words = std::move(words);
    e.kernel = kernel.get();
    e.grid = product.grid;
    for (const char* block : product.reads)
      if (!contains(e.reads, block)) e.reads.push_back(block);
    const char* y = product.writes[0];
    std::erase(e.reads, y);
    if (kept) e.writes.push_back(y);
    e.product = product.product;
    gone_[p] = true;
  }
};

// ------------------------------------------------------------------------------------------------------ levels and
// nodes

struct LevelUnit {
  std::vector<const Task*> stages;
  int level = 0;
  bool tiny = false;
};

class Leveller {
 public:
  std::vector<LevelUnit> units;

  void add(const Task& t) {
    depend(t);
    const bool tiny = is_tiny(t);
    // Everything that it waits for on the last level is one tiny unit: it goes on where that ends.
    if (tiny && latest_.size() == 1 && units[*latest_.begin()].tiny &&
        units[*latest_.begin()].stages.size() < kLongestSequence) {
      note(t, *latest_.begin());
      units[*latest_.begin()].stages.push_back(&t);
      return;
    }
    units.push_back({{&t}, level_ + 1, tiny});
    note(t, units.size() - 1);
  }

 private:
  struct Block {
    int writer = -1;
    std::vector<size_t> readers;  // since
  };
  std::unordered_map<const char*, Block> blocks_;
  std::set<size_t> latest_;  // the units of the last level that a task depends on
  int level_ = -1;

  static bool is_tiny(const Task& t) {
    if (!t.kernel || t.product || t.grid > kTinyBlocks) return false;
    const Body& body = t.kernel->body;
    return body.block <= JoinedKernel::kBlock && !(body.shared && body.block < JoinedKernel::kBlock) &&
           body.dynamic_shared == 0;
  }

  void wait_for(size_t unit) {
    if (units[unit].level > level_) {
      level_ = units[unit].level;
      latest_.clear();
    }
    if (units[unit].level == level_) latest_.insert(unit);
  }

  void depend(const Task& t) {
    level_ = -1;
    latest_.clear();
    for (const char* block : t.reads)
      if (const int writer = blocks_[block].writer; writer >= 0) wait_for(static_cast<size_t>(writer));
    for (const char* block : t.writes) {
      const Block& b = blocks_[block];
      if (b.writer >= 0) wait_for(static_cast<size_t>(b.writer));
      for (size_t reader : b.readers) wait_for(reader);
    }
  }

  void note(const Task& t, size_t unit) {
    for (const char* block : t.reads) blocks_[block].readers.push_back(unit);
    for (const char* block : t.writes) blocks_[block] = {static_cast<int>(unit), {}};
  }
};

bool can_share(const Task& t) {
  const Body& body = t.kernel->body;
  return t.grid <= kMostJoinedBlocks && body.block <= JoinedKernel::kBlock && body.dynamic_shared == 0;
}

ScheduledNode library_node(const Task& t) {
  ScheduledNode node;
  node.library = t.product;
  return node;
}

ScheduledNode single_node(const Task& t) {
  ScheduledNode node;
  node.kernel = t.kernel;
  node.grid = t.grid;
  node.block = t.kernel->body.block;
  node.dynamic_shared = t.kernel->body.dynamic_shared;
  node.words = t.words;
  node.numbers = t.numbers;
  return node;
}

// A launch of several units, which lie side by side by their bodies.
void add_joined(std::vector<const LevelUnit*> units, Schedule& schedule) {
  if (units.size() == 1 && units[0]->stages.size() == 1) {
    schedule.nodes.push_back(single_node(*units[0]->stages[0]));
    return;
  }
  std::stable_sort(units.begin(), units.end(), [](const LevelUnit* a, const LevelUnit* b) {
    if (a->stages.size() != b->stages.size()) return a->stages.size() > b->stages.size();
    return a->stages[0]->kernel->body.text < b->stages[0]->kernel->body.text;
  });
  JoinedKernel joined;
  for (const LevelUnit* u : units) {
    Unit& made = joined.units.emplace_back();
    for (const Task* t : u->stages) made.push_back(&t->kernel->body);
  }
  ScheduledNode node;
  node.joined = schedule.joined.size();
  node.block = JoinedKernel::kBlock;
  for (const LevelUnit* u : units) {
    node.words.push_back(node.grid);
    node.grid += u->stages.size() > 1 ? 1 : u->stages[0]->grid;
  }
  for (const LevelUnit* u : units)
    for (const Task* t : u->stages)
      if (u->stages.size() > 1) node.words.push_back(t->grid);
  for (const LevelUnit* u : units)
    for (const Task* t : u->stages) {
      for (Task::Number number : t->numbers) {
        number.word += static_cast<int32_t>(node.words.size());
        node.numbers.push_back(number);
      }
      node.words.insert(node.words.end(), t->words.begin(), t->words.end());
    }
  schedule.nodes.push_back(std::move(node));
  schedule.joined.push_back(std::move(joined));
}

// The nodes of one level.
void add_level(const std::vector<const LevelUnit*>& units, Schedule& schedule) {
  std::vector<const LevelUnit*> open;
  std::map<std::string, int> texts;  // of bodies, and the shared memory of each
  int64_t words = 0;
  const auto close = [&] {
    if (!open.empty()) add_joined(open, schedule);
    open.clear();
    texts.clear();
    words = 0;
  };
  const auto shared = [](const std::map<std::string, int>& of_texts) {
    int sum = 0;
    for (const auto& [text, bytes] : of_texts) sum += bytes;
    return sum;
  };
  for (const LevelUnit* u : units) {
    const Task& first = *u->stages[0];
    if (!first.kernel) {
      schedule.nodes.push_back(library_node(first));
      continue;
    }
    if (u->stages.size() == 1 && !can_share(first)) {
      schedule.nodes.push_back(single_node(first));
      continue;
    }
    int64_t more = 1;
    std::map<std::string, int> all = texts;
    for (const Task* t : u->stages) {
      more += 1 + static_cast<int64_t>(t->words.size());
      all.emplace(t->kernel->body.text, t->kernel->body.shared);
    }
    if (!open.empty() && (words + more > kMostJoinedWords || all.size() > kMostTexts || shared(all) > kMostShared))
      close();
    words += more;
    for (const Task* t : u->stages) texts.emplace(t->kernel->body.text, t->kernel->body.shared);
    open.push_back(u);
  }
  close();
}

}  // namespace

Schedule make_schedule(std::vector<Task> tasks, const std::vector<Range>& kept, const Recording& recording) {
  Schedule schedule;
  Fuser(tasks, kept, recording, schedule).run();
  fuse_chains(tasks, kept, recording, schedule.made);
  fuse_ends(tasks, kept, recording, schedule.made);
  Leveller leveller;
  for (const Task& t : tasks) leveller.add(t);
  int levels = 0;
  for (const LevelUnit& u : leveller.units) levels = std::max(levels, u.level + 1);
  std::vector<std::vector<const LevelUnit*>> by_level(static_cast<size_t>(levels));
  for (const LevelUnit& u : leveller.units) by_level[static_cast<size_t>(u.level)].push_back(&u);
  for (const auto& units : by_level) add_level(units, schedule);
  return schedule;
}

}  // namespace wengert::cuda
