#include "program.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "ops.h"
#include "sizes.h"

namespace wengert {

namespace {

struct ProgramBuilder {
  std::shared_ptr<Program> p = std::make_shared<Program>();

  Dims sizes(nb::handle h) { return sizes(dims_from_python(h.ptr())); }
  Dims sizes(const Dims& d) {
    Dims r;
    r.n = d.n;
    for (int i = 0; i < d.n; ++i) r[i] = p->sizes.compile(d[i]);
    return r;
  }

  static std::vector<int32_t> slots(nb::handle h) {
    std::vector<int32_t> v;
    for (nb::handle s : nb::cast<nb::sequence>(h)) v.push_back(nb::cast<int32_t>(s));
    return v;
  }

  void call(const std::string& name, const nb::tuple& attrs, nb::handle in, nb::handle out) {
    guarded([&] {
      Step s;
      s.op = &op_named(name);
      s.owned = s.op->owned.lock();
      s.attrs = attrs_from(*s.op, attrs);
      for (int k = 0; k < s.attrs.n; ++k)
        if (s.attrs.v[k].kind == Attr::Kind::sizes) {
          s.attrs.v[k].dims = sizes(s.attrs.v[k].dims);
          for (Dim d : s.attrs.v[k].dims) s.symbolic |= d.symbolic();
        }
      s.in = slots(in);
      s.out = slots(out);
      p->steps.push_back(std::move(s));
    });
  }

  Region region(std::shared_ptr<const Program> program) {
    Region r{std::move(program), {}};
    for (const SizeLeaf& l : r.program->sizes.leaves) r.leaves.push_back(static_cast<int32_t>(p->sizes.number(l)));
    return r;
  }

  // Runs one of these programs, chosen by the first operand, on the others.
  void choose(const std::vector<std::shared_ptr<Program>>& programs, nb::handle in, nb::handle out) {
    guarded([&] {
      Step s;
      if (programs.empty()) fail(ErrorKind::value, "choose", "takes at least one program");
      for (const std::shared_ptr<Program>& program : programs) s.regions.push_back(region(program));
      s.in = slots(in);
      s.out = slots(out);
      p->steps.push_back(std::move(s));
    });
  }

  // A loop over `length` slices; stacked: (dtype, shape) of the results of all turns, including the leading axis.
  void repeat(const std::shared_ptr<Program>& body, nb::handle length, int n_carried, int n_sliced, bool reverse,
              const nb::list& stacked, nb::handle in, nb::handle out) {
    guarded([&] {
      Step s;
      s.loop = std::make_unique<Loop>();
      s.loop->length = sizes(length)[0];
      s.loop->n_carried = n_carried;
      s.loop->n_sliced = n_sliced;
      s.loop->reverse = reverse;
      for (nb::handle h : stacked) {
        nb::tuple t = nb::cast<nb::tuple>(h);
        s.loop->stacked_dtypes.push_back(dtype_from(nb::cast<int>(nb::object(t[0]))));
        s.loop->stacked_shapes.push_back(sizes(nb::object(t[1])));
      }
      s.regions.push_back(region(body));
      s.in = slots(in);
      s.out = slots(out);
      p->steps.push_back(std::move(s));
    });
  }

  // A loop that runs while a condition on the carried and the constant values holds.
  void repeat_while(const std::shared_ptr<Program>& condition, const std::shared_ptr<Program>& body, int n_carried,
                    nb::handle in, nb::handle out) {
    guarded([&] {
      Step s;
      s.loop = std::make_unique<Loop>();
      s.loop->n_carried = n_carried;
      s.regions.push_back(region(condition));
      s.regions.push_back(region(body));
      s.in = slots(in);
      s.out = slots(out);
      p->steps.push_back(std::move(s));
    });
  }

  // Runs a program whose first operands are the values of these sizes.
  void with_sizes(const std::shared_ptr<Program>& program, const nb::list& leaves, nb::handle in, nb::handle out) {
    guarded([&] {
      Step s;
      const std::vector<SizeLeaf> given = leaves_from(leaves);
      Region r{program, {}};
      for (const SizeLeaf& l : program->sizes.leaves) {
        const auto found = std::find(given.begin(), given.end(), l);
        r.leaves.push_back(found == given.end() ? static_cast<int32_t>(p->sizes.number(l))
                                                : ~static_cast<int32_t>(found - given.begin()));
      }
      s.regions.push_back(std::move(r));
      s.n_sizes = static_cast<int>(given.size());
      s.in = slots(in);
      s.out = slots(out);
      p->steps.push_back(std::move(s));
    });
  }

