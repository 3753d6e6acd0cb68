#include "fuse.h"

#include <algorithm>
#include <queue>

namespace wengert {

namespace {

constexpr size_t kMostMembers = 64;
constexpr size_t kRecent =
    4;  // groups of one shape that an instruction may join although they make none of its operands
constexpr int64_t kMostVisits = 128;  // dependencies followed to find out whether one instruction may join one group

// A unit and its direct dependencies. Its position is above those of all units that it needs.
struct Node {
  FusionUnit unit;
  int64_t position;
  std::vector<int32_t> needs, users;
};

bool same_sizes(const Dim* a, const Dim* b, int n) {
  return std::equal(a, a + n, b, [](Dim x, Dim y) { return x.raw == y.raw; });
}

// Whether an instruction of a group runs once per element or once per row; none: it does not fit into the group.
enum class Granularity : uint8_t { none, full, row };

// Units in an order that respects their dependencies, which instructions join one by one.
//
// An instruction may join the groups that make its operands and the last few groups of its shape, the latest first,
// unless that closes a cycle: something that it reads needs the group. If it is the last to read what the latest maker
// makes, it joins that one first: its result is then kept in place of the operand. Mostly the positions tell of cycles;
// otherwise a search of bounded length does, and what is not known by then stays apart. The order is kept as by Pearce
// and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs" (2006).
class Schedule {
 public:
  explicit Schedule(const FusionProgram& program)
      : program_(program),
        maker_(program.shape_of.size(), -1),
        row_(program.shape_of.size()),
        last_reader_(program.shape_of.size(), -1),
        recent_(program.shapes.size()) {
    for (int32_t i = 0; i < static_cast<int32_t>(program.instructions.size()); ++i)
      for (int32_t v : program.instructions[i].in) last_reader_[v] = i;
  }

  Fusion run() {
    for (int32_t i = 0; i < static_cast<int32_t>(program_.instructions.size()); ++i) add(i);
    std::vector<int32_t> order(nodes_.size());
    for (size_t n = 0; n < order.size(); ++n) order[n] = static_cast<int32_t>(n);
    sort_by_position(order);
    Fusion result;
    for (int32_t n : order) result.units.push_back(std::move(nodes_[n].unit));
    result.row = std::move(row_);
    result.visits = visits_;
    return result;
  }

 private:
  // --------------------------------------------------------------------------------------- what fits into a group

  bool makes_row(int32_t group, int32_t v) const { return maker_[v] == group && row_[v]; }
  bool makes_full(int32_t group, int32_t v) const { return maker_[v] == group && !row_[v]; }

  bool row_shaped(const FusionUnit& group, int32_t v) const {
    const Dims &whole = program_.shapes[group.shape], &shape = program_.shapes[program_.shape_of[v]];
    const int outer = whole.n - group.row_axes;
    if (shape.n < outer || !same_sizes(shape.v, whole.v, outer)) return false;
    if (shape.n == outer) return true;
    return shape.n == whole.n && std::all_of(shape.v + outer, shape.v + shape.n, [](Dim d) { return d.raw == 1; });
  }

  // Asking whether a row is short enough records a guard.
  bool reduces_rows(const FusionUnit& group, int32_t reduced) const {
    if (reduced == 0 || (group.row_axes != 0 && group.row_axes != reduced)) return false;
    const Dims& shape = program_.shapes[group.shape];
    Dim length(1);
    for (int k = shape.n - reduced; k < shape.n; ++k) length = length * shape[k];
    return length <= Dim(program_.longest_row);
  }

  Granularity granularity_in(int32_t n, const FusionInstruction& i) const {
    const FusionUnit& group = nodes_[n].unit;
    const bool whole = program_.shape_of[i.out[0]] == group.shape;
    const auto row = [&](int32_t v) { return makes_row(n, v); };
    switch (i.role) {
      case FusionRole::map: {
        const bool reads_row = std::any_of(i.in.begin(), i.in.end(), row);
        if (!reads_row) return whole ? Granularity::full : Granularity::none;
        const bool fits = row_shaped(group, i.out[0]) && std::all_of(i.in.begin(), i.in.end(), [&](int32_t v) {
                            return !makes_full(n, v) && row_shaped(group, v);
                          });
        return fits ? Granularity::row : Granularity::none;
      }
      case FusionRole::reduce: {
        const bool full = !row(i.in[0]) && program_.shape_of[i.in[0]] == group.shape;
        return full && reduces_rows(group, i.reduced) ? Granularity::row : Granularity::none;
      }
      case FusionRole::expand: {
        const bool keeps = program_.shapes[program_.shape_of[i.in[0]]].n == program_.shapes[group.shape].n;
        return row(i.in[0]) && keeps && whole ? Granularity::full : Granularity::none;
      }
      case FusionRole::alias: return row(i.in[0]) && row_shaped(group, i.out[0]) ? Granularity::row : Granularity::none;
      default: return Granularity::none;
    }
  }

