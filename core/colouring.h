// Colourings of sparse matrices: columns of one colour are computed together, by one derivative along their sum.
#pragma once
#include <cstdint>
#include <vector>

#include "index_sets.h"

namespace wengert {

// A colour for each column such that no row has two columns of the same one, greedily in this order of the columns.
// `rows` is the pattern, `columns` its transpose.
std::vector<int32_t> colour_columns(IndexSetsView rows, IndexSetsView columns, const int32_t* order);

// A star colouring of a symmetric pattern, greedily in this order: neighbours differ, and every path of four vertices
// has three colours. So for each entry (i, j) column i is the only one of its colour in row j, or the other way round.
// The diagonal does not matter. Vertices with very many neighbours get a colour of their own.
//
// Gebremedhin, Manne, Pothen: What color is your Jacobian? SIAM Review 47 (2005), section 6.
std::vector<int32_t> star_colouring(IndexSetsView symmetric, const int32_t* order);

}  // namespace wengert
