// The step of an optimizer: one program, run in place on many parameters and their states.
#include <nanobind/stl/shared_ptr.h>

#include <optional>

#include "../profile.h"
#include "../small_array.h"
#include "../threads.h"
#include "program.h"

namespace wengert {

namespace {

constexpr size_t kFewOperands = 24;

// The tensor at a position of a list; throws a TypeError that names the list.
TensorObject* tensor_at(PyObject* list, Py_ssize_t k, const char* what) {
  PyObject* o = PyList_GET_ITEM(list, k);
  if (!is_tensor(o) || !as_tensor(o)->plain) {
    PyErr_Format(PyExc_TypeError, "update: %s %zd is no plain tensor but a %s", what, k, Py_TYPE(o)->tp_name);
    throw nb::python_error();
  }
  return as_tensor(o);
}

// The gradient of a parameter: given, or from its leaf. Borrowed; null if there is none.
Value* gradient_of(const Value* parameter, PyObject* gradients, Py_ssize_t k) {
  if (gradients == Py_None) return parameter->node && parameter->node->grad ? parameter->node->grad->base : nullptr;
  if (PyList_GET_ITEM(gradients, k) == Py_None) return nullptr;
  return current(tensor_at(gradients, k, "gradient")->tensor);
}

// A parameter, its gradient and its state are on one device.
void check_device(const Value* parameter, const Value* gradient, PyObject* state) {
  DeviceId elsewhere = gradient->device;
  for (Py_ssize_t i = 0; elsewhere == parameter->device && PyList_Check(state) && i < PyList_GET_SIZE(state); ++i)
    elsewhere = current(tensor_at(state, i, "state")->tensor)->device;
  if (elsewhere != parameter->device)
    fail(ErrorKind::device, "step",
         "a parameter is on " + device_name(parameter->device) +
             ", and its gradient or the state of the optimizer on " + device_name(elsewhere) +
             "; make the optimizer after net.to(...)");
}

struct Update {
  const Program& program;
  Value** numbers;
  size_t n_numbers;

  // Inputs are the parameter, its gradient, its state and the numbers; outputs are the new parameter and the new state.
  void one(TensorObject* parameter, Value* gradient, PyObject* state) const {
    const size_t n_state = static_cast<size_t>(PyList_GET_SIZE(state)), n_out = 1 + n_state;
    SmallArray<TensorObject*, kFewOperands> targets(n_out);
    SmallArray<Value*, kFewOperands> in(2 + n_state + n_numbers), out(n_out), into(n_out);
    targets[0] = parameter;
    for (size_t i = 0; i < n_state; ++i) targets[1 + i] = tensor_at(state, static_cast<Py_ssize_t>(i), "state");
    for (size_t i = 0; i < n_out; ++i) {
      Value* v = current(targets[i]->tensor);
      in[i == 0 ? 0 : 1 + i] = v;
      into[i] = writable(targets[i]->tensor) ? v : nullptr;
    }
    in[1] = gradient;
    std::copy(numbers, numbers + n_numbers, in.data() + 2 + n_state);
    run(program, in.data(), nullptr, out.data(), into.data());
    for (size_t i = 0; i < n_out; ++i) {
      if (into[i]) {
        before_write(out[i]->buffer);
        ++out[i]->buffer->version;
        release(out[i]);
      } else {
        assign(targets[i]->tensor, out[i], "update", false);
      }
      set_category(targets[i]->tensor.value->buffer, i == 0 ? Category::parameter : Category::optimizer);
    }
  }
};

// Runs an update program on parameters of one dtype. Without `gradients`, they are read from the parameters' leaves. If
// one is missing nothing is changed, and the positions of those that are missing are returned.
nb::object update_in_place(const Program& p, const nb::list& parameters, nb::handle gradients, const nb::list& states,
                           const nb::tuple& numbers, int dtype) {
  return guarded([&]() -> nb::object {
    const Py_ssize_t n = PyList_GET_SIZE(parameters.ptr());
    if (PyList_GET_SIZE(states.ptr()) != n ||
        (!gradients.is_none() && (!PyList_Check(gradients.ptr()) || PyList_GET_SIZE(gradients.ptr()) != n)))
      fail(ErrorKind::value, "update", "parameters, gradients and states differ in number");
    if (!p.sizes.leaves.empty()) fail(ErrorKind::value, "update", "the program depends on sizes");
    nb::list missing;
    for (Py_ssize_t k = 0; k < n; ++k) {
      const Value* v = current(tensor_at(parameters.ptr(), k, "parameter")->tensor);
      const Value* g = gradient_of(v, gradients.ptr(), k);
      const Value* first = current(tensor_at(parameters.ptr(), 0, "parameter")->tensor);
      if (v->dtype != first->dtype)
        fail(ErrorKind::dtype, "update",
             "parameter " + to_string(v->type()) + " is updated together with " + to_string(first->type()) +
                 "; make the optimizer after parameters are cast");
      if (!g)
        missing.append(k);
      else if (g->dtype != v->dtype || !(g->dims() == v->dims()))
        fail(g->dtype != v->dtype ? ErrorKind::dtype : ErrorKind::shape, "update",
             "gradient " + to_string(g->type()) + " does not fit parameter " + to_string(v->type()));
      else
        check_device(v, g, PyList_GET_ITEM(states.ptr(), k));
    }
    if (missing.size()) return missing;
    const size_t n_numbers = numbers.size();
    SmallArray<Value*, kFewOperands> scalars(n_numbers);
    std::vector<Ref> owners;
    owners.reserve(n_numbers);
    for (size_t i = 0; i < n_numbers; ++i) {
      owners.emplace_back(scalar(dtype_from(dtype), nb::cast<double>(numbers[i])));
      scalars[i] = owners.back().v;
    }
    const Update update{p, scalars.data(), n_numbers};
    Uninterruptible all_parameters;
    std::optional<ProfiledFor> step;
    if (profiling) step.emplace(Phase::update);
    for (Py_ssize_t k = 0; k < n; ++k) {
      TensorObject* t = tensor_at(parameters.ptr(), k, "parameter");
      PyObject* state = PyList_GET_ITEM(states.ptr(), k);
      if (!PyList_Check(state)) fail(ErrorKind::value, "update", "the state of a parameter is a list of tensors");
      if (p.n_inputs != static_cast<int>(2 + PyList_GET_SIZE(state) + n_numbers) ||
          p.outputs.size() != 1 + static_cast<size_t>(PyList_GET_SIZE(state)))
        fail(ErrorKind::value, "update", "the program does not take this many states and numbers");
      // The gradient is kept alive over the run: writing the parameter may exchange its leaf.
      Ref gradient = Ref::share(gradient_of(current(t->tensor), gradients.ptr(), k));
      update.one(t, gradient.v, state);
    }
    return nb::none();
  });
}

}  // namespace

void init_optimizer(nb::module_& m) {
  m.def("update_in_place", &update_in_place, nb::arg("program"), nb::arg("parameters"), nb::arg("gradients").none(),
        nb::arg("states"), nb::arg("numbers"), nb::arg("dtype"));
}

}  // namespace wengert
