// Streams and events of GPUs, for Python. Streams are the driver's handles, as integers, which other libraries take.
#include <nanobind/stl/unique_ptr.h>

#include "gpu.h"
#include "program.h"

namespace nb = nanobind;

namespace wengert {

namespace {

using cuda::CudaDevice;

cuda::Stream stream_at(uintptr_t handle) { return reinterpret_cast<cuda::Stream>(handle); }
uintptr_t handle_of(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

// A stream of the program's.
class OwnStream {
 public:
  OwnStream(int number, int priority) : gpu_(&gpu_at(number)), stream_(gpu_->make_stream(priority)) {}
  OwnStream(const OwnStream&) = delete;
  ~OwnStream() { gpu_->give_back_stream(stream_); }
  uintptr_t handle() const { return handle_of(stream_); }

 private:
  CudaDevice* gpu_;
  cuda::Stream stream_;
};

// An event of one GPU.
class GpuEvent {
 public:
  GpuEvent(int number, bool timed) : number_(number), timed_(timed), event_(gpu_at(number).make_event(timed)) {}
  GpuEvent(const GpuEvent&) = delete;

  uintptr_t handle() const { return handle_of(event_->handle()); }
  bool done() const {
    return guarded([&] { return event_->done(); });
  }
  void record(uintptr_t stream) {
    guarded([&] { gpu_at(number_).record(*event_, stream_at(stream)); });
  }
  void make_wait(uintptr_t stream) const {
    guarded([&] { event_->make_wait(stream_at(stream)); });
  }
  void wait() const {
    guarded([&] { gpu_at(number_).wait(*event_); });
  }
  float elapsed(const GpuEvent& end) const {
    return guarded([&] {
      const auto refuse = [](const char* problem) { fail(ErrorKind::value, "elapsed_time", problem); };
      if (!timed_ || !end.timed_) refuse("both events need enable_timing=True");
      if (!event_->recorded() || !end.event_->recorded()) refuse("both events must have been recorded");
      if (number_ != end.number_) refuse("the events are of different GPUs");
      if (!event_->done() || !end.event_->done()) refuse("both events must be done; call synchronize() first");
      return event_->milliseconds_until(*end.event_);
    });
  }

 private:
  int number_;
  bool timed_;
  std::unique_ptr<cuda::OwnEvent> event_;
};

}  // namespace

void init_streams(nb::module_& m) {
  nb::class_<OwnStream>(m, "GpuStream", "A stream of a GPU, given back when it is dropped.")
      .def("__init__",
           [](OwnStream* s, int number, int priority) { guarded([&] { new (s) OwnStream(number, priority); }); })
      .def_prop_ro("handle", &OwnStream::handle);
  nb::class_<GpuEvent>(m, "GpuEvent", "A point in the work of a stream.")
      .def("__init__", [](GpuEvent* e, int number, bool timed) { guarded([&] { new (e) GpuEvent(number, timed); }); })
      .def_prop_ro("handle", &GpuEvent::handle)
      .def("record", &GpuEvent::record)
      .def("done", &GpuEvent::done)
      .def("make_wait", &GpuEvent::make_wait)
      .def("wait", &GpuEvent::wait)
      .def("elapsed", &GpuEvent::elapsed);
  m.def("cuda_stream", [](int number) { return guarded([&] { return handle_of(gpu_at(number).stream()); }); });
  m.def("cuda_own_stream", [](int number) { return guarded([&] { return handle_of(gpu_at(number).own_stream()); }); });
  m.def("cuda_choose_stream", [](int number, uintptr_t stream) {
    return guarded([&] { return handle_of(gpu_at(number).choose_stream(stream_at(stream))); });
  });
  m.def("cuda_order_streams", [](int number, uintptr_t other, uintptr_t waiting) {
    guarded([&] { gpu_at(number).order(stream_at(other), stream_at(waiting)); });
  });
  m.def("cuda_stream_done", [](int number, uintptr_t stream) {
    return guarded([&] { return gpu_at(number).is_done(stream_at(stream)); });
  });
  m.def("cuda_wait_for_stream",
        [](int number, uintptr_t stream) { guarded([&] { gpu_at(number).wait(stream_at(stream)); }); });
}

}  // namespace wengert
