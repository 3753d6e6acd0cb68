// One thread that compiles, one program after the other.
#pragma once
#include <atomic>
#include <memory>

#include "source.h"

namespace wengert::generate {

struct Job {
  enum class State : uint8_t { waiting, ready, failed };
  std::string text;
  std::atomic<State> state = State::waiting;
  Function function = nullptr;  // once it is ready
  std::string error;            // once it has failed
};

// The job that compiles this text: one that there is already, or a new one. `now`: on this thread.
std::shared_ptr<Job> request(const std::string& text, bool now);
void wait_until_idle();
void end_background();

}  // namespace wengert::generate
