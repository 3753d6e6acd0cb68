// Events: points in the work of a stream, which other streams and the host can wait for.
#pragma once
#include <utility>
#include <vector>

#include "libraries.h"

namespace wengert::cuda {

// Events without times, which are used again.
class Events {
 public:
  Event record(Stream stream);  // takes one
  bool done(Event event);       // true as well where the driver reports an error: nothing will happen any more
  void give_back(Event event) { spare_.push_back(event); }
  // What `waiting` does from here on waits for what `other` has been given so far.
  void order(Stream other, Stream waiting);

 private:
  std::vector<Event> spare_;
};

// One for programs, with or without a time.
class OwnEvent {
 public:
  explicit OwnEvent(bool timed);
  OwnEvent(const OwnEvent&) = delete;
  ~OwnEvent();
  Event handle() const { return handle_; }
  bool recorded() const { return recorded_; }
  void record(Stream stream);
  void make_wait(Stream stream) const;  // one that was not recorded is no reason to wait, here and below
  bool done() const;
  Status wait() const;                                  // the driver's
  float milliseconds_until(const OwnEvent& end) const;  // both timed, recorded and done

 private:
  Event handle_ = nullptr;
  bool recorded_ = false;
};

}  // namespace wengert::cuda
