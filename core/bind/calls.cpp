#include "calls.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "ops.h"

namespace wengert {

namespace {

// ((dtype, shape), number of the result that was read, tensor if it comes from outside or None, receiver of its
// cotangent).
nb::list operands(const Call& call) {
  nb::list out;
  for (const Call::Operand& o : call.operands) {
    nb::object value = nb::none();
    if (o.value) {
      retain(o.value);
      value = to_python(o.value);
    }
    out.append(
        nb::make_tuple(type_to(o.type), o.made, value, nb::make_tuple(reinterpret_cast<uintptr_t>(o.node), o.output)));
  }
  return out;
}

// Identifies the memory of an operand from outside; equal for two reads of the same value.
nb::object place_of(const Call& call, size_t k) {
  const Value* v = call.operands.at(k).value;
  nb::list strides;
  for (int i = 0; i < v->ndim; ++i) strides.append(v->strides[i]);
  return nb::make_tuple(reinterpret_cast<uintptr_t>(v->buffer), reinterpret_cast<uintptr_t>(v->data),
                        call.operands[k].version, static_cast<int>(v->dtype), nb::steal(dims_to_python(v->dims())),
                        nb::tuple(strides));
}

nb::list run_call(const Call& call, const nb::list& given) {
  return guarded([&] {
    if (nb::len(given) != call.operands.size()) fail(ErrorKind::value, "replay", "takes one tensor for each operand");
    SmallArray<Value*, 8> in(call.operands.size()), out(call.results.size());
    for (size_t i = 0; i < call.operands.size(); ++i) in[i] = value_from(given[i], "replay");
    KeepAlive kept(in.data(), static_cast<int>(call.operands.size()));
    run_again(call, in.data(), static_cast<int>(call.operands.size()), out.data());
    nb::list results;
    for (size_t i = 0; i < call.results.size(); ++i) results.append(to_python(out[i]));
    return results;
  });
}

// `again` calls the custom op again, on similar tensors.
void log_custom(const std::string& name, nb::handle again, const nb::list& inputs, const nb::list& outputs) {
  guarded([&] {
    std::vector<Value*> in, out;
    for (nb::handle h : inputs) in.push_back(value_from(h, "custom op"));
    for (nb::handle h : outputs) out.push_back(value_from(h, "custom op"));
    const int n_in = static_cast<int>(in.size()), n_out = static_cast<int>(out.size());
    Node* node = nullptr;
    for (Value* v : out)
      if (v->node && !node) node = v->node;
    if (thread_state.n_tapes) log_call({name, in.data(), n_in, out.data(), n_out, n_out, node, again.ptr()}, {});
  });
}

}  // namespace

void init_calls(nb::module_& m) {
  nb::class_<Call>(m, "Call", "What ran while a tape recorded.")
      .def_ro("name", &Call::name)
      .def_ro("given", &Call::given)
      .def_ro("sizes_given", &Call::sizes_given)
      .def_ro("first", &Call::first)
      .def_ro("n_outputs", &Call::n_outputs)
      .def_prop_ro("is_op", [](const Call& c) { return c.op != nullptr; })
      .def_prop_ro("is_custom", [](const Call& c) { return !c.op && !c.ran; })
      .def_prop_ro("python", [](const Call& c) { return nb::borrow(static_cast<PyObject*>(c.python)); })
      .def_prop_ro("attrs",
                   [](const Call& c) {
                     nb::list attrs;
                     for (const Attr& a : c.attrs) attrs.append(nb::steal(attr_to_python(a)));
                     return nb::tuple(attrs);
                   })
      .def_prop_ro("results",
                   [](const Call& c) {
                     nb::list types;
                     for (const Type& t : c.results) types.append(type_to(t));
                     return types;
                   })
      .def_prop_ro("operands", &operands)
      .def_prop_ro("node", [](const Call& c) { return c.node ? node_to_python(c.node) : nb::none(); })
      .def_prop_ro("line", [](const Call& c) { return describe(c.line); })
      .def("place_of", &place_of)
      .def("check_operands", [](const Call& c) { guarded([&] { check_operands(c); }); })
      .def("run", &run_call);
  m.def("log_custom", &log_custom);
  m.def("number_of_result", [](nb::handle h) { return end_of_walk(h, "program")->made; });
  m.def("pause_tapes", &pause_tapes);
  m.def("resume_tapes", &resume_tapes);
}

}  // namespace wengert
