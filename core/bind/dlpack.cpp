// Memory shared with other libraries without a copy: DLPack both ways, and the CUDA array interface.
#include "../dlpack.h"

#include <algorithm>
#include <cstring>

#include "../replay.h"
#include "gpu.h"
#include "leaving.h"
#include "program.h"
#include "tensor_parts.h"

namespace wengert {

namespace {

constexpr const char *kUnversionedName = "dltensor", *kVersionedName = "dltensor_versioned";
constexpr const char *kUnversionedUsed = "used_dltensor", *kVersionedUsed = "used_dltensor_versioned";

dlpack::ElementType element_type(DType t) {
  const auto bits = static_cast<uint8_t>(8 * size_of(t));
  if (t == DType::Bool) return {dlpack::kBool, bits, 1};
  if (t == DType::BFloat16) return {dlpack::kBfloat, bits, 1};
  switch (kDTypeInfo[static_cast<int>(t)].kind) {
    case 'i': return {dlpack::kInt, bits, 1};
    case 'u': return {dlpack::kUnsigned, bits, 1};
    case 'c': return {dlpack::kComplex, bits, 1};
    default: return {dlpack::kFloat, bits, 1};
  }
}

DType dtype_of(dlpack::ElementType type) {
  for (int t = 0; t < kNumDTypes; ++t) {
    const dlpack::ElementType known = element_type(static_cast<DType>(t));
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return static_cast<DType>(t);
  }
  fail(ErrorKind::dtype, "from_dlpack",
       "the array has elements of DLPack type " + std::to_string(type.code) + " with " + std::to_string(type.bits) +
           " bits and " + std::to_string(type.lanes) +
           " lane(s), for which there is no dtype; convert it to another dtype first");
}

dlpack::Place place_of(const Value* v) {
  if (v->device == kCpu) return {dlpack::kHost, 0};
  if (const auto* gpu = as_gpu(v->device)) return {dlpack::kCuda, gpu->ordinal};
  fail(ErrorKind::device, "__dlpack__",
       "the tensor is on " + device_name(v->device) + ", which other libraries do not know; use cpu() first");
}

Value* data_of_tensor(nb::handle tensor, const char* what) {
  if (!is_tensor(tensor.ptr())) {
    PyErr_Format(PyExc_TypeError, "%s: expected a tensor, got %s", what, Py_TYPE(tensor.ptr())->tp_name);
    throw nb::python_error();
  }
  Value* v = data_of(tensor.ptr(), what);
  if (!v) throw nb::python_error();
  return v;
}

// The value of a plain tensor whose memory others may read and write from now on.
Value* shared_value(nb::handle tensor, const char* what) {
  Value* v = data_of_tensor(tensor, what);
  if (!may_leave(tensor.ptr(), v, Leaving::array, what)) throw nb::python_error();
  separate_elements(as_tensor(tensor.ptr())->tensor);
  v = current(as_tensor(tensor.ptr())->tensor);
  before_export(v->buffer);
  v->buffer->pinned = true;
  if (cuda::CudaDevice* gpu = as_gpu(v->device)) gpu->note_outside(v->buffer);
  return v;
}

// -------------------------------------------------------------------------------------------------------------- export

// What one capsule holds: the buffer, and the numbers that it points to.
struct Export {
  Buffer* buffer;
  int64_t shape[kMaxRank], strides[kMaxRank];
  union {
    dlpack::Unversioned unversioned;
    dlpack::Versioned versioned;
  };
};

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

// Consumers may call this on any thread, with the GIL or without, and while Python shuts down: then nobody needs the
// memory any more.
void drop_export(Export* made) {
  if (!Py_IsInitialized() || (is_finalizing() && !PyGILState_Check())) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  release(made->buffer);
  delete made;
  PyGILState_Release(state);
}

template <class Managed>
void drop_managed(Managed* managed) {
  drop_export(static_cast<Export*>(managed->owner));
}

// A capsule that nobody took owns what it holds.
template <class Managed>
void drop_capsule(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->drop(managed);
}

void describe(dlpack::Array& array, Export& made, const Value* v) {
  for (int i = 0; i < v->ndim; ++i) {
    made.shape[i] = v->shape[i];
    made.strides[i] = v->strides[i];
  }
  array = {v->data, place_of(v), v->ndim, element_type(v->dtype), made.shape, made.strides, 0};
}

nb::object capsule_of(const Value* v, bool versioned, bool copied) {
  auto made = std::make_unique<Export>();
  made->buffer = v->buffer;
  void* managed = nullptr;
  if (versioned) {
    made->versioned = {dlpack::kMajor, dlpack::kMinor, made.get(), drop_managed, copied ? dlpack::kCopied : 0, {}};
    describe(made->versioned.array, *made, v);
    managed = &made->versioned;
  } else {
    made->unversioned = {{}, made.get(), drop_managed};
    describe(made->unversioned.array, *made, v);
    managed = &made->unversioned;
  }
  const PyCapsule_Destructor drop = versioned
                                        ? [](PyObject* c) { drop_capsule<dlpack::Versioned>(c, kVersionedName); }
                                        : [](PyObject* c) { drop_capsule<dlpack::Unversioned>(c, kUnversionedName); };
  PyObject* capsule = PyCapsule_New(managed, versioned ? kVersionedName : kUnversionedName, drop);
  if (!capsule) throw nb::python_error();
  retain(v->buffer);
  made.release();
  return nb::steal(capsule);
}

// `stream`: the consumer's, whose work will wait for ours; -1: it takes care of the order itself.
nb::object to_dlpack(nb::handle tensor, bool versioned, bool copied, int64_t stream) {
  return guarded([&] {
    const Value* v = shared_value(tensor, "dlpack");
    cuda::CudaDevice* gpu = as_gpu(v->device);
    if (gpu && stream != -1) gpu->order(gpu->stream(), reinterpret_cast<cuda::Stream>(stream));
    return capsule_of(v, versioned, copied);
  });
}

nb::tuple dlpack_device(nb::handle tensor) {
  return guarded([&] {
    const Value* v = data_of_tensor(tensor, "dlpack");
    const dlpack::Place place = place_of(v);
    return nb::make_tuple(static_cast<int>(place.type), place.number);
  });
}

// -------------------------------------------------------------------------------------------------------------- import

// A value on foreign memory; `release(owner)` is called when it is not needed any more, and at once if this throws.
// Strides are in elements, or null.
Ref value_on(void* data, DType dtype, int ndim, const int64_t* shape, const int64_t* strides, DeviceId device,
             void* owner, void (*release)(void*)) {
  Dims dims;
  int64_t first = 0, last = 0, size = 1;
  int64_t packed[kMaxRank];
  try {
    if (ndim > kMaxRank) fail_rank();
    for (int i = ndim - 1; i >= 0; size *= shape[i--]) packed[i] = size;
    if (!strides) strides = packed;
    for (int i = 0; i < ndim; ++i) {
      dims.push(shape[i]);
      if (shape[i] > 1) (strides[i] < 0 ? first : last) += strides[i] * (shape[i] - 1);
    }
  } catch (...) {
    release(owner);
    throw;
  }
  const int64_t element = size_of(dtype);
  alignas(16) static char nothing[16];
  if (size == 0) data = nothing;
  char* start = static_cast<char*>(data) + (size ? first * element : 0);
  const int64_t bytes = size ? (last - first + 1) * element : 0;
  const Ref whole(new_value(0));
  whole->buffer = adopt_foreign(start, static_cast<size_t>(bytes), owner, release);
  whole->data = static_cast<char*>(data);
  whole->dtype = dtype;
  whole->device = device;
  whole->size = 1;
  whole->contiguous = true;
  return Ref(view(whole.v, dims, strides, 0));
}

// The same value with its elements as bytes, along a last axis.
Ref bytes_of(void* data, DType dtype, int ndim, const int64_t* shape, const int64_t* strides, DeviceId device,
             void* owner, void (*release)(void*)) {
  const int64_t element = size_of(dtype);
  int64_t axes[kMaxRank + 1], steps[kMaxRank + 1], packed = element;
  for (int i = ndim - 1; i >= 0; packed *= shape[i--]) {
    axes[i] = shape[i];
    steps[i] = strides ? strides[i] * element : packed;
  }
  axes[ndim] = element;
  steps[ndim] = 1;
  return value_on(data, DType::UInt8, ndim + 1, axes, steps, device, owner, release);
}

// Memory that does not lie as kernels expect it, copied.
Ref aligned_copy(const Value* bytes, DType dtype) {
  Dims dims = bytes->dims();
  --dims.n;
  Ref copy(empty(dtype, dims, Category::activation, bytes->device));
  Dims axes = bytes->dims();
  int64_t steps[kMaxRank + 1];
  for (int i = 0; i < copy->ndim; ++i) steps[i] = copy->strides[i] * size_of(dtype);
  steps[copy->ndim] = 1;
  const Ref all(alias(copy.v));
  all->dtype = DType::UInt8;
  const Ref target(view(all.v, axes, steps, 0));
  copy_into(bytes, target.v);
  return copy;
}

// Other bytes than 0 and 1 are true to other libraries, and would count here.
bool has_other_bytes(const Value* bools) {
  if (bools->dtype != DType::Bool || bools->device != kCpu) return false;
  const Ref packed(contiguous(bools));
  return std::any_of(packed->data, packed->data + packed->size, [](char c) { return c & ~1; });
}

Ref with_ones(const Value* bools) {
  Ref copy(empty_like(bools, DType::Bool));
  copy_into(bools, copy.v);
  for (int64_t i = 0; i < copy->size; ++i) copy->data[i] = copy->data[i] != 0;
  return copy;
}

struct Imported {
  dlpack::Array array;
  bool read_only;
  void* owner;
  void (*drop)(void*);
};

// What a capsule holds, taken from it: from here on it is ours to drop.
Imported take(nb::handle capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), kVersionedName)) {
    auto* m = static_cast<dlpack::Versioned*>(PyCapsule_GetPointer(capsule.ptr(), kVersionedName));
    if (m->major != dlpack::kMajor)
      fail(ErrorKind::value, "from_dlpack",
           "the array is described by version " + std::to_string(m->major) + "." + std::to_string(m->minor) +
               " of DLPack; version 1 is understood");
    PyCapsule_SetName(capsule.ptr(), kVersionedUsed);
    return {m->array, (m->flags & dlpack::kReadOnly) != 0, m, [](void* owner) {
              auto* managed = static_cast<dlpack::Versioned*>(owner);
              if (managed->drop) managed->drop(managed);
            }};
  }
  if (!PyCapsule_IsValid(capsule.ptr(), kUnversionedName)) {
    PyErr_SetString(PyExc_TypeError, "from_dlpack: __dlpack__ gave no capsule, or one that was used before");
    throw nb::python_error();
  }
  auto* m = static_cast<dlpack::Unversioned*>(PyCapsule_GetPointer(capsule.ptr(), kUnversionedName));
  PyCapsule_SetName(capsule.ptr(), kUnversionedUsed);
  return {m->array, false, m, [](void* owner) {
            auto* managed = static_cast<dlpack::Unversioned*>(owner);
            if (managed->drop) managed->drop(managed);
          }};
}

