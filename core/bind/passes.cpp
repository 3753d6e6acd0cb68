// Passes over Python programs, and comparisons that they need: fusion, cuts, keys of attributes.
#include <nanobind/stl/vector.h>

#include <cmath>
#include <string>
#include <unordered_map>

#include "../cut.h"
#include "../fuse.h"
#include "program.h"

namespace wengert {

namespace {

// ---------------------------------------------------------------------------------------------------- keys

template <class T>
void append(std::string& key, T x) {
  key.append(reinterpret_cast<const char*>(&x), sizeof x);
}

// Appends a size or attribute by its bits; comparing sizes would record a guard.
void append_key(std::string& key, PyObject* o) {
  if (PyTuple_CheckExact(o)) {
    append(key, '(');
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) append_key(key, PyTuple_GET_ITEM(o, i));
    append(key, ')');
  } else if (PyFloat_Check(o)) {
    append(key, 'f');
    append(key, PyFloat_AS_DOUBLE(o));
  } else {
    append(key, 'i');
    append(key, dim_from_python(o).raw);
  }
}

// A key that is equal exactly if attributes, or shapes, are the same expressions.
nb::bytes attr_key(nb::handle attrs) {
  return guarded([&] {
    std::string key;
    append_key(key, attrs.ptr());
    return nb::bytes(key.data(), key.size());
  });
}

// Whether two shapes are the same expressions; records no guard.
bool same_sizes(nb::handle a, nb::handle b) {
  if (a.is(b)) return true;
  return guarded([&] {
    const Dims left = dims_from_python(a.ptr()), right = dims_from_python(b.ptr());
    if (left.n != right.n) return false;
    for (int i = 0; i < left.n; ++i)
      if (left[i].raw != right[i].raw) return false;
    return true;
  });
}

// -------------------------------------------------------------------------------------------------- fusion

// Reads the instructions of a Python program and groups them into units.
class Fuser {
 public:
  Fuser(nb::list instructions, const nb::list& roles, nb::handle var_type, int64_t longest_row)
      : instructions_(std::move(instructions)), var_type_(var_type) {
    program_.longest_row = longest_row;
    program_.instructions.reserve(instructions_.size());
    if (roles.size() != instructions_.size()) fail(ErrorKind::value, "fuse", "takes one role for each instruction");
    for (size_t k = 0; k < instructions_.size(); ++k) add(instructions_[k], nb::cast<int>(roles[k]));
  }

  // ([unit: an instruction, or (shape, members, row axes, {values with one element per row})], units visited)
  nb::tuple run() {
    Fusion fusion = fuse(program_);
    nb::list units;
    for (const FusionUnit& u : fusion.units) {
      if (!u.group) {
        units.append(instructions_[u.members[0]]);
        continue;
      }
      nb::list members;
      nb::set rows;
      for (int32_t i : u.members) {
        members.append(instructions_[i]);
        const int32_t v = program_.instructions[i].out[0];
        if (fusion.row[v]) rows.add(vars_[v]);
      }
      units.append(nb::make_tuple(shapes_[u.shape], members, u.row_axes, rows));
    }
    return nb::make_tuple(units, fusion.visits);
  }

 private:
  void add(nb::handle i, int role) {
    if (role < 0 || role > static_cast<int>(FusionRole::alias)) fail(ErrorKind::value, "fuse", "no such role");
    FusionInstruction read{static_cast<FusionRole>(role), values(i.attr(inputs_)), values(i.attr(outputs_))};
    if (read.role != FusionRole::none && read.out.size() != 1)
      fail(ErrorKind::value, "fuse", "what can be fused has one result");
    if (read.role > FusionRole::map && read.in.size() != 1)
      fail(ErrorKind::value, "fuse", "a reduction, a broadcast and a reshape have one operand");
    if (read.role == FusionRole::reduce) read.reduced = trailing_axes(i, rank(read.in[0]));
    program_.instructions.push_back(std::move(read));
  }

  std::vector<int32_t> values(const nb::object& operands) {
    std::vector<int32_t> numbers;
    for (nb::handle v : nb::cast<nb::tuple>(operands))
      if (nb::handle(v.type()).is(var_type_)) numbers.push_back(value(v));
    return numbers;
  }

  int32_t value(nb::handle v) {
    auto [it, fresh] = numbers_.try_emplace(v.ptr(), static_cast<int32_t>(vars_.size()));
    if (fresh) {
      vars_.push_back(nb::borrow(v));
      program_.shape_of.push_back(shape(v.attr(type_).attr(shape_)));
    }
    return it->second;
  }

  int32_t shape(const nb::object& sizes) {
    std::string key;
    append_key(key, sizes.ptr());
    auto [it, fresh] = shape_numbers_.try_emplace(std::move(key), static_cast<int32_t>(shapes_.size()));
    if (fresh) {
      shapes_.push_back(sizes);
      program_.shapes.push_back(dims_from_python(sizes.ptr()));
    }
    return it->second;
  }

  int rank(int32_t v) const { return program_.shapes[program_.shape_of[v]].n; }

  // The number of axes of a reduction over trailing axes, in order; 0 for other reductions.
  int32_t trailing_axes(nb::handle i, int n) const {
    const Dims axes = dims_from_python(nb::object(i.attr(attrs_)[0]).ptr());
    for (int k = 0; k < axes.n; ++k)
      if (axes[k].raw != n - axes.n + k) return 0;
    return axes.n;
  }

  nb::list instructions_;
  nb::handle var_type_;
  FusionProgram program_;
  std::vector<nb::object> vars_, shapes_;
  std::unordered_map<PyObject*, int32_t> numbers_;
  std::unordered_map<std::string, int32_t> shape_numbers_;
  const nb::str inputs_ = intern("inputs"), outputs_ = intern("outputs"), attrs_ = intern("attrs"),
                type_ = intern("type"), shape_ = intern("shape");

  static nb::str intern(const char* name) { return nb::steal<nb::str>(PyUnicode_InternFromString(name)); }
};

nb::tuple fuse_instructions(const nb::list& instructions, const nb::list& roles, nb::handle var_type,
                            int64_t longest_row) {
  return guarded([&] { return Fuser(instructions, roles, var_type, longest_row).run(); });
}

// ---------------------------------------------------------------------------------------------------- cuts

// ([vertices of the cut], edges visited); edge k goes from tails[k] to heads[k].
nb::tuple find_cut(std::vector<double> weights, std::vector<int32_t> tails, std::vector<int32_t> heads,
                   std::vector<int32_t> sources, std::vector<int32_t> sinks) {
  guarded([&] {
    if (tails.size() != heads.size()) fail(ErrorKind::value, "minimum_vertex_cut", "takes one head for each tail");
    for (const auto* list : {&tails, &heads, &sources, &sinks})
      for (int32_t v : *list)
        if (v < 0 || v >= static_cast<int64_t>(weights.size()))
          fail(ErrorKind::value, "minimum_vertex_cut", "there is no vertex " + std::to_string(v));
    for (double w : weights)
      if (!std::isfinite(w)) fail(ErrorKind::value, "minimum_vertex_cut", "weights must be finite");
  });
  VertexCut cut = minimum_vertex_cut(
      {std::move(weights), std::move(tails), std::move(heads), std::move(sources), std::move(sinks)});
  return nb::make_tuple(cut.vertices, cut.visits);
}

}  // namespace

void init_passes(nb::module_& m) {
  m.def("attr_key", &attr_key);
  m.def("same_sizes", &same_sizes);
  m.def("fuse", &fuse_instructions);
  m.def("minimum_vertex_cut", &find_cut);
}

}  // namespace wengert
