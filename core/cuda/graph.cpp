#include "graph.h"

#include <algorithm>
#include <cstring>

#include "../small_array.h"
#include "schedule.h"

namespace wengert::cuda {

namespace {

constexpr size_t kMostEntries = 16;
constexpr int kKernelNode = 0;  // of CUgraphNodeType
constexpr int kMostCaptures = 8;
constexpr int kFewestLaunches = 6;  // fewer are as fast one by one

// Which of a program's sizes are read from contents of operands: places in streams of random numbers, other ones in
// every run.
class SizesOfContents {
 public:
  explicit SizesOfContents(const SizeProgram& sizes) {
    for (const SizeProgram::Step& s : sizes.steps)
      found_.push_back(s.kind == SizeProgram::Kind::leaf
                           ? sizes.leaves[static_cast<size_t>(s.a.raw)].kind == SizeLeaf::content
                           : hold(s.a) || hold(s.b));
  }
  bool hold(Dim d) const { return d.symbolic() && found_[static_cast<size_t>(Dim::kSymbolic - 1 - d.raw)]; }
  bool hold_any(const Dims& dims) const {
    return std::any_of(dims.begin(), dims.end(), [&](Dim d) { return hold(d); });
  }

 private:
  std::vector<bool> found_;
};

// Whether everything that contents decide are draws whose place is written into nodes.
bool describes_all_draws(const Recording& recording, const Program& p) {
  const SizesOfContents contents(p.sizes);
  for (const Step& s : p.steps) {
    if (!s.op || s.op->on_host) continue;
    for (int k = 0; k < s.attrs.n; ++k) {
      if (s.attrs[k].kind != Attr::Kind::sizes) continue;
      for (Dim d : s.attrs[k].dims)
        if (contents.hold(d) && !recording.draws.contains({&s, d.raw})) return false;
    }
  }
  return true;
}

// Regions read what they decide by, and functions of users may do anything. Sizes that contents decide differ from run
// to run.
bool is_capturable(const Program& p) {
  const SizesOfContents contents(p.sizes);
  const auto any = [&](const Dims& dims) { return contents.hold_any(dims); };
  int launches = 0;
  for (const Step& s : p.steps) {
    if (!s.regions.empty() || s.loop || (s.op && (!s.op->owned.expired() || s.op->moves))) return false;
    if (s.group &&
        (any(s.group->shape) || std::any_of(s.group->output_shapes.begin(), s.group->output_shapes.end(), any)))
      return false;
    launches += s.group || (s.op && !s.op->view);
  }
  return launches >= kFewestLaunches;
}

void put(std::vector<int64_t>& key, const Value* v) {
  key.push_back(static_cast<int64_t>(v->dtype) << 16 | v->ndim << 8 | v->device);
  for (int i = 0; i < v->ndim; ++i) {
    key.push_back(v->shape[i]);
    key.push_back(v->strides[i]);
  }
  if (v->device != kCpu) key.push_back(reinterpret_cast<int64_t>(v->data) % 16);
}

// Everything that decides which launches a run makes, but for addresses; of those, which are the same.
void write_key(std::vector<int64_t>& key, const Program& p, Value* const* in, const int64_t* leaf_sizes,
               Value* const* donated) {
  key.clear();
  for (int i = 0; i < p.n_inputs; ++i) {
    put(key, in[i]);
    int same = 0;
    while (in[same]->data != in[i]->data) ++same;
    key.push_back(same);
  }
  for (size_t k = 0; k < p.sizes.leaves.size(); ++k)
    if (p.sizes.leaves[k].kind != SizeLeaf::content) key.push_back(leaf_sizes[k]);
  for (size_t o = 0; donated && o < p.outputs.size(); ++o) {
    int same = -1;
    for (int i = 0; donated[o] && same < 0 && i < p.n_inputs; ++i)
      if (in[i]->data == donated[o]->data) same = i;
    key.push_back(donated[o] ? same : -2);
    if (donated[o] && same < 0) key.push_back(reinterpret_cast<int64_t>(donated[o]->data));
  }
}

}  // namespace

struct GraphCache::Entry {
  // What a word of a node is made of.
  struct Patch {
    enum Kind : uint8_t { input, output, number_of_input, number_of_slot, size } kind;
    int32_t node, word, index;
    int64_t offset;  // of an address; the bytes of a number; the raw size
  };
  struct Node {
    GraphNode handle;
    Function function;
    ScheduledNode launch;
    bool changed = false;
  };
  struct Output {
    enum Kind : uint8_t { none, input, fresh, copied, slot } kind = none;
    int32_t index = 0;   // of the input, of the memory, of the slot
    Ref like;            // a value of the same layout
    int64_t offset = 0;  // in its memory, bytes
  };
  struct Memory {  // that outputs lie in: new in every run
    Range captured;
    size_t bytes;
    Buffer* buffer;  // of the latest run, while it is made
    bool copied;     // a library's node writes it where it was captured
  };