// Keeps foreign memory of a GPU until the work on it has been done.
struct OnGpu {
  cuda::CudaDevice* gpu;
  void* owner;
  void (*drop)(void*);
  static void release(void* p) {
    const auto* kept = static_cast<OnGpu*>(p);
    kept->gpu->release_later(kept->owner, kept->drop);
    delete kept;
  }
};

// The device of the array. Memory of the host that a GPU can reach is the CPU's here.
DeviceId device_of(dlpack::Place place) {
  if (place.type == dlpack::kHost || place.type == dlpack::kCudaHost) return kCpu;
  if (place.type == dlpack::kCuda || place.type == dlpack::kCudaManaged) return cuda::open_device(place.number);
  fail(ErrorKind::device, "from_dlpack",
       "the array is on a device of DLPack type " + std::to_string(place.type) +
           ", which is not supported; move it to the CPU or to an NVIDIA GPU first");
}

// A tensor on the memory of a capsule, and whether it had to be copied.
nb::tuple from_dlpack(nb::handle capsule) {
  return guarded([&] {
    Imported in = take(capsule);
    DeviceId device = kCpu;
    DType dtype = DType::Bool;
    try {
      device = device_of(in.array.place);
      dtype = dtype_of(in.array.type);
      if (in.array.ndim > kMaxRank) fail_rank();
      if (cuda::CudaDevice* gpu = as_gpu(device)) {
        in.owner = new OnGpu{gpu, in.owner, in.drop};
        in.drop = OnGpu::release;
      }
    } catch (...) {
      in.drop(in.owner);
      throw;
    }
    const dlpack::Array& a = in.array;
    char* data = static_cast<char*>(a.data) + a.byte_offset;
    const bool aligned = reinterpret_cast<uintptr_t>(data) % static_cast<size_t>(size_of(dtype)) == 0;
    Ref v = (aligned ? value_on : bytes_of)(data, dtype, a.ndim, a.shape, a.strides, device, in.owner, in.drop);
    const bool odd = aligned && has_other_bytes(v.v);
    if (!aligned) v = aligned_copy(v.v, dtype);
    if (odd) v = with_ones(v.v);
    if (in.read_only && aligned && !odd) {
      Ref copy(empty_like(v.v, v->dtype));
      copy_into(v.v, copy.v);
      v = std::move(copy);
    }
    const bool copied = !aligned || odd || in.read_only;
    return nb::make_tuple(to_python(v.take()), copied);
  });
}

