#include "test_device.h"

#include <sys/mman.h>

#include <cstring>

#include "kernels/strided.h"
#include "program.h"
#include "small_array.h"

namespace wengert {

namespace {

constexpr size_t kReserved = size_t{4} << 30;  // addresses; memory is taken as it is used

char* reserve(int protection) {
  void* p = mmap(nullptr, kReserved, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(p);
}

}  // namespace

TestDevice::TestDevice() : seen_(reserve(PROT_NONE)), real_(reserve(PROT_READ | PROT_WRITE)) { name = "test:0"; }

char* TestDevice::allocate(size_t bytes) {
  ++calls["allocate"];
  const size_t rounded = (bytes / kLine + 1) * kLine;
  if (live_bytes + bytes > most_bytes) throw std::bad_alloc();
  if (auto it = spare_.find(rounded); it != spare_.end()) {
    char* p = it->second;
    spare_.erase(it);
    return p;
  }
  if (used_ + rounded > kReserved) throw std::bad_alloc();
  char* p = seen_ + used_;
  used_ += rounded;
  return p;
}

void TestDevice::free(char* data, size_t bytes) noexcept {
  ++calls["free"];
  std::memset(real_ + (data - seen_), 0xA5, bytes);  // who reads it later is found out
  spare_.emplace((bytes / kLine + 1) * kLine, data);
}

// The same value where the CPU can read and write it; values of the host are what they are.
Value* TestDevice::open(const Value* v) const {
  Value* opened = alias(v);
  if (v->device == kCpu) return opened;
  char* data = real_ + (v->data - seen_);
  release(opened->buffer);
  opened->buffer = adopt_foreign(data, static_cast<size_t>(v->bytes()), nullptr, nullptr);
  opened->data = data;
  opened->device = kCpu;
  return opened;
}

struct TestDevice::Opened {
  std::vector<Ref> owned;
  std::vector<Value*> values;
  Opened(const TestDevice& device, Value* const* list, int n) {
    for (int i = 0; i < n; ++i) {
      owned.emplace_back(list[i] ? device.open(list[i]) : nullptr);
      values.push_back(owned.back().v);
    }
  }
};

void TestDevice::copy(const Value* from, Value* to) {
  ++calls[from->device == kCpu ? "copy from the host" : to->device == kCpu ? "copy to the host" : "copy"];
  const Ref source(open(from)), target(open(to));
  copy_into(source.v, target.v);
}

void TestDevice::fill(Value* to, const void* element) {
  ++calls["fill"];
  const Ref target(open(to));
  wengert::fill(target->data, element, size_of(target->dtype), target->size);
}

void TestDevice::run_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  ++calls["op " + op.name];
  if (refused.contains(op.name)) fail(ErrorKind::device, op.name.c_str(), "has no kernel on " + name);
  Opened operands(*this, in, n_in), results(*this, out, op.n_outputs);
  if (op.elementwise) {
    const Ref y(run_elementwise(op, operands.values.data(), n_in));
    copy_into(y.v, results.values[0]);
  } else {
    op.compute(op, operands.values.data(), n_in, attrs, results.values.data());
  }
}

void TestDevice::run_group(const GroupCall& call) {
  ++calls["group"];
  const FusedGroup& g = call.group;
  const int n = static_cast<int>(g.registers.size());
  Opened inputs(*this, call.in, n), outputs(*this, call.out, n);
  // The group's own shape and its outputs' are references to sizes; here they are numbers, and slots are registers.
  FusedGroup fixed;
  fixed.registers = g.registers;
  for (const auto& [op, instruction] : g.source) fixed.code.push_back(instruction);
  fixed.row_axes = g.row_axes;
  for (int i = 0; i < call.ndim; ++i) fixed.shape.push(call.shape[i]);
  SmallArray<Value*, 32> slots(static_cast<size_t>(2 * n));
  for (int k = 0; k < n; ++k) {
    FusedRegister& r = fixed.registers[static_cast<size_t>(k)];
    r.scratch = r.made = r.last_read = r.filled = r.output_shape = -1;
    slots[static_cast<size_t>(k)] = inputs.values[static_cast<size_t>(k)];
    slots[static_cast<size_t>(n + k)] = nullptr;
    if (r.input >= 0) r.input = k;
    if (r.output < 0) continue;
    r.output = n + k;
    r.output_shape = static_cast<int32_t>(fixed.output_shapes.size());
    fixed.output_shapes.push_back(call.out[k]->dims());
  }
  fixed.finish();
  run_group_on_cpu(fixed, slots.data(), nullptr);
  for (int k = 0; k < n; ++k) {
    if (!call.out[k]) continue;
    const Ref made(slots[static_cast<size_t>(n + k)]);
    copy_into(made.v, outputs.values[static_cast<size_t>(k)]);
  }
}

void TestDevice::synchronise() { ++calls["synchronise"]; }

}  // namespace wengert
