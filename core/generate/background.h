// A thread that compiles programs one at a time.
#pragma once
#include <atomic>
#include <memory>

#include "source.h"

namespace wengert::generate {

struct Job {
  enum class State : uint8_t { waiting, ready, failed };
  std::string text;
  std::atomic<State> state = State::waiting;
  Function function = nullptr;  // set when it is ready
  std::string error;            // set if it failed
};

// The job that compiles this text, existing or new. With `now`, compiles on this thread.
std::shared_ptr<Job> request(const std::string& text, bool now);
void wait_until_idle();
void end_background();

}  // namespace wengert::generate