// ------------------------------------------------------------------------------------------------ CUDA array interface

// (address, shape, strides in bytes or None, element size, kind, handle of the stream), for `__cuda_array_interface__`.
nb::object cuda_array(nb::handle tensor) {
  return guarded([&]() -> nb::object {
    const Value* v = data_of_tensor(tensor, "__cuda_array_interface__");
    if (!as_gpu(v->device)) return nb::none();
    v = shared_value(tensor, "__cuda_array_interface__");
    nb::list shape, strides;
    for (int i = 0; i < v->ndim; ++i) {
      shape.append(v->shape[i]);
      strides.append(v->strides[i] * size_of(v->dtype));
    }
    return nb::make_tuple(reinterpret_cast<uintptr_t>(v->size ? v->data : nullptr), nb::tuple(shape),
                          v->contiguous ? nb::object(nb::none()) : nb::object(nb::tuple(strides)),
                          reinterpret_cast<uintptr_t>(as_gpu(v->device)->stream()));
  });
}

// A tensor on a GPU's memory that `owner` keeps. `strides`: in elements, or empty. `stream`: what our work waits for;
// 0: nothing.
nb::object from_cuda_array(nb::handle owner, uintptr_t address, int dtype, const nb::list& shape,
                           const nb::list& strides, int64_t stream) {
  return guarded([&] {
    int ordinal = 0;
    if (address) {
      constexpr int kOrdinal = 9;
      cuda::checked(cuda::driver().cuPointerGetAttribute(&ordinal, kOrdinal, address), "cuPointerGetAttribute");
    }
    const DeviceId device = cuda::open_device(ordinal);
    cuda::CudaDevice* gpu = as_gpu(device);
    if (stream) gpu->order(reinterpret_cast<cuda::Stream>(stream), gpu->stream());
    std::vector<int64_t> axes, steps;
    for (nb::handle n : shape) axes.push_back(nb::cast<int64_t>(n));
    for (nb::handle n : strides) steps.push_back(nb::cast<int64_t>(n));
    auto* kept = new OnGpu{gpu, owner.inc_ref().ptr(), [](void* object) { Py_DECREF(static_cast<PyObject*>(object)); }};
    Ref v = value_on(reinterpret_cast<void*>(address), dtype_from(dtype), static_cast<int>(axes.size()), axes.data(),
                     steps.empty() ? nullptr : steps.data(), device, kept, OnGpu::release);
    return to_python(v.take());
  });
}

}  // namespace

void init_dlpack(nb::module_& m) {
  m.def("to_dlpack", &to_dlpack);
  m.def("dlpack_device", &dlpack_device);
  m.def("from_dlpack", &from_dlpack);
  m.def("cuda_array", &cuda_array);
  m.def("from_cuda_array", &from_cuda_array);
}

}  // namespace wengert
