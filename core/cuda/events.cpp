#include "events.h"

namespace wengert::cuda {

namespace {

constexpr unsigned kTimed = 0, kUntimed = 2;
constexpr Status kNotReady = 600;

Event make_event(unsigned flags) {
  Event made = nullptr;
  checked(driver().cuEventCreate(&made, flags), "cuEventCreate");
  return made;
}

}  // namespace

Event Events::record(Stream stream) {
  if (spare_.empty()) spare_.push_back(make_event(kUntimed));
  Event const event = spare_.back();
  checked(driver().cuEventRecord(event, stream), "cuEventRecord");
  spare_.pop_back();
  return event;
}

bool Events::done(Event event) { return driver().cuEventQuery(event) != kNotReady; }

void Events::order(Stream other, Stream waiting) {
  Event const event = record(other);
  give_back(event);  // who waits for it has been told; it can be recorded anew
  checked(driver().cuStreamWaitEvent(waiting, event, 0), "cuStreamWaitEvent");
}

OwnEvent::OwnEvent(bool timed) : handle_(make_event(timed ? kTimed : kUntimed)) {}

OwnEvent::~OwnEvent() {
  if (!in_forked_child()) driver().cuEventDestroy_v2(handle_);
}

void OwnEvent::record(Stream stream) {
  checked(driver().cuEventRecord(handle_, stream), "cuEventRecord");
  recorded_ = true;
}

void OwnEvent::make_wait(Stream stream) const {
  if (recorded_) checked(driver().cuStreamWaitEvent(stream, handle_, 0), "cuStreamWaitEvent");
}

bool OwnEvent::done() const {
  if (!recorded_) return true;
  const Status status = driver().cuEventQuery(handle_);
  if (status != kNotReady) checked(status, "cuEventQuery");
  return status != kNotReady;
}

Status OwnEvent::wait() const { return recorded_ ? driver().cuEventSynchronize(handle_) : 0; }

float OwnEvent::milliseconds_until(const OwnEvent& end) const {
  float milliseconds = 0;
  checked(driver().cuEventElapsedTime(&milliseconds, handle_, end.handle_), "cuEventElapsedTime");
  return milliseconds;
}

}  // namespace wengert::cuda
