// Minimum vertex cuts of directed graphs.
#pragma once
#include <cstdint>
#include <vector>

namespace wengert {

struct Graph {
  std::vector<double> weights;        // of each vertex, finite
  std::vector<int32_t> tails, heads;  // edge k goes from tails[k] to heads[k]
  std::vector<int32_t> sources, sinks;
};

struct VertexCut {
  std::vector<int32_t> vertices;  // in ascending order
  int64_t visits = 0;             // how many edges were looked at
};

// The lightest set of vertices that meets every path from a source to a sink (both may be in it); of equally light
// ones, that nearest to the sinks. It takes at most a constant number of visits per vertex and edge: where more would
// be needed, sinks that were not reached by then are cut themselves.
VertexCut minimum_vertex_cut(const Graph& graph);

}  // namespace wengert
