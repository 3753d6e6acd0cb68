#include "subscript.h"

#include "dual.h"

namespace wengert {

namespace {

constexpr Py_ssize_t kLongest = Py_ssize_t{1} << 61;  // longer than any axis

// What a basic key selects: a slice, and its shape after dropping integer axes and adding new ones.
struct BasicKey {
  Attrs slice;
  Attrs shape;
  bool reshaped = false;

  explicit BasicKey(const Op& op) {
    for (const auto& attr : op.attrs) slice.add(attr.kind);
    shape.add(Attr::Kind::sizes);
  }

  void add(int64_t start, int64_t size, int64_t step) {
    slice.v[0].dims.push(start);
    slice.v[1].dims.push(size);
    slice.v[2].dims.push(step);
  }
  void add_axis(int64_t size) { shape.v[0].dims.push(size); }
};

bool is_basic(PyObject* entry) {
  return PyLong_CheckExact(entry) || PySlice_Check(entry) || entry == Py_None || entry == Py_Ellipsis;
}

bool is_bound(PyObject* o) { return o == Py_None || PyLong_CheckExact(o); }

bool add_slice(BasicKey& p, PyObject* entry, int64_t n) {
  const auto* s = reinterpret_cast<PySliceObject*>(entry);
  if (!is_bound(s->start) || !is_bound(s->stop) || !is_bound(s->step)) return false;
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(entry, &start, &stop, &step)) return PyErr_Clear(), false;
  if (step > kLongest || step < -kLongest) return false;
  const Py_ssize_t size = PySlice_AdjustIndices(n, &start, &stop, step);
  p.add(size ? start : 0, size, step);
  p.add_axis(size);
  return true;
}

bool add_integer(BasicKey& p, PyObject* entry, int64_t n) {
  int overflow;
  int64_t i = PyLong_AsLongLongAndOverflow(entry, &overflow);
  if (overflow || i < -n || i >= n) return false;
  p.add(i < 0 ? i + n : i, 1, 1);
  p.reshaped = true;
  return true;
}

// Reads the entries against a shape; false if they do not fit it.
bool read(BasicKey& p, PyObject* const* entries, Py_ssize_t n_entries, const Value* x) {
  int used = 0, dots = 0;
  for (Py_ssize_t k = 0; k < n_entries; ++k) {
    if (!is_basic(entries[k])) return false;
    dots += entries[k] == Py_Ellipsis;
    used += entries[k] != Py_None && entries[k] != Py_Ellipsis;
  }
  const Py_ssize_t added = n_entries - used - dots;
  if (dots > 1 || used > x->ndim || x->ndim + added > kMaxRank) return false;
  int axis = 0;
  auto whole = [&](int until) {
    for (; axis < until; ++axis) {
      p.add(0, x->shape[axis], 1);
      p.add_axis(x->shape[axis]);
    }
  };
  for (Py_ssize_t k = 0; k < n_entries; ++k) {
    PyObject* e = entries[k];
    if (e == Py_None) {
      p.add_axis(1);
      p.reshaped = true;
    } else if (e == Py_Ellipsis) {
      whole(axis + x->ndim - used);
    } else {
      const int64_t n = x->shape[axis++];
      if (!(PySlice_Check(e) ? add_slice(p, e, n) : add_integer(p, e, n))) return false;
    }
  }
  whole(x->ndim);
  return true;
}

}  // namespace

PyObject* try_subscript(PyObject* x, PyObject* key) {
  static const Op& slice = *find_op("slice");
  static const Op& reshape = *find_op("reshape");
  const bool several = PyTuple_CheckExact(key);
  if (thread_state.capturing || !(several || is_basic(key))) return nullptr;
  const Value* v = bottom_value(x);
  if (!v) return nullptr;
  BasicKey read_key(slice);
  const bool fits = several ? read(read_key, reinterpret_cast<PyTupleObject*>(key)->ob_item, PyTuple_GET_SIZE(key), v)
                            : read(read_key, &key, 1, v);
  if (!fits) return nullptr;
  PyObject* part = try_op(slice, &x, 1, read_key.slice);
  if (!part || !read_key.reshaped) return part;
  PyObject* y = nullptr;
  try {
    y = try_op(reshape, &part, 1, read_key.shape);
  } catch (...) {
    Py_DECREF(part);
    throw;
  }
  Py_DECREF(part);
  return y;
}

}  // namespace wengert
