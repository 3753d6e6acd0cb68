#include <cblas.h>
#include <nanobind/stl/string.h>
#include <unistd.h>

#include "../kernels/gather.h"
#include "../kernels/gemm.h"
#include "../ledger.h"
#include "../out_of_memory.h"
#include "../threads.h"
#include "calls.h"
#include "derived.h"
#include "dual.h"
#include "hooks.h"
#include "leaving.h"
#include "ops.h"
#include "shortcut.h"
#include "sizes.h"
#include "subscript.h"

namespace wengert {

namespace {

// Names the lines that keep the most for backward, if any, because then a memory budget or checkpoints help.
void raise_memory_error(const char* what, DeviceId device = kCpu) {
  std::string message = what;
  try {
    const std::string lines = describe_largest_lines(device);
    if (!lines.empty())
      message += lines + (device == kCpu ? ". wengert.memory_budget(mb=...) drops such values when memory is short and "
                                           "computes them again"
                                         : ". wengert.checkpoint drops such values and computes them again");
  } catch (const std::bad_alloc&) {
    message = what;  // out of memory even for the message
  }
  PyErr_SetString(PyExc_MemoryError, message.c_str());
}

}  // namespace

PyObject* raise_python() {
  try {
    throw;
  } catch (const Error& e) {
    if (e.kind != ErrorKind::python)
      PyErr_SetString(python_hooks.errors[static_cast<int>(e.kind)], e.what());
    else if (!PyErr_Occurred())
      PyErr_SetString(PyExc_SystemError, "an error was reported without an exception");
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const OutOfMemory& e) {
    raise_memory_error(e.what(), e.device);
  } catch (const std::bad_alloc&) {
    raise_memory_error("out of memory: the tensor does not fit; live tensors are unharmed");
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return nullptr;
}

namespace {

// Takes the GIL back. While the interpreter shuts down, Python unwinds the stack of daemon threads that ask for the
// GIL, which destructors do not survive; such a thread waits here for the end of the process instead.
void take_gil(void* token) {
  try {
    PyEval_RestoreThread(static_cast<PyThreadState*>(token));
  } catch (...) {
    for (;;) pause();
  }
}

// Shares the memory of an object through the buffer protocol. `dtype` is given because formats cannot express every
// dtype.
nb::object from_buffer(nb::handle object, int dtype, bool writable) {
  return guarded([&] {
    auto* view = new Py_buffer;
    if (PyObject_GetBuffer(object.ptr(), view, PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0)) != 0) {
      delete view;
      throw Error(ErrorKind::python, "");
    }
    auto drop = [](void* owner) {
      auto* v = static_cast<Py_buffer*>(owner);
      PyBuffer_Release(v);
      delete v;
    };
    DType t = DType::Bool;
    try {
      t = dtype_from(dtype);
      if (view->ndim > kMaxRank) fail_rank();
      if (view->itemsize != size_of(t))
        fail(ErrorKind::dtype, "asarray",
             "elements of " + std::to_string(view->itemsize) + " bytes cannot be read as " + name_of(t));
    } catch (...) {
      drop(view);
      throw;
    }
    Buffer* b = adopt_foreign(view->buf, static_cast<size_t>(view->len), view, drop);
    Value* v = new_value(view->ndim);
    v->dtype = t;
    v->buffer = b;
    v->data = static_cast<char*>(view->buf);
    v->size = 1;
    for (int i = 0; i < view->ndim; ++i) {
      v->shape[i] = view->shape[i];
      v->strides[i] = view->strides[i] / size_of(t);
      v->size *= view->shape[i];
    }
    v->contiguous = is_contiguous(v->ndim, v->shape, v->strides);
    return to_python(v);
  });
}

// A row of Python numbers, as float32 or float64.
nb::object row_of_numbers(nb::handle values, int dtype) {
  return guarded([&] {
    const nb::object items = nb::steal(PySequence_Fast(values.ptr(), "numbers must be a sequence"));
    if (!items.is_valid()) throw Error(ErrorKind::python, "");
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(items.ptr());
    Ref row(empty(dtype_from(dtype), Dims{n}));
    for (Py_ssize_t i = 0; i < n; ++i) {
      const double x = PyFloat_AsDouble(PySequence_Fast_GET_ITEM(items.ptr(), i));
      if (x == -1.0 && PyErr_Occurred()) throw Error(ErrorKind::python, "");
      set_scalar(row->dtype, row->data + i * size_of(row->dtype), x);
    }
    return to_python(row.take());
  });
}

nb::object copy_tensor(nb::handle tensor) {
  return guarded([&] {
    Value* v = value_from(tensor, "clone");
    Ref copy(empty_like(v, v->dtype));
    copy_into(v, copy.v);
    copy->made = v->made;
    return to_python(copy.take());
  });
}

// The number of nonzero elements decides the shape, so the host has to know it.
Value* nonzero_of(const Value* v) {
  const Ref host(on_device(v, kCpu)), indices(nonzero_indices(host.v));
  return on_device(indices.v, v->device);
}

nb::object nonzero(nb::handle tensor) {
  return guarded([&] { return to_python(nonzero_of(value_from(tensor, "nonzero"))); });
}

// One index for several into axes of these sizes. None for what Python handles: other arrays than plain ones of one
// shape on the CPU, sizes that are no numbers, indices out of range (it names them).
nb::object linear_index_of(nb::tuple indices, nb::tuple sizes) {
  return guarded([&]() -> nb::object {
    std::vector<const Value*> values;
    std::vector<int64_t> lengths;
    for (size_t k = 0; k < indices.size(); ++k) {
      PyObject *index = indices[k].ptr(), *n = sizes[k].ptr();
      if (thread_state.capturing || !is_tensor(index) || !as_tensor(index)->plain || !PyLong_CheckExact(n))
        return nb::none();
      const Value* v = operand(as_tensor(index));
      if (v->device != kCpu || v->dtype != DType::Int64 || !same_shape(v, values.empty() ? v : values[0]))
        return nb::none();
      values.push_back(v);
      lengths.push_back(PyLong_AsLongLong(n));
    }
    Value* made = values.empty() ? nullptr : linear_index(values, lengths);
    return made ? to_python(made) : nb::none();
  });
}

void set_hooks(nb::dict hooks) {
  auto take = [&](const char* name) { return nb::object(hooks[name]).release().ptr(); };
  python_hooks.dispatch = take("dispatch");
  python_hooks.convert_operand = take("convert_operand");
  python_hooks.derive = take("derive");
  python_hooks.push = take("push");
  python_hooks.derive_again = take("derive_again");
  python_hooks.push_again = take("push_again");
  python_hooks.narrow = take("narrow");
  python_hooks.partial = take("partial");
  python_hooks.join = take("join");
  python_hooks.refuse_leaving = take("refuse_leaving");
}

void set_dtypes(nb::list dtypes) {
  for (int i = 0; i < kNumDTypes; ++i) python_hooks.dtypes[i] = nb::object(dtypes[i]).release().ptr();
}

void set_errors(nb::dict errors) {
  const char* names[] = {"shape",    "dtype",    "index",  "value", "range",  "gradient",
                         "consumed", "in_place", "linalg", "trace", "device", "budget"};
  for (size_t k = 0; k < std::size(names); ++k) python_hooks.errors[k] = nb::object(errors[names[k]]).release().ptr();
}

void init(nb::module_& m) {
  init_blas();
  kernels();
  register_ops();
  for (PyObject*& error : python_hooks.errors) error = PyExc_RuntimeError;
  waiting_hooks.enter = []() -> void* { return PyGILState_Check() ? PyEval_SaveThread() : nullptr; };
  waiting_hooks.leave = take_gil;
  waiting_hooks.interrupted = [] { return PyErr_CheckSignals() != 0; };
  if (init_tensor_type(m.ptr()) || init_dual_types(m.ptr()) || init_op_functions(m.ptr()) || init_shortcuts(m.ptr()))
    throw nb::python_error();
  init_sizes(m);
  init_ops(m);
  init_program(m);
  init_derived(m);
  init_passes(m);
  init_sparsity(m);
  init_tape(m);
  init_calls(m);
  init_hooks(m);
  init_memory(m);
  init_anomaly(m);
  init_lines(m);
  init_compiled(m);
  init_optimizer(m);
  init_profile(m);
  init_callback(m);
  init_device(m);
  init_cuda(m);
  init_streams(m);
  init_dlpack(m);
  init_generate(m);
  init_leaving(m);
  init_names(m);
  init_hook_cycles(m);
  init_transforms(m);
  init_autocast(m);
  m.def("from_buffer", &from_buffer);
  m.def("row_of_numbers", &row_of_numbers);
  m.def(
      "basic_part",
      [](nb::handle x, nb::handle key) -> nb::object {  // None for what Python handles
        PyObject* part = is_tensor(x.ptr()) ? try_subscript(x.ptr(), key.ptr()) : nullptr;
        return part ? nb::steal(part) : nb::none();
      },
      nb::arg(), nb::arg().none());
  m.def("copy", &copy_tensor);
  m.def("nonzero", &nonzero);
  m.def("linear_index", &linear_index_of);
  m.def("set_hooks", &set_hooks);
  m.def("convert_operand",
        [](nb::handle x) { return nb::steal(PyObject_CallOneArg(python_hooks.convert_operand, x.ptr())); });
  m.def("set_dtypes", &set_dtypes);
  m.def("set_errors", &set_errors);
  m.def("hide_lines", &hide_lines);
  m.def("num_threads", &num_threads);
  m.def("set_num_threads", &set_num_threads);
  m.def("instruction_set", [] { return kernels().instruction_set; });
  m.def("blas_kernels", [] { return scipy_openblas_get_corename(); });  // of the machine, or $OPENBLAS_CORETYPE
  nb::list names;
  for (const DTypeInfo& d : kDTypeInfo) names.append(nb::make_tuple(d.name, d.bytes, std::string(1, d.kind)));
  m.attr("dtype_table") = names;
}

}  // namespace
}  // namespace wengert

NB_MODULE(_core, m) {
  // Derivatives and ops live as long as the process; nanobind's leak report would list them at every exit.
  nanobind::set_leak_warnings(false);
  wengert::init(m);
}