  // registers: (dtype, row, input slot or -1, output slot or -1, output shape, constant or None)
  // code: (kind, op name or dtype, row, inputs, output)
  // like: a slot with the shape of the iteration space, or -1
  void fused(nb::handle shape, int like, int row_axes, const nb::list& registers, const nb::list& code) {
    guarded([&] {
      Step s;
      s.group = std::make_unique<FusedGroup>();
      FusedGroup& g = *s.group;
      g.like = like;
      if (like < 0) g.shape = sizes(shape);
      g.row_axes = row_axes;
      for (nb::handle h : registers) add_register(s, nb::cast<nb::tuple>(h));
      for (nb::handle h : code) add_instruction(g, nb::cast<nb::tuple>(h));
      g.finish();  // checks register indices; slot indices are checked when the program is finished
      p->steps.push_back(std::move(s));
    });
  }

  void add_register(Step& s, const nb::tuple& t) {
    FusedRegister r;
    r.dtype = dtype_from(nb::cast<int>(t[0]));
    r.row = nb::cast<bool>(t[1]);
    r.input = nb::cast<int32_t>(t[2]);
    r.output = nb::cast<int32_t>(t[3]);
    if (r.output >= 0 && s.group->like < 0) {
      r.output_shape = static_cast<int32_t>(s.group->output_shapes.size());
      s.group->output_shapes.push_back(sizes(nb::object(t[4])));
    }
    nb::object constant(t[5]);
    if (!constant.is_none()) {
      r.constant = true;
      set_number(constant.ptr(), r.dtype, r.bytes);
    }
    if (r.input >= 0) s.in.push_back(r.input);
    if (r.output >= 0) s.out.push_back(r.output);
    s.group->registers.push_back(r);
  }

  void add_instruction(FusedGroup& g, const nb::tuple& t) {
    FusedInstruction i{};
    std::string kind = nb::cast<std::string>(t[0]);
    i.row = nb::cast<bool>(t[2]);
    std::vector<int32_t> in = slots(nb::object(t[3]));
    if (in.empty() || in.size() > std::size(i.in)) fail(ErrorKind::value, "fused", "takes one to three operands");
    i.n_in = static_cast<uint8_t>(in.size());
    for (size_t k = 0; k < in.size(); ++k) i.in[k] = static_cast<int16_t>(register_at(g, in[k]));
    i.out = static_cast<int16_t>(register_at(g, nb::cast<int32_t>(t[4])));
    auto code = [](DType d) { return static_cast<int>(d); };
    const DType last = g.registers[in.back()].dtype, made = g.registers[i.out].dtype;
    if (kind == "map") {
      i.kind = FusedInstruction::Kind::map;
      const Op& op = op_named(nb::cast<std::string>(t[1]));
      check_operands(op, in.size());
      i.op = op.kernel;
      i.map = op.elementwise ? op.map[code(last)] : nullptr;
      if (!i.map) fail(ErrorKind::dtype, op.name.c_str(), std::string("no kernel for ") + name_of(last));
      for (size_t k = 0; k < in.size(); ++k) {
        const bool condition = static_cast<int>(k) < op.n_conditions;
        if (g.registers[in[k]].dtype != (condition ? DType::Bool : last) || made != op.map_result[code(last)])
          fail(ErrorKind::dtype, op.name.c_str(), "registers have other dtypes than the kernel");
      }
    } else if (kind == "cast") {
      i.kind = FusedInstruction::Kind::cast;
      check_operands(op_named("cast"), in.size());
      i.cast = kernels().cast[code(last)][code(made)];
      if (!i.cast) fail(ErrorKind::dtype, "cast", std::string("no kernel for ") + name_of(last));
    } else if (kind == "reduce") {
      i.kind = FusedInstruction::Kind::reduce;
      const Op& op = op_named(nb::cast<std::string>(t[1]));
      i.reduction = op.reduction;
      if (op.reduction != Reduction::count) i.reduce = kernels().row_reduce[static_cast<int>(op.reduction)][code(last)];
      if (!i.reduce) fail(ErrorKind::dtype, op.name.c_str(), std::string("no row kernel for ") + name_of(last));
      if (made != last && made != DType::Bool)
        fail(ErrorKind::dtype, op.name.c_str(), "keeps the dtype of its operand");
    } else {
      i.kind = FusedInstruction::Kind::expand;
      if (made != last) fail(ErrorKind::dtype, "expand", "keeps the dtype of its operand");
    }
    g.code.push_back(i);
    g.source.emplace_back(&op_named(nb::cast<std::string>(t[1])), i);
  }