  std::vector<int64_t> key;
  int runs = 0, captures = 0;
  bool failed = false;
  std::vector<const char*> addresses;  // of inputs, in the latest run
  std::vector<bool> staged;            // inputs that have been at other addresses
  std::vector<Range> ranges;           // of inputs, when it was captured
  std::vector<bool> fixed;             // inputs that a library's node reads where they were
  std::shared_ptr<Arena> arena;
  Graph graph = nullptr;
  GraphExec exec = nullptr;
  std::vector<Node> nodes;
  std::vector<Patch> patches;
  std::vector<Output> outputs;
  std::vector<Memory> memories;
  std::vector<int32_t> host_slots;

  ~Entry() { drop(); }
  void drop() {
    if (exec) driver().cuGraphExecDestroy(exec);
    if (graph) driver().cuGraphDestroy(graph);
    exec = nullptr;
    graph = nullptr;
    nodes.clear();
    patches.clear();
    outputs.clear();
    memories.clear();
    host_slots.clear();
    arena.reset();
  }

  bool capture(CudaDevice& gpu, const Program& p, Value* const* in, const int64_t* leaf_sizes, Value* const* donated);
  bool inputs_overlap(Value* const* in) const;
  bool record(CudaDevice& gpu, Recording& recording, const Program& p, Value* const* in, const int64_t* leaf_sizes,
              Value** out, Value* const* donated);
  void make_nodes(CudaDevice& gpu, const Schedule& schedule);
  bool find_nodes();
  void describe_outputs(const Program& p, Value* const* in, Value** out, const Recording& recording);
  void find_patches(const Program& p, Value* const* in, const Recording& recording);
  bool moved_beyond_reach(const Program& p, Value* const* in);
  void replay(CudaDevice& gpu, const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out,
              Value* const* donated);
  void compute_numbers(const Program& p, Value* const* in, const int64_t* sizes, Value** slots) const;
  void patch(Value* const* in, Value* const* slots, const int64_t* sizes);
};

GraphCache::GraphCache() = default;
GraphCache::~GraphCache() = default;

bool GraphCache::run(CudaDevice& gpu, const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out,
                     Value* const* donated, int given) {
  if (kind_ == Kind::unknown) kind_ = is_capturable(p) ? Kind::capturable : Kind::other;
  if (kind_ == Kind::other) return false;
  static std::vector<int64_t> key;  // keeps its memory from call to call
  write_key(key, p, in, leaf_sizes, donated);
  Entry* found = nullptr;
  for (auto& e : entries_)
    if (e->key == key) found = e.get();
  if (!found) {
    if (entries_.size() == kMostEntries) entries_.erase(entries_.begin());
    found = entries_.emplace_back(std::make_unique<Entry>()).get();
    found->key = key;
    found->staged.resize(static_cast<size_t>(p.n_inputs));
    found->addresses.resize(static_cast<size_t>(p.n_inputs));
  }
  Entry& e = *found;
  if (e.failed) return false;
  if (e.exec && e.moved_beyond_reach(p, in)) e.drop();
  for (int i = 0; i < p.n_inputs; ++i) {
    const auto k = static_cast<size_t>(i);
    if (e.runs > 0 && e.addresses[k] != in[i]->data) e.staged[k] = true;
    e.addresses[k] = in[i]->data;
  }
  if (e.runs++ == 0) return false;
  if (!e.exec && (e.captures++ == kMostCaptures || !e.capture(gpu, p, in, leaf_sizes, donated))) {
    e.failed = true;
    return false;
  }
  e.replay(gpu, p, in, leaf_sizes, out, donated);
  for (int i = 0; i < given; ++i) release(in[i]);
  return true;
}

// Whether an input that a library's node reads is elsewhere now.
bool GraphCache::Entry::moved_beyond_reach(const Program& p, Value* const* in) {
  for (int i = 0; i < p.n_inputs; ++i)
    if (fixed[static_cast<size_t>(i)] && in[i]->data != addresses[static_cast<size_t>(i)]) return true;
  return false;
}

bool GraphCache::Entry::capture(CudaDevice& gpu, const Program& p, Value* const* in, const int64_t* leaf_sizes,
                                Value* const* donated) {
  Recording recording;
  SmallArray<Value*, 16> out(p.outputs.size());
  if (!record(gpu, recording, p, in, leaf_sizes, out.data(), donated)) return false;
  std::vector<Ref> made;
  for (size_t o = 0; o < p.outputs.size(); ++o) made.emplace_back(out[o]);
  if (!describes_all_draws(recording, p)) return false;
  arena = recording.arena;
  std::vector<Range> kept;
  for (const Ref& v : made)
    if (v.v && v->device == gpu.id) kept.push_back(range_of(v.v));
  const Schedule schedule = make_schedule(recording.tasks, kept, recording);
  make_nodes(gpu, schedule);
  if (!graph || !find_nodes() || driver().cuGraphInstantiateWithFlags(&exec, graph, 0)) {
    made.clear();
    drop();
    return false;
  }
  fixed.assign(static_cast<size_t>(p.n_inputs), false);
  for (const Task& t : recording.tasks) {
    if (t.kernel) continue;
    for (size_t i = 0; i < ranges.size(); ++i)
      for (const void* operand : {t.product->a.data, t.product->b.data, static_cast<const void*>(t.product->y)})
        if (ranges[i].holds(operand)) fixed[i] = true;
  }
  describe_outputs(p, in, out.data(), recording);
  find_patches(p, in, recording);
  return true;
}

// Runs the program without doing anything on the GPU. False: it cannot be a graph.
bool GraphCache::Entry::record(CudaDevice& gpu, Recording& recording, const Program& p, Value* const* in,
                               const int64_t* leaf_sizes, Value** out, Value* const* donated) {
  // What the host computes is written by every run itself, this one's among them.
  SmallArray<Value*, 16> into(p.outputs.size());
  for (size_t o = 0; o < p.outputs.size(); ++o) {
    into[o] = donated && donated[o] && donated[o]->device == gpu.id ? donated[o] : nullptr;
    if (!into[o]) continue;
    const Range r = range_of(into[o]);
    recording.add_block(r.begin, static_cast<size_t>(r.end - r.begin));
  }
  ranges.clear();
  for (int i = 0; i < p.n_inputs; ++i) {
    const Range r = in[i]->device == gpu.id ? range_of(in[i]) : Range{};
    ranges.push_back(r);
    if (r.begin) recording.add_block(r.begin, static_cast<size_t>(r.end - r.begin));
    if (staged[static_cast<size_t>(i)]) recording.staged.emplace_back(r.begin, r.end);
  }
  if (inputs_overlap(in)) return false;
  gpu.begin_recording(recording);
  try {
    run_steps(gpu.id, p, in, leaf_sizes, out, donated ? into.data() : nullptr, 0, true);
  } catch (const Uncapturable&) {
    gpu.end_recording();
    return false;
  } catch (...) {
    gpu.end_recording();
    throw;
  }
  gpu.end_recording();
  return true;
}

// The nodes in their order, and the graph, or none if it could not be captured.
void GraphCache::Entry::make_nodes(CudaDevice& gpu, const Schedule& schedule) {
  std::vector<Function> joined;
  if (!schedule.joined.empty()) joined = gpu.functions(schedule.joined);
  for (const ScheduledNode& n : schedule.nodes)
    if (!n.library) nodes.push_back({nullptr, n.kernel ? gpu.function(*n.kernel) : joined[n.joined], n});
  gpu.begin_capture();
  try {
    size_t k = 0;
    for (const ScheduledNode& n : schedule.nodes) {
      if (n.library) {
        gpu.multiply(*n.library);
        continue;
      }
      gpu.launch(nodes[k].function, n.grid, n.block, n.words, n.dynamic_shared);
      ++k;
    }
  } catch (...) {
    if (Graph half = gpu.end_capture()) driver().cuGraphDestroy(half);
    throw;
  }
  graph = gpu.end_capture();
}

// Which of two inputs an address belongs to is not known where they share memory.
bool GraphCache::Entry::inputs_overlap(Value* const* in) const {
  for (size_t i = 0; i < ranges.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (in[i]->data != in[k]->data && ranges[i].begin < ranges[k].end && ranges[k].begin < ranges[i].end) return true;
  return false;
}

// The nodes of our launches among those of the graph: by their kernel and their words.
bool GraphCache::Entry::find_nodes() {
  size_t count = 0;
  if (driver().cuGraphGetNodes(graph, nullptr, &count)) return false;
  std::vector<GraphNode> all(count);
  if (driver().cuGraphGetNodes(graph, all.data(), &count)) return false;
  std::vector<bool> taken(count, false);
  for (Node& node : nodes) {
    const std::vector<int64_t>& words = node.launch.words;
    for (size_t k = 0; k < count && !node.handle; ++k) {
      int type = -1;
      KernelNodeParams params = {};
      if (taken[k] || driver().cuGraphNodeGetType(all[k], &type) || type != kKernelNode ||
          driver().cuGraphKernelNodeGetParams_v2(all[k], &params) || params.function != node.function ||
          params.grid_x != node.launch.grid ||
          std::memcmp(params.parameters[0], words.data(), words.size() * sizeof(int64_t)) != 0)
        continue;
      taken[k] = true;
      node.handle = all[k];
    }
    if (!node.handle) return false;
  }
  return true;
}

void GraphCache::Entry::describe_outputs(const Program& p, Value* const* in, Value** out, const Recording& recording) {
  for (size_t o = 0; o < p.outputs.size(); ++o) {
    Output& made = outputs.emplace_back();
    Value* v = out[o];
    if (!v) continue;
    made.like = Ref(alias(v));
    int owner = 0;
    while (owner < p.n_inputs && in[owner]->buffer != v->buffer) ++owner;
    if (owner < p.n_inputs) {
      made.kind = Output::input;
      made.index = owner;
      made.offset = v->data - in[owner]->data;
    } else if (v->device == kCpu) {
      made.kind = Output::slot;
      made.index = p.outputs[o];
    } else {
      const Range memory{v->buffer->data, v->buffer->data + v->buffer->bytes};
      size_t m = 0;
      while (m < memories.size() && memories[m].captured.begin != memory.begin) ++m;
      if (m == memories.size()) {
        bool copied = false;
        for (const Task& t : recording.tasks)
          if (!t.kernel)
            for (const void* operand : {t.product->a.data, t.product->b.data, static_cast<const void*>(t.product->y)})
              copied |= memory.holds(operand);
        memories.push_back({memory, v->buffer->bytes, nullptr, copied});
      }
      made.kind = memories[m].copied ? Output::copied : Output::fresh;
      made.index = static_cast<int32_t>(m);
      made.offset = v->data - memory.begin;
    }
  }
}

void GraphCache::Entry::find_patches(const Program& p, Value* const* in, const Recording& recording) {
  for (size_t n = 0; n < nodes.size(); ++n) {
    const ScheduledNode& launch = nodes[n].launch;
    const auto node = static_cast<int32_t>(n);
    for (size_t w = 0; w < launch.words.size(); ++w) {
      const auto* word = reinterpret_cast<const char*>(launch.words[w]);
      const auto at = static_cast<int32_t>(w);
      for (size_t i = 0; i < ranges.size(); ++i)
        if (ranges[i].holds(word)) {
          patches.push_back({Patch::input, node, at, static_cast<int32_t>(i), word - in[i]->data});
          break;
        }
      for (size_t m = 0; m < memories.size(); ++m)
        if (!memories[m].copied && memories[m].captured.holds(word))
          patches.push_back({Patch::output, node, at, static_cast<int32_t>(m), word - memories[m].captured.begin});
    }
    for (const Task::Number& number : launch.numbers) {
      if (number.size.symbolic()) patches.push_back({Patch::size, node, number.word, 0, number.size.raw});
      if (!number.data) continue;
      for (int i = 0; i < p.n_inputs; ++i)
        if (in[i]->data == number.data) {
          patches.push_back({Patch::number_of_input, node, number.word, i, number.bytes});
          break;
        }
      for (const auto& [slot, value] : recording.numbers)
        if (value->data == number.data) {
          patches.push_back({Patch::number_of_slot, node, number.word, slot, number.bytes});
          break;
        }
    }
  }
  for (const auto& [slot, value] : recording.numbers) host_slots.push_back(slot);
}

// The steps that the host computes, again.
void GraphCache::Entry::compute_numbers(const Program& p, Value* const* in, const int64_t* sizes, Value** slots) const {
  std::fill_n(slots, p.n_slots, nullptr);
  std::copy_n(in, p.n_inputs, slots);
  for (auto& [slot, value] : p.constants) slots[slot] = value;
  for (const Step& s : p.steps) {
    if (s.out.empty() || std::find(host_slots.begin(), host_slots.end(), s.out[0]) == host_slots.end()) continue;
    if (s.group) {
      run_group_on_cpu(*s.group, slots, sizes);
      continue;
    }
    SmallArray<Value*, 8> operands(s.in.size());
    for (size_t i = 0; i < s.in.size(); ++i) operands[i] = slots[s.in[i]];
    Value* results[kMaxOutputs];
    Attrs attrs = s.attrs;
    for (int k = 0; s.symbolic && k < attrs.n; ++k)
      if (attrs.v[k].kind == Attr::Kind::sizes) attrs.v[k].dims = resolve(s.attrs.v[k].dims, sizes);
    run_op(*s.op, operands.data(), static_cast<int>(s.in.size()), attrs, results);
    for (size_t i = 0; i < s.out.size(); ++i) slots[s.out[i]] = results[i];
  }
}

void GraphCache::Entry::patch(Value* const* in, Value* const* slots, const int64_t* sizes) {
  for (const Patch& x : patches) {
    Node& node = nodes[static_cast<size_t>(x.node)];
    int64_t* word = &node.launch.words[static_cast<size_t>(x.word)];
    const auto index = static_cast<size_t>(x.index);
    if (x.kind == Patch::size) {
      const int64_t now = SizeProgram::resolve(Dim(x.offset), sizes);
      node.changed |= *word != now;
      *word = now;
    } else if (x.kind == Patch::input || x.kind == Patch::output) {
      const char* base = x.kind == Patch::input ? in[index]->data : memories[index].buffer->data;
      const int64_t now = reinterpret_cast<int64_t>(base) + x.offset;
      node.changed |= *word != now;
      *word = now;
    } else {
      const char* number = x.kind == Patch::number_of_input ? in[index]->data : slots[index]->data;
      node.changed |= std::memcmp(word, number, static_cast<size_t>(x.offset)) != 0;
      std::memcpy(word, number, static_cast<size_t>(x.offset));
    }
  }
  for (Node& node : nodes) {
    if (!node.changed) continue;
    node.changed = false;
    void* parameters[] = {node.launch.words.data()};
    KernelNodeParams params = {};
    params.function = node.function;
    params.grid_x = static_cast<unsigned>(node.launch.grid);
    params.grid_y = params.grid_z = 1;
    params.block_x = static_cast<unsigned>(node.launch.block);
    params.block_y = params.block_z = 1;
    params.shared_bytes = static_cast<unsigned>(node.launch.dynamic_shared);
    params.parameters = parameters;
    WENGERT_CALL(cuGraphExecKernelNodeSetParams_v2, exec, node.handle, &params);
  }
}

void GraphCache::Entry::replay(CudaDevice& gpu, const Program& p, Value* const* in, const int64_t* leaf_sizes,
                               Value** out, Value* const* donated) {
  SmallArray<Value*, 64> slots(static_cast<size_t>(p.n_slots));
  SmallArray<int64_t, 32> sizes(p.sizes.steps.size());
  if (!p.sizes.steps.empty()) p.sizes.evaluate(leaf_sizes, sizes.data());
  compute_numbers(p, in, sizes.data(), slots.data());
  std::vector<Ref> owned;
  for (int32_t slot : host_slots) owned.emplace_back(slots[static_cast<size_t>(slot)]);
  for (Memory& m : memories) m.buffer = allocate_on(gpu, m.bytes, Category::activation);
  patch(in, slots.data(), sizes.data());
  gpu.launch_graph(exec);
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Output& made = outputs[o];
    out[o] = nullptr;
    if (made.kind == Output::none) continue;
    const auto index = static_cast<size_t>(made.index);
    if (made.kind == Output::slot) {
      Value* target = donated && donated[o] ? donated[o] : slots[index];
      if (target != slots[index]) copy_into(slots[index], target);
      out[o] = Ref::share(target).take();
      continue;
    }
    Value* v = alias(made.like.v);
    v->made = 0;
    Buffer* buffer = made.kind == Output::input ? in[index]->buffer : memories[index].buffer;
    retain(buffer);
    release(v->buffer);
    v->buffer = buffer;
    v->data = (made.kind == Output::input ? in[index]->data : buffer->data) + made.offset;
    if (made.kind == Output::copied) copy_into(made.like.v, v);
    out[o] = v;
  }
  for (Memory& m : memories) release(m.buffer);
}

}  // namespace wengert::cuda
