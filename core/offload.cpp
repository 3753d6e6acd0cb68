#include "offload.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "error.h"
#include "kernels/vector.h"
#include "value.h"

namespace wengert {

class Store {
 public:
  explicit Store(const std::string& folder) {
    if (folder.empty()) return;
    std::string name = folder + "/wengert-XXXXXX";
    file_ = mkstemp(name.data());
    if (file_ < 0) fail(ErrorKind::value, "offload", "no file can be made in " + folder + ": " + std::strerror(errno));
    unlink(name.c_str());  // the file disappears with the process
  }
  Store(const Store&) = delete;
  ~Store() {
    if (file_ >= 0) close(file_);
  }

  bool in_memory() const { return file_ < 0; }

  int64_t put(const char* data, size_t bytes) {
    if (file_ < 0) {
      char* room = static_cast<char*>(std::malloc(bytes));
      if (!room) throw std::bad_alloc();
      std::memcpy(room, data, bytes);
      count(static_cast<int64_t>(bytes));
      return reinterpret_cast<intptr_t>(room);
    }
    int64_t at = end_;
    if (auto free = free_.find(bytes); free != free_.end()) {
      at = free->second;
      free_.erase(free);
    } else {
      end_ += static_cast<int64_t>(bytes);
    }
    transfer([&](size_t done) { return pwrite(file_, data + done, bytes - done, at + static_cast<int64_t>(done)); },
             bytes);
    return at;
  }

  void get(int64_t at, char* data, size_t bytes) const {
    if (file_ < 0)
      std::memcpy(data, reinterpret_cast<const char*>(at), bytes);
    else
      transfer([&](size_t done) { return pread(file_, data + done, bytes - done, at + static_cast<int64_t>(done)); },
               bytes);
  }

  void discard(int64_t at, size_t bytes) {
    if (file_ >= 0) {
      free_.emplace(bytes, at);
    } else {
      std::free(reinterpret_cast<void*>(at));
      count(-static_cast<int64_t>(bytes));
    }
  }

 private:
  // Contents stored in memory still count as memory.
  static void count(int64_t bytes) {
    MemoryStats& s = memory_pool.stats;
    s.live_bytes += static_cast<size_t>(bytes);
    s.live_by_category[static_cast<int>(Category::workspace)] += static_cast<size_t>(bytes);
  }

  template <class F>
  static void transfer(F&& part, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
      const ssize_t n = part(done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail(ErrorKind::value, "offload", std::string("the file failed: ") + std::strerror(n ? errno : EIO));
      done += static_cast<size_t>(n);
    }
  }

  int file_ = -1;
  int64_t end_ = 0;
  std::multimap<size_t, int64_t> free_;  // free space by size
};

std::shared_ptr<Store> open_store(const std::string& folder) { return std::make_shared<Store>(folder); }

namespace {

bool shrinks(DType dtype, Codec codec) {
  return codec != Codec::none && (dtype == DType::Float32 || dtype == DType::Float64);
}

void convert(DType from, DType to, const void* in, void* out, int64_t n) {
  kernels().cast[static_cast<int>(from)][static_cast<int>(to)](out, in, n);
}

std::vector<float> as_floats(DType dtype, const char* data, int64_t n) {
  std::vector<float> numbers(static_cast<size_t>(n));
  convert(dtype, DType::Float32, data, numbers.data(), n);
  return numbers;
}

}  // namespace

namespace {

// A device's memory as a value of bytes.
Ref bytes_on(const Device& device, char* data, size_t bytes) {
  Ref v(new_value(1));
  v->buffer = adopt_foreign(data, bytes, nullptr, nullptr);
  v->data = data;
  v->device = device.id;
  v->dtype = DType::UInt8;
  v->shape[0] = v->size = static_cast<int64_t>(bytes);
  v->strides[0] = 1;
  v->contiguous = true;
  return v;
}

}  // namespace

Stored::Stored(std::shared_ptr<Store> store, DType dtype, Codec codec, Device* device, const char* data, size_t bytes)
    : store_(std::move(store)),
      dtype_(dtype),
      codec_(shrinks(dtype, codec) ? codec : Codec::none),
      device_(device),
      bytes_(bytes) {
  if (!device) {
    put(data);
    return;
  }
  if (codec_ == Codec::none && store_->in_memory()) parked_ = device->park(data, bytes);
  if (parked_) return;
  const Ref there(bytes_on(*device, const_cast<char*>(data), bytes)), here(on_device(there.v, kCpu));
  put(here->data);
}

void Stored::put(const char* data) {
  const int64_t n = static_cast<int64_t>(bytes_) / size_of(dtype_);
  std::vector<char> packed;
  if (codec_ == Codec::bfloat16) {
    packed.resize(static_cast<size_t>(2 * n));
    convert(dtype_, DType::BFloat16, data, packed.data(), n);
  } else if (codec_ == Codec::int8) {
    packed.resize(static_cast<size_t>(n));
    const std::vector<float> numbers = as_floats(dtype_, data, n);
    float most = 0;
    for (float x : numbers) most = std::max(most, std::isfinite(x) ? std::abs(x) : 0.0f);
    scale_ = most > 0 ? most : 1;
    for (size_t i = 0; i < packed.size(); ++i) {
      const double scaled = std::clamp(127.0 * numbers[i] / scale_, -127.0, 127.0);
      packed[i] = std::isnan(numbers[i]) ? char(-128) : static_cast<char>(std::lround(scaled));
    }
  }
  kept_ = codec_ == Codec::none ? bytes_ : packed.size();
  at_ = store_->put(codec_ == Codec::none ? data : packed.data(), kept_);
}

Stored::~Stored() {
  if (!parked_) store_->discard(at_, kept_);
}

void Stored::arrive() const {
  if (parked_) parked_->arrive();
}

void Stored::fetch(char* data) const {
  if (!device_) return get(data);
  if (parked_) return parked_->fetch(data);
  const Ref here(empty(DType::UInt8, Dims{static_cast<int64_t>(bytes_)})), there(bytes_on(*device_, data, bytes_));
  get(here->data);
  copy_into(here.v, there.v);
}

void Stored::get(char* data) const {
  if (codec_ == Codec::none) return store_->get(at_, data, bytes_);
  std::vector<char> packed(kept_);
  store_->get(at_, packed.data(), kept_);
  const int64_t n = static_cast<int64_t>(bytes_) / size_of(dtype_);
  if (codec_ == Codec::bfloat16) return convert(DType::BFloat16, dtype_, packed.data(), data, n);
  std::vector<float> numbers(packed.size());
  for (size_t i = 0; i < packed.size(); ++i) {
    const auto q = static_cast<signed char>(packed[i]);
    numbers[i] = q == -128 ? std::nanf("") : static_cast<float>(q * scale_ / 127);
  }
  convert(DType::Float32, dtype_, numbers.data(), data, n);
}

}  // namespace wengert