  static int32_t register_at(const FusedGroup& g, int32_t k) {
    if (k < 0 || k >= static_cast<int32_t>(g.registers.size()) || k > INT16_MAX)
      fail(ErrorKind::value, "fused", "has no register " + std::to_string(k));
    return k;
  }

  // Sizes that no step reads but that later derivatives of the program need.
  void keep_sizes(nb::handle kept) {
    guarded([&] {
      for (nb::handle h : nb::cast<nb::sequence>(kept)) p->sizes.compile(dim_from_python(h.ptr()));
    });
  }

  // Gives this program the size leaves of another, so that the same numbers can be passed to both.
  void set_leaves(const nb::list& leaves) { p->sizes.set_leaves(leaves_from(leaves)); }

  // Returns the program; the builder starts a new one.
  std::shared_ptr<Program> finish(int n_inputs, int n_slots, const nb::list& constants, nb::handle outputs) {
    return guarded([&] {
      std::shared_ptr<Program> made = std::exchange(p, std::make_shared<Program>());
      made->n_inputs = n_inputs;
      made->n_slots = n_slots;
      for (nb::handle h : constants) {
        nb::tuple t = nb::cast<nb::tuple>(h);
        Value* v = value_from(nb::object(t[1]), "constant");
        retain(v);
        made->constants.emplace_back(nb::cast<int32_t>(nb::object(t[0])), v);
      }
      made->outputs = slots(outputs);
      made->finish();
      return made;
    });
  }
};

}  // namespace

void check_count(const Program& p, size_t n) {
  if (static_cast<int>(n) != p.n_inputs)
    fail(ErrorKind::value, "program", "takes " + std::to_string(p.n_inputs) + " inputs, got " + std::to_string(n));
}

namespace {

std::vector<Value*> values_from(nb::handle tensors, const char* what) {
  std::vector<Value*> v;
  for (nb::handle h : nb::cast<nb::sequence>(tensors)) v.push_back(value_from(h, what));
  return v;
}

nb::list run_program(const Program& p, const nb::sequence& inputs) {
  return guarded([&] {
    std::vector<Value*> in = values_from(inputs, "program");
    check_count(p, in.size());
    check_leaves(p.sizes.leaves, in.data(), in.size());
    std::vector<int64_t> sizes(p.sizes.leaves.size());
    gather_sizes(p.sizes.leaves, in.data(), nullptr, nullptr, sizes.data());
    std::vector<Value*> out(p.outputs.size());
    run(p, in.data(), sizes.data(), out.data());
    nb::list result;
    for (Value* v : out) result.append(to_python(v));
    return result;
  });
}

}  // namespace

nb::object to_python(Value* owned) {
  if (!owned) return nb::none();
  PyObject* o = wrap(owned);
  if (!o) throw nb::python_error();
  return nb::steal(o);
}

Value* value_from(nb::handle h, const char* what) {
  if (!is_tensor(h.ptr()) || !as_tensor(h.ptr())->plain) {
    PyErr_Format(PyExc_TypeError, "%s: expected a plain tensor, got %s", what, Py_TYPE(h.ptr())->tp_name);
    throw nb::python_error();
  }
  TensorObject* t = as_tensor(h.ptr());
  if (!thread_state.capturing) return operand(t);
  if (t->changed) throw Captured();
  return current(t->tensor);
}

void init_program(nb::module_& m) {
  nb::class_<Program>(m, "Program", "A program in executable form.")
      .def("run", &run_program)
      .def_rw("name", &Program::name)
      .def_prop_ro("size_leaves", [](const Program& p) { return leaves_to(p.sizes.leaves); });
  nb::class_<ProgramBuilder>(m, "ProgramBuilder")
      .def(nb::init<>())
      .def("call", &ProgramBuilder::call)
      .def("choose", &ProgramBuilder::choose)
      .def("repeat", &ProgramBuilder::repeat)
      .def("repeat_while", &ProgramBuilder::repeat_while)
      .def("with_sizes", &ProgramBuilder::with_sizes)
      .def("fused", &ProgramBuilder::fused)
      .def("set_leaves", &ProgramBuilder::set_leaves)
      .def("keep_sizes", &ProgramBuilder::keep_sizes)
      .def("finish", &ProgramBuilder::finish);
  m.def("run_counters", [] { return nb::make_tuple(run_counters.steps, run_counters.groups, run_counters.gemms); });
}

}  // namespace wengert
