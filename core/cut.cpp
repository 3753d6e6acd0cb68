#include "cut.h"

#include <algorithm>
#include <limits>

namespace wengert {

namespace {

constexpr int64_t kVisitsPerEdge = 256;

// Edges by one of their ends.
struct Incidence {
  std::vector<int32_t> first, edges;

  Incidence(size_t n_vertices, const std::vector<int32_t>& ends) : first(n_vertices + 1), edges(ends.size()) {
    for (int32_t v : ends) ++first[v + 1];
    for (size_t v = 0; v < n_vertices; ++v) first[v + 1] += first[v];
    std::vector<int32_t> next(first.begin(), first.end() - 1);
    for (size_t e = 0; e < ends.size(); ++e) edges[next[ends[e]]++] = static_cast<int32_t>(e);
  }
  const int32_t* begin(int32_t v) const { return edges.data() + first[v]; }
  const int32_t* end(int32_t v) const { return edges.data() + first[v + 1]; }
};

// Max-flow = min-cut. A vertex v is split into an entry 2v and an exit 2v + 1, joined by an arc whose capacity is its
// weight; edges have no limit. Flow is pushed to one sink after the other, along paths that a breadth-first search
// finds from the sink backwards. Where the search fails, no source leads to what it has seen, and never will: flow that
// could free an arc into that region would have to enter it first. So the region is closed, and later searches stop at
// it; they take the same visits together as one. In the end the closed nodes are those that lead to a sink.
class Flow {
 public:
  explicit Flow(const Graph& g)
      : graph_(g),
        in_(g.weights.size(), g.heads),
        out_(g.weights.size(), g.tails),
        through_(g.weights.size()),
        along_(g.tails.size()),
        source_(g.weights.size()),
        seen_(2 * g.weights.size()),
        next_(2 * g.weights.size()) {
    for (int32_t s : g.sources) source_[s] = true;
  }

  VertexCut cut() {
    const int64_t most = kVisitsPerEdge * static_cast<int64_t>(graph_.weights.size() + graph_.tails.size());
    std::vector<int32_t> sinks = graph_.sinks;
    std::sort(sinks.begin(), sinks.end());
    std::vector<bool> cut(graph_.weights.size());
    for (int32_t t : sinks) {
      while (visits_ <= most && search(exit(t))) push(exit(t));
      if (visits_ > most) cut[t] = true;
    }
    VertexCut result;
    for (int32_t v = 0; v < static_cast<int32_t>(cut.size()); ++v)
      if (cut[v] || (closed(exit(v)) && !closed(entry(v)))) result.vertices.push_back(v);
    result.visits = visits_;
    return result;
  }

 private:
  static constexpr int32_t kClosed = std::numeric_limits<int32_t>::max();
  static constexpr int32_t kWithin = -1;  // the arc from a vertex's entry to its exit
  static int32_t entry(int32_t v) { return 2 * v; }
  static int32_t exit(int32_t v) { return 2 * v + 1; }
  bool closed(int32_t node) const { return seen_[node] == kClosed; }

  // Whether a source leads to the sink; then `found_` is the entry of that source, and `next_` the way from there.
  bool search(int32_t sink) {
    if (closed(sink)) return false;
    ++search_;
    queue_.assign(1, sink);
    seen_[sink] = search_;
    for (size_t k = 0; k < queue_.size(); ++k) {
      const int32_t node = queue_[k], v = node / 2;
      if (node == entry(v)) {
        if (source_[v]) return found_ = node, true;
        for (const int32_t* e = in_.begin(v); e != in_.end(v); ++e) look(exit(graph_.tails[*e]), {node, *e}, true);
        look(exit(v), {node, kWithin}, through_[v] > 0);
      } else {
        look(entry(v), {node, kWithin}, through_[v] < graph_.weights[v]);
        for (const int32_t* e = out_.begin(v); e != out_.end(v); ++e)
          look(entry(graph_.heads[*e]), {node, *e}, along_[*e] > 0);
      }
    }
    for (int32_t node : queue_) seen_[node] = kClosed;
    return false;
  }

  struct Arc {
    int32_t node, edge;
  };

  void look(int32_t node, Arc next, bool room) {
    ++visits_;
    if (!room || seen_[node] >= search_) return;
    seen_[node] = search_;
    next_[node] = next;
    queue_.push_back(node);
  }

  // As much as fits from the source that was found. Arcs forwards leave entries within a vertex, and exits otherwise;
  // the others take flow back.
  void push(int32_t sink) {
    double flow = std::numeric_limits<double>::infinity();
    for (int32_t n = found_; n != sink; n = next_[n].node) {
      const int32_t e = next_[n].edge;
      const bool leaves_entry = n == entry(n / 2);
      if (e == kWithin)
        flow = std::min(flow, leaves_entry ? graph_.weights[n / 2] - through_[n / 2] : through_[n / 2]);
      else if (leaves_entry)
        flow = std::min(flow, along_[e]);
    }
    for (int32_t n = found_; n != sink; n = next_[n].node) {
      const int32_t e = next_[n].edge;
      const bool forwards = (n == entry(n / 2)) == (e == kWithin);
      (e == kWithin ? through_[n / 2] : along_[e]) += forwards ? flow : -flow;
    }
  }

  const Graph& graph_;
  Incidence in_, out_;
  std::vector<double> through_, along_;  // flow through vertices and along edges
  std::vector<bool> source_;
  std::vector<int32_t> seen_;  // by node: the last search that met it, or kClosed
  std::vector<Arc> next_;      // by node: where the last search came from
  std::vector<int32_t> queue_;
  int32_t search_ = 0, found_ = 0;
  int64_t visits_ = 0;
};

}  // namespace

VertexCut minimum_vertex_cut(const Graph& graph) { return Flow(graph).cut(); }

}  // namespace wengert
