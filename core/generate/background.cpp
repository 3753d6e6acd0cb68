#include "background.h"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "compiler.h"

namespace wengert::generate {

namespace {

void finish(Job& job) {
  try {
    job.function = compile(job.text);
    job.state = Job::State::ready;
  } catch (const std::exception& e) {
    job.error = e.what();
    job.state = Job::State::failed;
  }
}

// Never destroyed: threads may use it until the process ends.
struct Background {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> waiting;
  std::shared_ptr<Job> current;
  std::unordered_map<std::string, std::shared_ptr<Job>> jobs;  // by text
  std::thread thread;
  bool ended = false;

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return ended || !waiting.empty(); });
      if (ended) return;
      current = waiting.front();
      waiting.pop_front();
      lock.unlock();
      finish(*current);
      lock.lock();
      current = nullptr;
      changed.notify_all();
    }
  }

  void start() {
    sigset_t all, before;  // signals are for the threads of the user
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread = std::thread([this] { work(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
};

Background* background = nullptr;

// A child process has none of the other threads; their work is repeated there on demand.
void before_fork() { background->mutex.lock(); }
void after_fork() { background->mutex.unlock(); }
void in_child() {
  const Background* old = background;  // with its thread and mutex: neither can be used or ended here
  auto* fresh = new Background;
  fresh->jobs = old->jobs;
  fresh->waiting = old->waiting;
  if (old->current) fresh->waiting.push_front(old->current);
  background = fresh;
  forget_compiler();
}

Background& get_background() {
  static const bool made = [] {
    background = new Background;
    pthread_atfork(before_fork, after_fork, in_child);
    return true;
  }();
  (void)made;
  return *background;
}

}  // namespace

std::shared_ptr<Job> request(const std::string& text, bool now) {
  Background& b = get_background();
  std::unique_lock lock(b.mutex);
  std::shared_ptr<Job>& job = b.jobs[text];
  if (!job) {
    job = std::make_shared<Job>();
    job->text = text;
    if (!now) b.waiting.push_back(job);
  } else if (job->state != Job::State::waiting) {
    return job;
  }
  const std::shared_ptr<Job> wanted = job;
  if (now) {
    lock.unlock();
    finish(*wanted);
    return wanted;
  }
  if (!b.ended && !b.thread.joinable()) b.start();
  b.changed.notify_all();
  return wanted;
}

void wait_until_idle() {
  Background& b = get_background();
  std::unique_lock lock(b.mutex);
  if (!b.ended && !b.thread.joinable() && !b.waiting.empty()) b.start();
  b.changed.wait(lock, [&] { return b.ended || (b.waiting.empty() && !b.current); });
}

void end_background() {
  if (!background) return;
  Background& b = *background;
  std::thread thread;
  {
    const std::lock_guard lock(b.mutex);
    b.ended = true;
    b.waiting.clear();
    std::swap(thread, b.thread);
    b.changed.notify_all();
  }
  if (!thread.joinable()) return;
  stop_compiler();
  thread.join();
}

}  // namespace wengert::generate
