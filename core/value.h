// What the tape refers to: a strided view of a buffer, and the instruction that produced it.
#pragma once
#include "device.h"
#include "shape.h"

namespace wengert {

struct Node;
struct Tensor;
void release(Node* n);  // tape.cpp
void retain(Node* n);

// Shapes and strides of up to this many axes are stored inline, so that a value fits two cache lines.
inline constexpr int kFewAxes = 4;

struct alignas(64) Value {
  uint32_t refs;
  DType dtype;
  uint8_t ndim;
  bool contiguous;
  DeviceId device;
  uint32_t output;  // which output of `node` this is
  uint32_t made;    // number of a call's result (calls.h) or of a path end (path_ends.h); 0: neither
  Buffer* buffer;
  char* data;
  int64_t size;
  Node* node;  // the gradient edge: the producer, or the leaf itself; null if nothing is tracked
  int64_t* shape;
  int64_t* strides;  // in elements
  int64_t axes[2 * kFewAxes];

  static constexpr uint32_t kLiteral = UINT32_MAX;       // `made` of a literal, or of a number drawn by the call
  static constexpr uint32_t kFirstSpecial = 0xF0000000;  // numbers from here on do not denote results of calls

  int64_t bytes() const { return size * size_of(dtype); }
  Dims dims() const {
    Dims d;
    d.n = ndim;
    for (int i = 0; i < ndim; ++i) d[i] = shape[i];
    return d;
  }
  Type type() const { return {dtype, dims(), device}; }
};

extern FreeList<Value> free_values;
void make_room_for_axes(Value* v);   // if there are more than kFewAxes
inline Value* new_value(int ndim) {  // sets only the fields below
  Value* v = static_cast<Value*>(free_values.take());
  v->refs = 1;
  v->ndim = static_cast<uint8_t>(ndim);
  v->device = kCpu;
  v->node = nullptr;
  v->output = v->made = 0;
  v->shape = v->axes;
  v->strides = v->axes + kFewAxes;
  if (ndim > kFewAxes) [[unlikely]]
    make_room_for_axes(v);
  return v;
}
inline void destroy(Value* v) {
  release(v->buffer);
  if (v->node) release(v->node);
  if (v->shape != v->axes) [[unlikely]]
    delete[] v->shape;
  free_values.give(v);
}
inline void retain(Value* v) { ++v->refs; }
inline void release(Value* v) {
  if (--v->refs == 0) destroy(v);
}

// An alias group: a base tensor and its views, or `.grad` and the tensors handed out for it. `base` is the current
// value of the whole; `version` counts writes.
struct Alias {
  uint32_t refs;
  uint32_t version;
  Value* base;
  Tensor* names = nullptr;  // first of the member tensors
  bool repacked = false;    // the base's strides changed, so the positions of views in it are unknown
};
inline void retain(Alias* a) { ++a->refs; }
void release(Alias* a);

// An owning pointer, for code that may throw.
struct Ref {
  Value* v = nullptr;
  Ref() = default;
  explicit Ref(Value* owned) : v(owned) {}
  Ref(Ref&& o) noexcept : v(o.v) { o.v = nullptr; }
  Ref& operator=(Ref&& o) noexcept {
    std::swap(v, o.v);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() {
    if (v) release(v);
  }
  static Ref share(Value* v) {
    retain(v);
    return Ref(v);
  }
  Value* take() {
    Value* t = v;
    v = nullptr;
    return t;
  }
  Value* operator->() const { return v; }
  explicit operator bool() const { return v != nullptr; }
};

// A fresh contiguous value, contents undefined. Throws std::bad_alloc.
Value* empty(DType dtype, const Dims& shape, Category category = Category::activation, DeviceId device = kCpu);
Value* empty_like(const Value* v, DType dtype);  // on the same device
// The same on the host, in memory that the device copies to and from in the background, where it has such.
Value* empty_on_host(DType dtype, const Dims& shape, DeviceId device);
Value* zeros(const Type& type);
Value* scalar(DType dtype, double x);  // on the host, as are numbers on every device
Value* scalar_int(DType dtype, int64_t x);
// Another view of v's buffer, `offset` elements further. Not tracked.
Value* view(const Value* v, const Dims& shape, const int64_t* strides, int64_t offset);
Value* uniform_like(const Value* x, DType dtype);   // one element (unset) with x's shape
Value* alias(const Value* v);                       // the same view and the same result of a call; not tracked
Value* contiguous(const Value* v);                  // v itself, or a packed copy
Value* on_device(const Value* v, DeviceId device);  // v itself, or a packed copy there

void set_scalar(DType dtype, void* out, double x);
void set_scalar_int(DType dtype, void* out, int64_t x);
double get_scalar(DType dtype, const void* in);
bool is_contiguous(int ndim, const int64_t* shape, const int64_t* strides);
inline bool same_shape(const Value* a, const Value* b) {
  if (a->ndim != b->ndim) return false;
  for (int i = 0; i < a->ndim; ++i)
    if (a->shape[i] != b->shape[i]) return false;
  return true;
}
// Whether two elements may share memory. Conservative: also true for interleaved strides, where an exact test would
// need a search.
bool has_overlap(int ndim, const int64_t* shape, const int64_t* strides);
// Whether the address ranges of two values overlap. Comparing buffers is not enough: two of them may wrap the same
// array of another library.
bool share_memory(const Value* a, const Value* b);
// One element, seen through strides of zero.
bool is_uniform(const Value* v);

// dst[...] = src[...] for equal shapes; dtypes and devices may differ.
void copy_into(const Value* src, Value* dst);
// v[...] = x, for a packed value.
void fill_value(Value* v, double x);

}  // namespace wengert
