#include "device.h"

#include "value.h"

namespace wengert {

constinit thread_local DeviceId placement = kCpu;
constinit thread_local bool copies_in_background = false;

namespace {

std::vector<std::unique_ptr<Device>>& devices() {  // from number 1 on
  static auto* list = new std::vector<std::unique_ptr<Device>>;
  return *list;
}

}  // namespace

DeviceId add_device(std::unique_ptr<Device> device) {
  if (devices().size() == UINT8_MAX) throw Error(ErrorKind::device, "there are too many devices");
  devices().push_back(std::move(device));
  const auto id = static_cast<DeviceId>(devices().size());
  devices().back()->id = id;
  return id;
}

bool has_device(int id) { return id >= 0 && static_cast<size_t>(id) <= devices().size(); }

Device& device_at(DeviceId id) { return *devices()[static_cast<size_t>(id) - 1]; }

const std::string& device_name(DeviceId id) {
  static const std::string cpu = "cpu";
  return id == kCpu ? cpu : device_at(id).name;
}

namespace {

char* room_on(Device& device, size_t bytes) {
  const auto missing = [&] {
    const size_t needed = device.live_bytes + bytes;
    return device.limit && needed > device.limit ? needed - device.limit : 0;
  };
  if (missing()) memory_hooks.make_room_on(device, missing());
  if (missing()) memory_hooks.fail_on(device, bytes);
  try {
    return device.allocate(bytes);
  } catch (const std::bad_alloc&) {
    if (!memory_hooks.make_room_on || !memory_hooks.make_room_on(device, bytes)) throw;
    return device.allocate(bytes);
  }
}

}  // namespace

Buffer* allocate_on(Device& device, size_t bytes, Category category) {
  char* data = room_on(device, bytes);
  Buffer* b;
  try {
    b = adopt_foreign(data, bytes, &device, nullptr);
  } catch (...) {
    device.free(data, bytes);
    throw;
  }
  b->size_class = kOnDevice;
  b->pinned = false;
  b->category = category;
  device.live_bytes += bytes;
  if (device.live_bytes > device.peak_bytes) device.peak_bytes = device.live_bytes;
  return b;
}

void free_on_device(void* owner, char* data, size_t bytes) {
  Device& device = *static_cast<Device*>(owner);
  device.live_bytes -= bytes;
  device.free(data, bytes);
}

DeviceId common_device(const char* op, Value* const* in, int n_in) {
  DeviceId found = kCpu;
  for (int i = 0; i < n_in; ++i) {
    if (in[i]->device == kCpu || in[i]->device == found) continue;
    if (found != kCpu)
      fail(ErrorKind::device, op,
           "operands are on different devices, " + device_name(found) + " and " + device_name(in[i]->device) +
               "; move one of them with to()");
    found = in[i]->device;
  }
  for (int i = 0; found != kCpu && i < n_in; ++i)
    if (in[i]->device == kCpu && (in[i]->node || !is_uniform(in[i])))
      fail(ErrorKind::device, op,
           "operands are on different devices, " + device_name(found) + " and cpu (" + to_string(in[i]->type()) +
               "); move one of them with to()");
  return found;
}

}  // namespace wengert
