// The step of an optimizer, on lists of tensors.
#include <nanobind/stl/shared_ptr.h>

#include "../small_array.h"
#include "../update.h"
#include "program.h"

namespace wengert {

namespace {

constexpr size_t kFewNumbers = 24;

// The tensor at a position of a list; throws a TypeError that names the list.
Tensor* tensor_at(PyObject* list, Py_ssize_t k, const char* what) {
  PyObject* o = PyList_GET_ITEM(list, k);
  if (!is_tensor(o) || !as_tensor(o)->plain) {
    PyErr_Format(PyExc_TypeError, "update: %s %zd must be a plain tensor, got %s", what, k, Py_TYPE(o)->tp_name);
    throw nb::python_error();
  }
  return &as_tensor(o)->tensor;
}

Tensor* gradient_at(PyObject* gradients, Py_ssize_t k) {
  return gradients == Py_None ? nullptr : tensor_at(gradients, k, "gradient");
}

// The states of all parameters, concatenated.
std::vector<Tensor*> states_from(PyObject* states) {
  std::vector<Tensor*> found;
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(states); ++k) {
    PyObject* state = PyList_GET_ITEM(states, k);
    if (!PyList_Check(state)) fail(ErrorKind::value, "update", "the state of a parameter is a list of tensors");
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(state); ++i) found.push_back(tensor_at(state, i, "state"));
  }
  return found;
}

// update_in_place(program, parameters, gradients, states, numbers, dtype, counter). If gradients is None, those of the
// leaves are used. Returns None, or the positions of parameters without a gradient; then nothing has changed.
// `counter.steps` goes up with the update, unless counter is None: Python could be interrupted between the two.
nb::object update_in_place(const Program& p, const nb::list& parameters, nb::handle gradients, const nb::list& states,
                           const nb::tuple& numbers, int dtype, nb::handle counter) {
  return guarded([&]() -> nb::object {
    const Py_ssize_t n = PyList_GET_SIZE(parameters.ptr());
    if (PyList_GET_SIZE(states.ptr()) != n ||
        (!gradients.is_none() && (!PyList_Check(gradients.ptr()) || PyList_GET_SIZE(gradients.ptr()) != n)))
      fail(ErrorKind::value, "update", "parameters, gradients and states differ in number");
    const std::vector<Tensor*> state = states_from(states.ptr());
    std::vector<Updated> all;
    all.reserve(static_cast<size_t>(n));
    Tensor* const* next = state.data();
    nb::list missing;
    for (Py_ssize_t k = 0; k < n; ++k) {
      const auto n_state = static_cast<size_t>(PyList_GET_SIZE(PyList_GET_ITEM(states.ptr(), k)));
      const bool given = gradients.is_none() || PyList_GET_ITEM(gradients.ptr(), k) != Py_None;
      if (!given) missing.append(k);
      all.push_back({tensor_at(parameters.ptr(), k, "parameter"), given ? gradient_at(gradients.ptr(), k) : nullptr,
                     next, n_state});
      next += n_state;
    }
    if (missing.size()) return missing;
    SmallArray<Value*, kFewNumbers> scalars(numbers.size());
    std::vector<Ref> owners;
    owners.reserve(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      owners.emplace_back(scalar(dtype_from(dtype), nb::cast<double>(numbers[i])));
      scalars[i] = owners.back().v;
    }
    for (size_t k : update(p, all, scalars.data(), numbers.size())) missing.append(k);
    if (missing.size()) return missing;
    if (!counter.is_none()) {
      static PyObject* const steps = PyUnicode_InternFromString("steps");
      counter.attr(nb::handle(steps)) = counter.attr(nb::handle(steps)) + nb::int_(1);
    }
    return nb::none();
  });
}

}  // namespace

void init_optimizer(nb::module_& m) {
  m.def("update_in_place", &update_in_place, nb::arg("program"), nb::arg("parameters"), nb::arg("gradients").none(),
        nb::arg("states"), nb::arg("numbers"), nb::arg("dtype"), nb::arg("counter").none());
}

}  // namespace wengert
