#include "ops.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>

namespace wengert {

DType dtype_from(int code) {
  if (code < 0 || code >= kNumDTypes) fail(ErrorKind::dtype, "dtype", "no dtype has the code " + std::to_string(code));
  return static_cast<DType>(code);
}

const Op& op_named(const std::string& name) {
  const Op* op = find_op(name);
  if (!op) throw nb::key_error(name.c_str());
  return *op;
}

nb::tuple type_to(const Type& t) {
  return nb::make_tuple(static_cast<int>(t.dtype), nb::steal(dims_to_python(t.shape)));
}

Attrs attrs_from(const Op& op, const nb::tuple& values) {
  Attrs attrs;
  std::vector<PyObject*> items;
  for (nb::handle h : values) items.push_back(h.ptr());
  parse_attrs(op, items.data(), static_cast<int>(items.size()), attrs);
  return attrs;
}

void check_operands(const Op& op, size_t n) {
  if (op.n_inputs >= 0 && static_cast<int>(n) != op.n_inputs)
    fail(ErrorKind::value, op.name.c_str(),
         "takes " + std::to_string(op.n_inputs) + " operand(s), got " + std::to_string(n));
}

namespace {

Type type_from(nb::handle h) {
  nb::tuple t = nb::cast<nb::tuple>(h);
  return {dtype_from(nb::cast<int>(t[0])), dims_from_python(nb::object(t[1]).ptr())};
}

nb::list infer(const std::string& name, const nb::sequence& inputs, const nb::tuple& attr_values) {
  return guarded([&] {
    const Op& op = op_named(name);
    std::vector<Type> in;
    for (nb::handle h : inputs) in.push_back(type_from(h));
    check_operands(op, in.size());
    Type out[kMaxOutputs];
    op.infer(op, in.data(), static_cast<int>(in.size()), attrs_from(op, attr_values), out);
    nb::list result;
    for (int i = 0; i < op.n_outputs; ++i) result.append(type_to(out[i]));
    return result;
  });
}

// (computing dtype, result dtype) of an elementwise op whose operands promote to `promoted`.
nb::tuple elementwise_dtypes(const std::string& name, int promoted) {
  return guarded([&] {
    const Op& op = op_named(name);
    if (!op.elementwise) fail(ErrorKind::value, name.c_str(), "is not elementwise");
    ElementwiseTypes t = elementwise_types(op, dtype_from(promoted));
    return nb::make_tuple(static_cast<int>(t.compute), static_cast<int>(t.result));
  });
}

// plan_operands(op, dtypes, operands): the dtype in which an elementwise op computes, and the operands with infinities
// in place of the numbers that they stand for. The dtype of an operand that is a number is -1.
nb::tuple plan_named(const std::string& name, const std::vector<int>& dtypes, const nb::tuple& operands) {
  return guarded([&] {
    const Op& op = op_named(name);
    if (!op.elementwise) fail(ErrorKind::value, name.c_str(), "is not elementwise");
    check_operands(op, dtypes.size());
    check_operands(op, operands.size());
    Promoted given[3];
    PyObject* objects[3] = {};
    for (size_t i = 0; i < dtypes.size(); ++i) {
      objects[i] = PyTuple_GET_ITEM(operands.ptr(), i);
      given[i] = dtypes[i] < 0 ? read_number(objects[i]) : Promoted{Promoted::tensor, dtype_from(dtypes[i])};
    }
    const OperandPlan plan = checked_plan(op, given, objects, static_cast<int>(dtypes.size()));
    nb::list planned;
    for (size_t i = 0; i < dtypes.size(); ++i)
      planned.append(plan.infinite[i] ? nb::object(nb::float_(plan.infinite[i] * HUGE_VAL)) : nb::borrow(objects[i]));
    return nb::make_tuple(static_cast<int>(plan.compute), nb::tuple(planned));
  });
}

// ------------------------------------------------------------------------------------------ building programs

}  // namespace

void init_ops(nb::module_& m) {
  m.def("infer", &infer);
  m.def("set_traced_number",
        [](nb::type_object type) { set_traced_number(reinterpret_cast<PyTypeObject*>(type.release().ptr())); });
  m.def("elementwise_dtypes", &elementwise_dtypes);
  m.def("plan_operands", &plan_named);
  m.def("promote_number", [](int dtype, nb::handle number) {  // promotes a tensor's dtype with a Python number
    return guarded([&] { return static_cast<int>(with_number(dtype_from(dtype), read_number(number.ptr()).kind)); });
  });
  m.def("promote",
        [](int a, int b) { return guarded([&] { return static_cast<int>(promote(dtype_from(a), dtype_from(b))); }); });
  nb::class_<Op>(m, "NativeOp", "What the core says of an op.")
      .def_ro("name", &Op::name)
      .def_ro("n_inputs", &Op::n_inputs)
      .def_ro("n_outputs", &Op::n_outputs)
      .def_prop_ro("attrs",
                   [](const Op& op) {
                     nb::list attrs;
                     for (const AttrSpec& a : op.attrs) attrs.append(nb::make_tuple(a.name, static_cast<int>(a.kind)));
                     return attrs;
                   })
      .def_ro("elementwise", &Op::elementwise)
      .def_ro("differentiable", &Op::differentiable)
      .def_prop_ro("view", [](const Op& op) { return op.view != nullptr; })
      .def_ro("n_conditions", &Op::n_conditions)
      .def_ro("matrix_product", &Op::matrix_product)
      .def_prop_ro("fuses",
                   [](const Op& op) {
                     switch (op.fusion) {
                       case FusionRole::map: return "map";
                       case FusionRole::reduce: return "reduce";
                       case FusionRole::expand: return "expand";
                       case FusionRole::alias: return "alias";
                       default: return "";
                     }
                   })
      .def_prop_ro("fusion", [](const Op& op) { return static_cast<int>(op.fusion); });
  m.def("op_table", [] {
    nb::list table;
    for (const Op* op : all_ops()) table.append(nb::cast(op, nb::rv_policy::reference));
    return table;
  });
}

}  // namespace wengert
