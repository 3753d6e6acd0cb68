// Copies: between layouts and dtypes on a GPU, to and from the host, from GPU to GPU.
#include <algorithm>
#include <cstring>
#include <utility>

#include "device.h"
#include "graph.h"
#include "host_memory.h"
#include "tasks.h"

namespace wengert::cuda {

namespace {

Address address_of(const void* p) { return reinterpret_cast<Address>(p); }

}  // namespace

namespace {

// Axes that both pass through as one are joined, and those of one element left out.
struct JoinedAxes {
  std::vector<int64_t> shape, to, from;
  JoinedAxes(const Value* source, const Value* target) {
    for (int a = 0; a < source->ndim; ++a) {
      if (source->shape[a] == 1) continue;
      const int64_t n = source->shape[a];
      if (!shape.empty() && to.back() == target->strides[a] * n && from.back() == source->strides[a] * n) {
        shape.back() *= n;
        to.back() = target->strides[a];
        from.back() = source->strides[a];
      } else {
        shape.push_back(n);
        to.push_back(target->strides[a]);
        from.push_back(source->strides[a]);
      }
    }
    if (shape.empty()) {
      shape.push_back(1);
      to.push_back(1);
      from.push_back(1);
    }
  }

  // Takes as many neighbours along the last axis for one element as 16 bytes hold; returns the bytes of an element.
  int64_t widen(int64_t bytes, const void* source, const void* target) {
    while (bytes < 16 && can_double(2 * bytes, source, target)) {
      bytes *= 2;
      shape.back() /= 2;
      for (std::vector<int64_t>* strides : {&to, &from})
        for (size_t a = 0; a + 1 < strides->size(); ++a) (*strides)[a] /= 2;
    }
    return bytes;
  }
  bool can_double(int64_t bytes, const void* source, const void* target) const {
    for (const void* p : {source, target})
      if (reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) != 0) return false;
    for (const std::vector<int64_t>* strides : {&to, &from}) {
      if (strides->back() != 1) return false;
      for (size_t a = 0; a + 1 < strides->size(); ++a)
        if ((*strides)[a] % 2 != 0) return false;
    }
    return shape.back() % 2 == 0;
  }
  int64_t size() const {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }
  // Whether positions and offsets fit 32 bits.
  bool is_narrow() const {
    int64_t reach[2] = {0, 0};
    for (size_t a = 0; a < shape.size(); ++a) {
      reach[0] += std::abs(to[a]) * (shape[a] - 1);
      reach[1] += std::abs(from[a]) * (shape[a] - 1);
    }
    return std::max({reach[0], reach[1], size()}) < INT32_MAX;
  }
};

}  // namespace

void CudaDevice::copy_here(const Value* from, Value* to) {
  Value* source = const_cast<Value*>(from);
  if (from->dtype == to->dtype && to->contiguous) return run_map(Elementwise::copy, from->dtype, &source, 1, to);
  if (from->dtype != to->dtype) {
    Ref converted(to->contiguous ? Ref::share(to).take() : empty(to->dtype, to->dims(), Category::workspace, id));
    auto& prepared = casts_[static_cast<uint32_t>(from->dtype) << 8 | static_cast<uint32_t>(to->dtype)];
    if (!prepared) {
      prepared = std::make_unique<PreparedChain>();
      prepared->chain.registers = {{from->dtype, false, true}, {to->dtype, false, false, true}};
      Chain::Instruction i{Chain::Instruction::Kind::cast};
      i.out = 1;
      prepared->chain.code.push_back(i);
    }
    const Operand operand{from->data, from->strides, false};
    void* target = converted->data;
    run_chain(*prepared, {from->ndim, from->shape}, &operand, &target);
    if (converted.v != to) copy_here(converted.v, to);
    return;
  }
  JoinedAxes axes(from, to);
  const int64_t bytes = axes.widen(size_of(from->dtype), from->data, to->data), n = axes.size();
  std::vector<int64_t> words = {reinterpret_cast<int64_t>(to->data), reinterpret_cast<int64_t>(from->data), n};
  words.insert(words.end(), axes.shape.begin(), axes.shape.end());
  words.insert(words.end(), axes.to.begin(), axes.to.end());
  words.insert(words.end(), axes.from.begin(), axes.from.end());
  run_kernel("device_memory.h",
             "copy_strided<" + std::to_string(bytes) + ", " + std::to_string(axes.shape.size()) +
                 (axes.is_narrow() ? ", int32_t" : ", int64_t") + ">(words, block_number)",
             words, n);
}

