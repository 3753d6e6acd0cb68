// Streams of a GPU, who waits for whom, and what is given up when streams are done with it.
#include <algorithm>
#include <utility>

#include "../per_thread.h"
#include "../threads.h"
#include "device.h"
#include "tasks.h"

namespace wengert::cuda {

namespace {

constexpr Status kNotReady = 600;

// The streams that this thread has chosen, by the number of the GPU; null: the GPU's own.
struct ChosenStreams {
  Stream of[kMostGpus] = {};
};

}  // namespace

Stream CudaDevice::chosen() const { return per_thread<ChosenStreams>().of[ordinal]; }

Stream CudaDevice::stream() const {
  Stream const own = chosen();
  return own ? own : stream_;
}

Stream CudaDevice::choose_stream(Stream stream) {
  enter();
  Stream const before = this->stream();
  per_thread<ChosenStreams>().of[ordinal] = stream == stream_ ? nullptr : stream;
  if (stream != stream_ && std::find(others_.begin(), others_.end(), stream) == others_.end())
    others_.push_back(stream);
  return before;
}

Stream CudaDevice::make_stream(int priority) {
  enter();
  std::vector<Stream>& spare = spare_streams_[priority];
  Stream made = nullptr;
  if (spare.empty()) {
    WENGERT_CALL(cuStreamCreateWithPriority, &made, kNonBlocking, priority);
    priorities_[made] = priority;
  } else {
    made = spare.back();
    spare.pop_back();
  }
  return made;
}

void CudaDevice::give_back_stream(Stream stream) { spare_streams_[priorities_.at(stream)].push_back(stream); }

void CudaDevice::order(Stream other, Stream waiting) {
  enter();
  if (other != waiting) events_.order(other, waiting);
}

bool CudaDevice::is_done(Stream stream) {
  enter();
  const Status status = driver().cuStreamQuery(stream);
  if (status != kNotReady) checked(status, "cuStreamQuery");
  return status != kNotReady;
}

std::unique_ptr<OwnEvent> CudaDevice::make_event(bool timed) {
  enter();
  return std::make_unique<OwnEvent>(timed);
}

void CudaDevice::record(OwnEvent& event, Stream stream) {
  enter();
  event.record(stream);
}

namespace {

// Waits by `call`, and lets other threads of Python run meanwhile.
template <class Call>
Status waited(Call&& call) {
  void* token = waiting_hooks.enter ? waiting_hooks.enter() : nullptr;
  const Status status = call();
  if (token) waiting_hooks.leave(token);
  return status;
}

}  // namespace

void CudaDevice::wait(Stream stream) {
  enter();
  ++counters.waits;
  checked(waited([&] { return driver().cuStreamSynchronize(stream); }), "cuStreamSynchronize");
  check_note();
  release_what_is_done();
}

void CudaDevice::wait(const OwnEvent& event) {
  enter();
  ++counters.waits;
  checked(waited([&] { return event.wait(); }), "cuEventSynchronize");
  check_note();
  release_what_is_done();
}

void CudaDevice::synchronise() {
  enter();
  ++counters.waits;
  const uint64_t ticket = pool_.ticket();  // what other threads start meanwhile is not waited for
  checked(waited([] { return driver().cuCtxSynchronize(); }), "cuCtxSynchronize");
  pool_.settle(ticket);
  check_note();
  release_what_is_done();
}

// A block that this thread's stream uses, and that was perhaps made on another one.
void CudaDevice::note_use(const Value* v) {
  if (!others_.empty() && !recording_ && v->device == id && is_on_device(v->buffer)) [[unlikely]]
    pool_.note_use(v->buffer->data, chosen());
}

void CudaDevice::note_outside(const Buffer* buffer) {
  if (is_on_device(buffer)) pool_.note_outside(buffer->data);
}

void CudaDevice::release_later(void* owner, void (*release)(void*)) noexcept {
  if (in_forked_child()) return;
  Release later{owner, release, {}};
  const InContext here(context_);
  try {
    later.events.push_back(events_.record(stream_));
    for (Stream s : others_) later.events.push_back(events_.record(s));
  } catch (...) {
    driver().cuCtxSynchronize();  // an event is missing
  }
  releases_.push_back(std::move(later));
}

// The oldest first. What a release runs may use this device.
void CudaDevice::release_what_is_done() {
  while (!releases_.empty()) {
    Release& oldest = releases_.front();
    for (; !oldest.events.empty(); oldest.events.pop_back()) {
      if (!events_.done(oldest.events.back())) return;
      events_.give_back(oldest.events.back());
    }
    const Release done = std::move(oldest);
    releases_.erase(releases_.begin());
    done.release(done.owner);
  }
}

}  // namespace wengert::cuda
