// The buffer protocol (PEP 3118), by which NumPy and others see a tensor's memory.
#include <string_view>

#include "leaving.h"
#include "tensor_parts.h"

namespace wengert {

namespace {

// Format strings. bfloat16 has none, so requests for a format are refused and NumPy falls back to __array__.
const char* const kFormats[kNumDTypes] = {"?", "b", "h", "i", "q", "B", "H", "I", "Q", "e", "H", "f", "d", "Zf", "Zd"};

// Whether the function that called NumPy satisfies a predicate on its code.
template <class F>
bool asked_by(F&& predicate) {
  PyFrameObject* frame = PyEval_GetFrame();
  if (!frame) return false;
  PyCodeObject* code = PyFrame_GetCode(frame);
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  const bool found = file && predicate(code, std::string_view(file));
  Py_DECREF(code);
  return found;
}

// `A @ x` with a scipy.sparse matrix converts x with NumPy before it tries x's own operator. Without a buffer, NumPy
// calls
// __array__, which raises a helpful error.
bool asked_by_sparse_product() {
  return asked_by([](const PyCodeObject* code, std::string_view file) {
    return PyUnicode_CompareWithASCIIString(code->co_name, "_matmul_dispatch") == 0 &&
           file.find("sparse") != std::string_view::npos;
  });
}

// A method of a scipy.stats distribution would compute a density of a leaf without a gradient. Again __array__ raises a
// helpful error.
bool asked_by_distribution() {
  return asked_by([](const PyCodeObject*, std::string_view file) {
    return file.ends_with("_distn_infrastructure.py") || file.ends_with("_multivariate.py");
  });
}

}  // namespace

int get_tensor_buffer(PyObject* self, Py_buffer* view, int flags) {
  if (!data_of(self, "numpy")) return -1;
  if (asked_by_sparse_product()) {
    PyErr_SetString(PyExc_BufferError, "products with sparse matrices are the tensor's");
    return -1;
  }
  Tensor& t = as_tensor(self)->tensor;
  if (tracked(current(t)) && asked_by_distribution()) {
    PyErr_SetString(PyExc_BufferError, "distributions of scipy.stats have no gradient");
    return -1;
  }
  if (!may_leave(self, current(t), Leaving::array, "numpy")) return -1;
  if (const DeviceId device = current(t)->device; device != kCpu) {
    PyErr_Format(python_hooks.errors[static_cast<int>(ErrorKind::device)],
                 "numpy: the tensor is on %s, which NumPy cannot read; use cpu() first", device_name(device).c_str());
    return -1;
  }
  try {
    separate_elements(t);
  } catch (...) {
    return raise_python(), -1;
  }
  const bool readonly = has_shared_elements(t);
  const Value* v = current(t);
  if (readonly && (flags & PyBUF_WRITABLE)) {
    PyErr_SetString(PyExc_BufferError,
                    "elements of the tensor share memory, so it cannot be written; clone() it first");
    return -1;
  }
  if (v->dtype == DType::BFloat16 && (flags & PyBUF_FORMAT)) {
    PyErr_SetString(PyExc_BufferError, "bfloat16 has no buffer format; use numpy(), which gives ml_dtypes.bfloat16");
    return -1;
  }
  if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !v->contiguous) {
    PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
    return -1;
  }
  Py_ssize_t* room = static_cast<Py_ssize_t*>(PyMem_Malloc(sizeof(Py_ssize_t) * 2 * kMaxRank));
  if (!room) return PyErr_NoMemory(), -1;
  int64_t element = size_of(v->dtype);
  for (int i = 0; i < v->ndim; ++i) {
    room[i] = v->shape[i];
    // The stride of an axis of one element is never used and may be arbitrarily large.
    room[kMaxRank + i] = v->shape[i] > 1 ? v->strides[i] * element : element;
  }
  if (!as_tensor(self)->look) {
    before_export(v->buffer);
    v->buffer->pinned = true;  // from now on others may read and write it
  }
  view->obj = Py_NewRef(self);
  view->buf = v->data;
  view->len = v->size * element;
  view->readonly = readonly;
  view->itemsize = element;
  view->format = const_cast<char*>((flags & PyBUF_FORMAT) ? kFormats[static_cast<int>(v->dtype)] : nullptr);
  view->ndim = v->ndim;
  view->shape = room;
  view->strides = room + kMaxRank;
  view->suboffsets = nullptr;
  view->internal = room;
  return 0;
}

void release_tensor_buffer(PyObject*, Py_buffer* view) { PyMem_Free(view->internal); }

}  // namespace wengert