  // ------------------------------------------------------------------------------------------- joining a group

  void add(int32_t number) {
    const FusionInstruction& i = program_.instructions[number];
    makers_.clear();
    for (int32_t v : i.in)
      if (maker_[v] >= 0) makers_.push_back(maker_[v]);
    std::sort(makers_.begin(), makers_.end(), std::greater<>());
    makers_.erase(std::unique(makers_.begin(), makers_.end()), makers_.end());
    Granularity granularity = Granularity::none;
    int32_t n = join(number, granularity);
    if (n < 0) n = start(i, granularity);
    Node& node = nodes_[n];
    node.unit.members.push_back(number);
    if (granularity == Granularity::row && i.role == FusionRole::reduce) node.unit.row_axes = i.reduced;
    for (int32_t v : i.out) {
      maker_[v] = n;
      row_[v] = granularity == Granularity::row;
    }
    const bool fresh = node.unit.members.size() == 1;  // then it needs nothing yet
    for (int32_t m : makers_) {
      if (m == n || (!fresh && Search::contains(node.needs, m))) continue;
      node.needs.push_back(m);
      nodes_[m].users.push_back(n);
    }
  }

  // A new unit: a group if one can begin with the instruction.
  int32_t start(const FusionInstruction& i, Granularity& granularity) {
    const int32_t n = static_cast<int32_t>(nodes_.size());
    nodes_.push_back({{}, n, {}, {}});
    FusionUnit& unit = nodes_[n].unit;
    if (i.role != FusionRole::map && i.role != FusionRole::reduce) return n;
    unit.shape = program_.shape_of[i.role == FusionRole::map ? i.out[0] : i.in[0]];
    granularity = granularity_in(n, i);
    unit.group = granularity != Granularity::none;
    if (!unit.group) return n;
    std::vector<int32_t>& recent = recent_[unit.shape];
    if (recent.size() == kRecent) recent.erase(recent.begin());
    recent.push_back(n);
    return n;
  }

  // The group that the instruction can be a member of, or -1.
  int32_t join(int32_t number, Granularity& granularity) {
    const FusionInstruction& i = program_.instructions[number];
    if (i.role == FusionRole::none) return -1;
    find_candidates(i);
    if (const int32_t n = maker_for_last_reader(number); n >= 0) {
      ++visits_;
      granularity = granularity_in(n, i);
      if (granularity != Granularity::none) return n;
    }
    search_.begin(*this);
    for (int32_t n : candidates_) {
      ++visits_;
      granularity = granularity_in(n, i);
      if (granularity == Granularity::none) continue;
      int64_t last = -1;
      for (int32_t m : makers_)
        if (m != n) last = std::max(last, nodes_[m].position);
      if (last < nodes_[n].position || (!search_.may_include(*this, n) && move_behind(n, last))) return n;
    }
    granularity = Granularity::none;
    return -1;
  }

  void find_candidates(const FusionInstruction& i) {
    candidates_ = makers_;
    // What expands or reshapes only joins the group that makes its operand.
    if (i.role == FusionRole::map || i.role == FusionRole::reduce) {
      const auto& recent = recent_[program_.shape_of[i.role == FusionRole::map ? i.out[0] : i.in[0]]];
      candidates_.insert(candidates_.end(), recent.begin(), recent.end());
      std::sort(candidates_.begin(), candidates_.end(), std::greater<>());
      candidates_.erase(std::unique(candidates_.begin(), candidates_.end()), candidates_.end());
    }
    std::erase_if(candidates_, [&](int32_t n) { return !is_open(n); });
  }
  bool is_open(int32_t n) const { return nodes_[n].unit.group && nodes_[n].unit.members.size() < kMostMembers; }
  // The maker that stands last, if it is a group with room, and nothing that it makes is read after this instruction.
  int32_t maker_for_last_reader(int32_t number) const {
    int32_t latest = -1;
    for (int32_t m : makers_)
      if (latest < 0 || nodes_[m].position > nodes_[latest].position) latest = m;
    if (latest < 0 || !is_open(latest)) return -1;
    for (int32_t v : program_.instructions[number].in)
      if (maker_[v] == latest && last_reader_[v] != number) return -1;
    return latest;
  }