Buffer* CudaDevice::allocate_host(size_t bytes) {
  enter();
  return allocate_page_locked(bytes);
}

// Notes a copy that is under way, or waits for it.
void CudaDevice::finish_copy(const Value* host) {
  if (copies_in_background && is_page_locked(host->buffer))
    note_copy(host->buffer, events_, events_.record(stream()));
  else if (!copies_in_background)
    wait(stream());
}

namespace {

// Whether a copy from there reads the memory only when the stream gets there. From other memory the driver makes a copy
// first.
bool is_read_later(const Value* host) {
  if (is_page_locked(host->buffer)) return true;
  if (host->buffer->size_class != kForeign) return false;
  constexpr int kMemoryType = 2;
  unsigned type = 0;
  return driver().cuPointerGetAttribute(&type, kMemoryType, address_of(host->data)) == 0 && type != 0;
}

}  // namespace

void CudaDevice::from_host(const Value* from, Value* to) {
  if (recording_) throw Uncapturable();
  Ref source(contiguous(from));
  if (source->dtype != to->dtype) {
    Ref converted(empty(to->dtype, from->dims()));
    copy_into(source.v, converted.v);
    source = std::move(converted);
  }
  Ref target(to->contiguous ? Ref::share(to).take() : empty(to->dtype, to->dims(), Category::workspace, id));
  ++counters.copies;
  WENGERT_CALL(cuMemcpyHtoDAsync_v2, address_of(target->data), source->data, static_cast<size_t>(source->bytes()),
               stream());
  if (is_read_later(source.v)) finish_copy(source.v);
  if (target.v != to) copy_here(target.v, to);
}

void CudaDevice::to_host(const Value* from, Value* to) {
  if (recording_) throw Uncapturable();
  const Ref source(contiguous(from));
  const bool direct = to->contiguous && to->dtype == from->dtype;
  Ref target(direct ? Ref::share(to).take() : empty(from->dtype, from->dims()));
  ++counters.copies;
  WENGERT_CALL(cuMemcpyDtoHAsync_v2, target->data, address_of(source->data), static_cast<size_t>(source->bytes()),
               stream());
  if (copies_in_background && is_page_locked(target->buffer)) return finish_copy(target.v);
  wait(stream());
  if (target.v != to) copy_into(target.v, to);
}

void CudaDevice::copy(const Value* from, Value* to) {
  if (from->size == 0) return;
  enter();
  note_use(from);
  note_use(to);
  if (from->device == kCpu) return from_host(from, to);
  if (to->device == kCpu) return to_host(from, to);
  copy_here(from, to);
}

// From another GPU: its stream and ours wait for each other, so that the copy is in the order of both.
bool CudaDevice::copy_across(const Value* from, Value* to) {
  auto* other = dynamic_cast<CudaDevice*>(&device_at(from->device));
  if (!other || recording_ || other->recording_) return false;
  Ref source(contiguous(from));
  if (source->dtype != to->dtype) {
    Ref converted(empty(to->dtype, from->dims(), Category::workspace, other->id));
    other->copy(source.v, converted.v);
    source = std::move(converted);
  }
  const Ref target(to->contiguous ? Ref::share(to).take() : empty(to->dtype, to->dims(), Category::workspace, id));
  other->note_use(source.v);
  note_use(target.v);
  enter();
  Event const ready = events_.record(stream());
  other->enter();
  WENGERT_CALL(cuStreamWaitEvent, other->stream(), ready, 0);
  ++counters.copies;
  WENGERT_CALL(cuMemcpyPeerAsync, address_of(target->data), context_, address_of(source->data), other->context_,
               static_cast<size_t>(source->bytes()), other->stream());
  Event const arrived = other->events_.record(other->stream());
  enter();
  WENGERT_CALL(cuStreamWaitEvent, stream(), arrived, 0);
  events_.give_back(ready);
  other->events_.give_back(arrived);
  if (target.v != to) copy_here(target.v, to);
  return true;
}

void CudaDevice::fill(Value* to, const void* element) {
  note_use(to);
  std::vector<int64_t> words = {reinterpret_cast<int64_t>(to->data), to->size, 0, 0};
  std::memcpy(&words[2], element, static_cast<size_t>(size_of(to->dtype)));
  const int64_t bytes = size_of(to->dtype), pack = reinterpret_cast<uintptr_t>(to->data) % 16 == 0 ? 16 / bytes : 1;
  run_kernel("device_memory.h",
             "fill<" + std::to_string(bytes) + ", " + std::to_string(pack) + ">(words, block_number)", words,
             (to->size + pack - 1) / pack);
}

}  // namespace wengert::cuda
