// What the profiler records: which op or program ran, when, for which line and module of the user, and how many bytes
// it moved. Without a profile, each instrumented place costs a load and a branch. Events go to a buffer that is read
// when a profile ends. Everything runs under the GIL, except the work between the beginning and the end of an event.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/op.h"

namespace wengert {

struct FusedGroup;
struct Program;

extern constinit bool profiling;  // read by every op

enum class Phase : uint8_t { forward, backward, update };

// Shared by several events: the op or program, and the types it ran on.
struct Signature {
  enum class Kind : uint8_t { op, group, program } kind;
  struct Part {
    std::string op;
    std::vector<Type> in, out;
    std::vector<Attr> attrs;
  };
  std::string name;
  std::vector<Part> parts;             // what is computed
  std::map<uint32_t, uint32_t> inner;  // of a program: the signatures that its first run executed, with counts
  bool only_views = true;              // of a program: its first run only made views
};

struct ProfileEvent {
  int64_t start, end;  // in ticks of the profile's clock
  SourceLine line;     // owned
  uint64_t node;       // the recorded instruction (Node::seq) that it pulls back; forward: the next to be recorded
  int64_t bytes;       // read and written
  int64_t live;        // bytes of all tensors when it ended
  uint32_t signature;
  uint32_t module;
  uint16_t thread;
  Phase phase;
  uint8_t depth;            // 0: at top level; otherwise inside a program
  DeviceId device;          // that did the work
  int64_t began, finished;  // points in that device's work; -1: not known
};

struct MemoryEvent {
  int64_t time;
  const Buffer* buffer;  // only to be compared
  int64_t bytes;         // negative: freed
  SourceLine line;       // owned; of an allocation
  Category category;     // when it was allocated or freed
};

// Time between ops that does not belong to the user: tracing a function or deriving a rule, once per signature, or work
// of the profiler itself.
struct ProfileSpan {
  enum class Kind : uint8_t { preparing, profiler } kind;
  uint16_t thread;
  int64_t start, end;  // in ticks
};

// A recorded instruction visited by a backward walk.
struct TapeNode {
  uint64_t seq, leaf_id;  // leaf_id: of the tensor; 0: no leaf
  std::string name;
  SourceLine line;  // owned
  uint32_t module;
  Type type;  // of its first output
  int64_t saved_bytes;
  std::vector<uint64_t> sources;  // `seq` of what it was computed from
};

// A list that grows without moving its elements.
template <class T>
class EventLog {
  static constexpr size_t kChunk = 8192;
  std::vector<std::unique_ptr<T[]>> chunks_;
  size_t size_ = 0;

 public:
  size_t size() const { return size_; }
  T& operator[](size_t i) { return chunks_[i / kChunk][i % kChunk]; }
  void push(const T& event) {
    if (size_ == chunks_.size() * kChunk) chunks_.emplace_back(new T[kChunk]);
    (*this)[size_++] = event;
  }
  void clear() {
    chunks_.clear();
    size_ = 0;
  }
};

// What devices whose work is not waited for know of its times. A point in the work of the current stream is a number.
struct DeviceTimes {
  int64_t (*mark)(DeviceId device) = nullptr;                                              // -1: there is none now
  int64_t (*nanoseconds_between)(DeviceId device, int64_t first, int64_t last) = nullptr;  // waits for the last
  void (*forget)(DeviceId device) = nullptr;                                               // all of them
};

struct ProfileHooks {                     // set once by the bindings
  SourceLine (*source_line)() = nullptr;  // a new reference
  SourceLine (*share_line)(SourceLine line) = nullptr;
  uint64_t (*last_recorded)() = nullptr;  // Node::seq
  DeviceTimes device_times;               // set by devices
};
extern ProfileHooks profile_hooks;

// Everything recorded since the outermost running profile started; nested profiles are parts of it.
struct ProfileLog {
  int running = 0;   // profiles
  int detailed = 0;  // of these, how many record every run of a program in detail
  size_t most_events = 0;
  uint64_t dropped = 0;  // events dropped because the log was full
  EventLog<ProfileEvent> events;
  EventLog<MemoryEvent> memory;
  std::vector<ProfileSpan> spans;
  std::vector<Signature> signatures;
  std::vector<TapeNode> tape;  // the nodes of the first walk since the profile started
  uint64_t tape_walk = 0;      // the id of that walk; 0: none yet
  int64_t first_tick = 0, first_ns = 0;
};
extern ProfileLog profile_log;

void start_profile(bool detailed, size_t most_events);
void stop_profile(bool detailed);  // the log stays until the next one is started
int64_t profile_ticks();
int64_t profile_nanoseconds(int64_t tick);  // since the log was started

// Sets the module whose code this thread is running, by number (0: none), and returns the previous one, to which
// everything recorded up to `last_seq` belongs.
uint32_t set_profiled_module(uint32_t module, uint64_t last_seq, const void* thread);

// Sets whether this thread is ignored, as the profiler's own work is; returns the previous setting.
bool set_profile_paused(bool paused);

// Sets whether this thread is tracing or deriving; returns the previous setting.
bool set_profile_preparing(bool preparing);

// Whether the nodes visited by this walk are noted.
bool notes_tape(uint64_t walk);

// While one of these exists, attributes this thread's ops to something other than the running line: to the recorded
// instruction in a backward walk, or to an optimizer's step.
struct ProfiledFor {
  Phase phase;
  SourceLine line;  // borrowed; empty: the caller's line
  uint64_t node = 0;
  uint32_t module = 0;
  ProfiledFor* outer;

  explicit ProfiledFor(Phase p);
  ProfiledFor(SourceLine recorded_at, uint64_t seq, const void* thread);
  ProfiledFor(const ProfiledFor&) = delete;
  ~ProfiledFor();

 private:
  void enter();
};

// One event, from construction to `done`. Failed work leaves no event.
class ProfiledRun {
 public:
  ProfiledRun(const Op& op, Value* const* in, int n_in, const Attrs* attrs);
  ProfiledRun(const Program& p, Value* const* in, const int64_t* leaf_sizes);
  ProfiledRun(const FusedGroup& g, int64_t rows, int64_t cols, int64_t bytes);
  ProfiledRun(const ProfiledRun&) = delete;
  ~ProfiledRun();
  void done(Value* const* out, int n_out);

 private:
  void begin(uint64_t key, Signature (*describe)(const ProfiledRun&), DeviceId device);
  bool gave_views(Value* const* out, int n_out) const;

  const Op* op_ = nullptr;
  Value* const* in_ = nullptr;
  int n_in_ = 0;
  const Attrs* attrs_ = nullptr;
  const Program* program_ = nullptr;
  const FusedGroup* group_ = nullptr;
  int64_t rows_ = 0, cols_ = 0;
  int64_t bytes_ = 0, start_ = 0;
  uint32_t signature_ = 0;
  DeviceId device_ = kCpu;
  int64_t began_ = -1;
  uint32_t session_ = 0;   // the profile it belongs to; 0: not noted, inside a program that is not recorded in detail
  bool described_ = true;  // whether the types of the results are known
  bool hidden_before_ = false;
  int64_t within_ = -1;  // the enclosing program whose first run this is, by signature
};

}  // namespace wengert
