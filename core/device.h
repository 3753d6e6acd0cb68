// Devices: where memory is and what computes there. The CPU is device 0; its memory comes from the pool and its kernels
// are called directly. Every other device implements this interface, and nothing else touches its memory. Sizes,
// attributes, random streams and 0-d numbers stay on the host.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "error.h"
#include "memory.h"

namespace wengert {

struct Attrs;
struct FusedGroup;
struct Op;
struct Program;
struct Value;

using DeviceId = uint8_t;
inline constexpr DeviceId kCpu = 0;

// What a device prepares for a program or one of its groups (machine code, plans, graphs), stored beside it.
struct Prepared {
  virtual ~Prepared() = default;
};
class PreparedByDevice {
 public:
  template <class Make>
  Prepared& find(DeviceId device, Make&& make) {
    for (auto& [id, made] : made_)
      if (id == device) return *made;
    return *made_.emplace_back(device, make()).second;
  }

 private:
  std::vector<std::pair<DeviceId, std::unique_ptr<Prepared>>> made_;
};

// A fused group on operands: the iteration space, and for each register the value that it is loaded from and the one
// that it is stored to, or null. An input is on the device, or one element on the host.
struct GroupCall {
  const FusedGroup& group;
  int ndim;
  const int64_t* shape;
  Value* const* in;
  Value* const* out;  // allocated and packed; may share memory with an input that is not read afterwards
};

// Contents of a device's memory that wait in the host's. Copies run beside the device's other work.
struct Parked {
  virtual ~Parked() = default;
  virtual void fetch(char* to) = 0;  // starts to copy them back, into memory of the device
  virtual void arrive() = 0;         // what this thread starts there from here on comes after that
};

struct Device {
  std::string name;
  DeviceId id = kCpu;
  size_t live_bytes = 0, peak_bytes = 0;
  size_t limit = 0;  // live bytes may not exceed it; 0: no limit

  virtual ~Device() = default;
  virtual char* allocate(size_t bytes) = 0;  // throws std::bad_alloc
  virtual void free(char* data, size_t bytes) noexcept = 0;
  // to[...] = from[...] for equal shapes; dtypes and strides may differ. One of them may be on the host: a copy to the
  // host has arrived when this returns, unless copies are made in the background.
  virtual void copy(const Value* from, Value* to) = 0;
  // The same from another device, directly. Returns false where that is not possible, to have it copied by way of the
  // host.
  virtual bool copy_across(const Value* /*from*/, Value* /*to*/) { return false; }
  virtual void fill(Value* to, const void* element) = 0;  // a packed value
  // Runs an op into outputs allocated according to its shape rule. Operands are on the device, or single elements on
  // the host. Throws a device error if there is no kernel.
  virtual void run_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) = 0;
  virtual void run_group(const GroupCall& call) = 0;
  // Memory of the host that this device copies to and from in the background. Null: there is none.
  virtual Buffer* allocate_host(size_t /*bytes*/) { return nullptr; }
  // Runs a whole program at once, as `run` does. Returns false to have it run step by step.
  virtual bool run_program(const Program& /*p*/, Value* const* /*in*/, const int64_t* /*leaf_sizes*/, Value** /*out*/,
                           Value* const* /*donated*/, int /*given*/) {
    return false;
  }
  // Starts to copy contents to the host; their memory can be given back at once.
  virtual std::unique_ptr<Parked> park(const char* /*data*/, size_t /*bytes*/) { return nullptr; }
  virtual void synchronise() = 0;  // waits until everything started is done; throws errors that occurred meanwhile
};

// Devices live as long as the process.
DeviceId add_device(std::unique_ptr<Device> device);
Device& device_at(DeviceId id);  // not the CPU
bool has_device(int id);
const std::string& device_name(DeviceId id);  // "cpu", "cuda:0"

// The device on which ops without operands allocate. A program sets it to the device of its operands.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local DeviceId placement;
class Placement {
 public:
  explicit Placement(DeviceId device) : before_(placement) { placement = device; }
  Placement(const Placement&) = delete;
  ~Placement() { placement = before_; }

 private:
  DeviceId before_;
};

// Whether copies between the host and a device may return before they are done: set for a call whose caller sees to it.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local bool copies_in_background;

// A buffer of a device's memory; `owner` is the device. Where there is no room, or the limit is reached, what can be
// computed again is dropped. Throws std::bad_alloc, or a budget error.
Buffer* allocate_on(Device& device, size_t bytes, Category category);

// The device that the operands are on, which runs the op. Numbers on the host (or one element seen through strides of
// zero) go with any device. Throws a device error that names the op and both devices.
DeviceId common_device(const char* op, Value* const* in, int n_in);

}  // namespace wengert
