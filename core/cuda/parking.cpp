// Contents of a GPU's memory in page-locked memory of the host: copied by a stream of its own, beside the work of
// others.
#include "device.h"
#include "host_memory.h"

namespace wengert::cuda {

class ParkedContents : public Parked {
 public:
  ParkedContents(CudaDevice& gpu, const char* data, size_t bytes)
      : gpu_(gpu), bytes_(bytes), host_(allocate_page_locked(bytes)) {
    begin(data);
    WENGERT_CALL(cuMemcpyDtoHAsync_v2, host_->data, reinterpret_cast<Address>(data), bytes_, gpu_.copying_);
    note_copy(host_, gpu_.events_, gpu_.events_.record(gpu_.copying_));
  }
  ParkedContents(const ParkedContents&) = delete;
  ~ParkedContents() override { release(host_); }

  void fetch(char* to) override {
    begin(to);
    WENGERT_CALL(cuMemcpyHtoDAsync_v2, reinterpret_cast<Address>(to), host_->data, bytes_, gpu_.copying_);
    note_copy(host_, gpu_.events_, gpu_.events_.record(gpu_.copying_));
    fetched_.record(gpu_.copying_);
  }

  void arrive() override {
    if (in_forked_child()) return;
    gpu_.enter();
    fetched_.make_wait(gpu_.stream());
  }

 private:
  // The copy comes after what this thread has started on the memory, which is not used again before it is done.
  void begin(const char* data) {
    gpu_.enter();
    ++gpu_.counters.copies;
    gpu_.events_.order(gpu_.stream(), gpu_.copying_);
    gpu_.pool_.note_use(data, gpu_.copying_);
  }

  CudaDevice& gpu_;
  size_t bytes_;
  Buffer* host_;
  OwnEvent fetched_{false};
};

std::unique_ptr<Parked> CudaDevice::park(const char* data, size_t bytes) {
  enter();
  if (!copying_) {
    copying_ = make_stream(0);
    others_.push_back(copying_);
  }
  return std::make_unique<ParkedContents>(*this, data, bytes);
}

}  // namespace wengert::cuda
