// Ops whose kernel is a Python function: custom operations inside compiled functions, made at run time, and core ops
// that a Python library computes.
#include <nanobind/stl/string.h>

#include "program.h"

namespace wengert {

namespace {

struct Callback {
  std::vector<Type> outputs;
  nb::object function;  // takes the operands, returns a sequence of outputs
};

const Callback& callback_of(const Op& op) { return *static_cast<const Callback*>(op.data.get()); }

void infer_callback(const Op& op, const Type*, int, const Attrs&, Type* out) {
  const std::vector<Type>& types = callback_of(op).outputs;
  for (size_t k = 0; k < types.size(); ++k) out[k] = types[k];
}

void compute_callback(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  try {
    nb::list operands;
    for (int i = 0; i < n_in; ++i) operands.append(to_python(alias(in[i])));
    for (size_t k = 0; k < op.attrs.size(); ++k) operands.append(nb::steal(attr_to_python(attrs[k])));
    nb::object results = callback_of(op).function(*operands);
    for (int k = 0; k < op.n_outputs; ++k) {
      Value* y = value_from(nb::object(results[k]), op.name.c_str());
      if (y->dtype != out[k]->dtype || !(y->dims() == out[k]->dims()))
        fail(ErrorKind::value, op.name.c_str(),
             "returned " + to_string(y->type()) + ", but " + to_string(out[k]->type()) + " when it was traced");
      copy_into(y, out[k]);
    }
  } catch (nb::python_error& e) {
    e.restore();
    throw Error(ErrorKind::python, "");
  }
}

// Makes a new op with a unique name and returns its callable. The op lives while the callable or a program refers to
// it.
nb::object add_callback(const std::string& name, int n_inputs, const nb::list& outputs, const nb::object& function) {
  return guarded([&] {
    if (outputs.size() < 1 || outputs.size() > kMaxOutputs)
      fail(ErrorKind::value, name.c_str(),
           "has " + std::to_string(outputs.size()) + " outputs; 1 to 4 are supported here");
    auto callback = std::make_shared<Callback>();
    for (nb::handle h : outputs) {
      nb::tuple t = nb::cast<nb::tuple>(h);
      callback->outputs.push_back(
          {dtype_from(nb::cast<int>(nb::object(t[0]))), dims_from_python(nb::object(t[1]).ptr())});
    }
    callback->function = function;
    Op op;
    op.name = name;
    op.n_inputs = n_inputs;
    op.n_outputs = static_cast<int>(outputs.size());
    op.infer = infer_callback;
    op.compute = compute_callback;
    op.data = callback;
    const std::shared_ptr<const Op> added = add_temporary_op(std::move(op));
    return nb::steal(new_op_function(added.get()));
  });
}

// Sets the kernel of a core op that only has a shape rule: it takes operands and attributes and returns a sequence of
// outputs.
void set_kernel(const std::string& name, const nb::object& function) {
  guarded([&] {
    Op* op = find_op(name);
    if (!op) fail(ErrorKind::value, name.c_str(), "is not an op");
    auto callback = std::make_shared<Callback>();
    callback->function = function;
    op->data = callback;
    op->compute = compute_callback;
  });
}

}  // namespace

void init_callback(nb::module_& m) {
  m.def("add_callback", &add_callback);
  m.def("set_kernel", &set_kernel);
}

}  // namespace wengert
