// Patterns of sparse matrices, held by Python as arrays, and their colourings.
#include <nanobind/ndarray.h>

#include <memory>
#include <string>

#include "../colouring.h"
#include "../index_sets.h"
#include "program.h"

namespace wengert {

namespace {

using Given = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Made = nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>;

Made array(std::vector<int32_t> numbers) {
  auto owner = std::make_unique<std::vector<int32_t>>(std::move(numbers));
  int32_t* data = owner->data();
  const size_t size = owner->size();
  nb::capsule free(owner.release(), [](void* p) noexcept { delete static_cast<std::vector<int32_t>*>(p); });
  return Made(data, {size}, free);
}

nb::tuple arrays(IndexSets sets) {
  return nb::make_tuple(array(std::move(sets.starts)), array(std::move(sets.columns)));
}

// Rows from Python, whose indices are below `n_columns`.
IndexSetsView view(const Given& starts, const Given& columns, int64_t n_columns) {
  const auto wrong = [](const std::string& what) { fail(ErrorKind::value, "sparsity", what); };
  if (starts.size() == 0 || starts.data()[0] != 0) wrong("the starts of rows begin with 0");
  const auto n = static_cast<int32_t>(starts.size()) - 1;
  for (int32_t i = 0; i < n; ++i)
    if (starts.data()[i] > starts.data()[i + 1]) wrong("the starts of rows must not descend");
  if (starts.data()[n] != static_cast<int64_t>(columns.size())) wrong("the last start must be the number of indices");
  for (size_t k = 0; k < columns.size(); ++k)
    if (columns.data()[k] < 0 || columns.data()[k] >= n_columns)
      wrong("the index " + std::to_string(columns.data()[k]) + " is out of range for " + std::to_string(n_columns));
  return {starts.data(), columns.data(), n};
}

void require_order(const Given& order, int32_t n) {
  std::vector<uint8_t> seen(n);
  bool right = order.size() == static_cast<size_t>(n);
  for (int32_t k = 0; right && k < n; ++k) {
    const int32_t v = order.data()[k];
    right = v >= 0 && v < n && !seen[v];
    if (right) seen[v] = 1;
  }
  if (!right) fail(ErrorKind::value, "colour", "an order names each of " + std::to_string(n) + " columns once");
}

nb::tuple unite_sets(const Given& a_starts, const Given& a_columns, const Given& b_starts, const Given& b_columns,
                     int64_t n_columns, int64_t most) {
  return guarded([&] {
    const IndexSetsView a = view(a_starts, a_columns, n_columns), b = view(b_starts, b_columns, n_columns);
    if (a.n_rows != b.n_rows) fail(ErrorKind::value, "sparsity", "only patterns of as many rows are united");
    return arrays(unite(a, b, most));
  });
}

nb::tuple product_of_sets(const Given& which_starts, const Given& which, const Given& starts, const Given& columns,
                          int64_t n_columns, int64_t most) {
  return guarded([&] {
    const IndexSetsView sets = view(starts, columns, n_columns);
    return arrays(product(view(which_starts, which, sets.n_rows), sets, static_cast<int32_t>(n_columns), most));
  });
}

nb::tuple transposed_sets(const Given& starts, const Given& columns, int64_t n_columns) {
  return guarded([&] { return arrays(transposed(view(starts, columns, n_columns), static_cast<int32_t>(n_columns))); });
}

Made colours_of_columns(const Given& starts, const Given& columns, int64_t n_columns, const Given& order) {
  return guarded([&] {
    const IndexSetsView rows = view(starts, columns, n_columns);
    require_order(order, static_cast<int32_t>(n_columns));
    return array(colour_columns(rows, transposed(rows, static_cast<int32_t>(n_columns)), order.data()));
  });
}

Made star_colours(const Given& starts, const Given& columns, const Given& order) {
  return guarded([&] {
    const IndexSetsView graph = view(starts, columns, static_cast<int64_t>(starts.size()) - 1);
    require_order(order, graph.n_rows);
    return array(star_colouring(graph, order.data()));
  });
}

}  // namespace

void init_sparsity(nb::module_& m) {
  m.def("unite_sets", &unite_sets);
  m.def("product_of_sets", &product_of_sets);
  m.def("transposed_sets", &transposed_sets);
  m.def("colours_of_columns", &colours_of_columns);
  m.def("star_colours", &star_colours);
}

}  // namespace wengert