  // ---------------------------------------------------------------------------------------- dependencies and order

  // What the makers of an instruction's operands need, directly or not, explored from the last position downwards.
  struct Search {
    std::vector<int32_t> explored, needed;
    std::vector<std::pair<int64_t, int32_t>> waiting;  // a heap of (position, node)
    int64_t visits;

    void begin(const Schedule& s) {
      explored.clear();
      needed.clear();
      waiting.clear();
      visits = 0;
      for (int32_t m : s.makers_) waiting.emplace_back(s.nodes_[m].position, m);
      std::make_heap(waiting.begin(), waiting.end());
    }

    // Whether a maker needs this node; also true when that takes too long to find out.
    bool may_include(Schedule& s, int32_t n) {
      while (!waiting.empty() && waiting.front().first > s.nodes_[n].position) {
        const int32_t next = waiting.front().second;
        visits += static_cast<int64_t>(s.nodes_[next].needs.size());
        if (visits > kMostVisits) return true;
        s.visits_ += static_cast<int64_t>(s.nodes_[next].needs.size());
        std::pop_heap(waiting.begin(), waiting.end());
        waiting.pop_back();
        explored.push_back(next);
        for (int32_t m : s.nodes_[next].needs) {
          if (contains(needed, m)) continue;
          needed.push_back(m);
          if (contains(s.makers_, m)) continue;
          waiting.emplace_back(s.nodes_[m].position, m);
          std::push_heap(waiting.begin(), waiting.end());
        }
      }
      return contains(needed, n);
    }

    static bool contains(const std::vector<int32_t>& few, int32_t n) {
      return std::find(few.begin(), few.end(), n) != few.end();
    }
  };

  // Moves a node and its descendants up to position `last` behind the makers' ancestors. False if these are too many.
  bool move_behind(int32_t n, int64_t last) {
    std::vector<int32_t> moved{n};
    int64_t visits = 0;
    for (size_t k = 0; k < moved.size(); ++k) {
      visits += static_cast<int64_t>(nodes_[moved[k]].users.size());
      if (visits > kMostVisits) return false;
      for (int32_t u : nodes_[moved[k]].users)
        if (nodes_[u].position < last && !Search::contains(moved, u)) moved.push_back(u);
    }
    visits_ += visits;
    std::vector<int32_t> reordered;
    for (int32_t a : search_.explored)
      if (nodes_[a].position > nodes_[n].position) reordered.push_back(a);
    sort_by_position(reordered);
    sort_by_position(moved);
    reordered.insert(reordered.end(), moved.begin(), moved.end());
    std::vector<int64_t> positions;
    for (int32_t m : reordered) positions.push_back(nodes_[m].position);
    std::sort(positions.begin(), positions.end());
    for (size_t k = 0; k < reordered.size(); ++k) nodes_[reordered[k]].position = positions[k];
    return true;
  }

  void sort_by_position(std::vector<int32_t>& order) const {
    std::sort(order.begin(), order.end(),
              [&](int32_t a, int32_t b) { return nodes_[a].position < nodes_[b].position; });
  }

  const FusionProgram& program_;
  std::vector<Node> nodes_;                   // in the order in which they began
  std::vector<int32_t> maker_;                // by value: the node that makes it; -1 for inputs
  std::vector<bool> row_;                     // by value
  std::vector<int32_t> last_reader_;          // by value: the last instruction that reads it
  std::vector<std::vector<int32_t>> recent_;  // by shape: the last groups
  std::vector<int32_t> makers_, candidates_;  // of the instruction that is being added, the latest first
  Search search_;
  int64_t visits_ = 0;
};

}  // namespace

Fusion fuse(const FusionProgram& program) { return Schedule(program).run(); }

}  // namespace wengert
