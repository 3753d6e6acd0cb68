#include "profile.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <unordered_map>
#include <utility>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "program.h"

namespace wengert {

constinit bool profiling = false;
ProfileHooks profile_hooks;
ProfileLog profile_log;

namespace {

int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

#if defined(__x86_64__)
// Whether the processor's counter runs at one speed on all cores: reading it takes a third of the system's clock.
bool has_steady_counter() {
  unsigned a, b, c, d;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
}
const bool steady_counter = has_steady_counter();
#endif

// Where modules begin and end in one thread's recording order.
struct Boundary {
  uint64_t seq;  // everything recorded after it
  uint32_t module;
};

std::unordered_map<uint64_t, uint32_t> known;                       // signatures by key
std::unordered_map<const void*, std::vector<Boundary>> boundaries;  // by thread
uint32_t session = 0;                                               // raised by every outermost profile
uint16_t n_threads = 0;                                             // threads that have events
int64_t last_tick = 0, last_ns = 0;                                 // a second look at both clocks

struct ThreadProfile {
  uint32_t session = 0;
  uint16_t number = 0;
  uint32_t module = 0;
  uint8_t depth = 0;
  bool hidden = false;  // inside a program that is not recorded in detail
  bool paused = false, preparing = false;
  int64_t paused_at = 0, preparing_since = 0;
  int64_t within = -1;  // the program whose first run this is, by signature
  ProfiledFor* work = nullptr;
};
thread_local constinit ThreadProfile mine;

ThreadProfile& this_thread() {
  if (mine.session != session) {
    mine = {.session = session, .number = n_threads++};
  }
  return mine;
}

bool unseen(const ThreadProfile& t) { return t.hidden || t.paused; }

// Begins or ends a span; returns whether it was open.
bool switch_span(const ThreadProfile& t, ProfileSpan::Kind kind, bool& open, int64_t& since, bool opens) {
  const int64_t now = profile_ticks();
  if (opens && !open) since = now;
  if (!opens && open) profile_log.spans.push_back({kind, t.number, since, now});
  return std::exchange(open, opens);
}

// Mixes a number into a key. 64 bits are enough to tell a few thousand signatures apart.
void mix(uint64_t& key, uint64_t x) {
  key = (key ^ x) * 0x9e3779b97f4a7c15u;
  key ^= key >> 29;
}

void mix(uint64_t& key, const Dims& dims) {
  mix(key, static_cast<uint64_t>(dims.n));
  for (Dim d : dims) mix(key, static_cast<uint64_t>(d.raw));
}

void mix(uint64_t& key, const Value* v) {
  mix(key, static_cast<uint64_t>(v->dtype) << 8 | v->ndim);
  for (int i = 0; i < v->ndim; ++i) mix(key, static_cast<uint64_t>(v->shape[i]));
}

void mix(uint64_t& key, const Attrs& attrs) {
  for (int k = 0; k < attrs.n; ++k) {
    const Attr& a = attrs[k];
    if (a.kind == Attr::Kind::integer)
      mix(key, static_cast<uint64_t>(a.i));
    else if (a.kind == Attr::Kind::real)
      mix(key, std::bit_cast<uint64_t>(a.f));
    else
      mix(key, a.dims);
  }
}

// The bytes of memory behind a value; elements repeated by zero strides count once.
int64_t touched_bytes(const Value* v) {
  int64_t n = size_of(v->dtype);
  for (int i = 0; i < v->ndim; ++i)
    if (v->strides[i] != 0 || v->shape[i] == 0) n *= v->shape[i];
  return n;
}

Type type_of(DType dtype, std::initializer_list<int64_t> shape) {
  Type t{dtype, {}};
  for (int64_t n : shape) t.shape.push(n);
  return t;
}

// Where the work on operands is done: numbers on the host go with any device.
DeviceId device_of(Value* const* in, int n_in) {
  for (int i = 0; i < n_in; ++i)
    if (in[i]->device != kCpu) return in[i]->device;
  return placement;
}

SourceLine line_of(const ThreadProfile& t) {
  return t.work && t.work->line.code ? profile_hooks.share_line(t.work->line) : profile_hooks.source_line();
}

void note(const Buffer* b, int64_t bytes) {
  if (profile_log.memory.size() >= 2 * profile_log.most_events || this_thread().paused) return;
  const SourceLine line = bytes > 0 ? line_of(this_thread()) : SourceLine{};
  profile_log.memory.push({profile_ticks(), b, bytes, line, b->category});
}

const MemoryWatch watch = {
    .allocated = [](const Buffer* b) { note(b, static_cast<int64_t>(b->bytes)); },
    .freed = [](const Buffer* b) { note(b, -static_cast<int64_t>(b->bytes)); },
};

void clear_tape() {
  for (const TapeNode& n : profile_log.tape)
    if (n.line.code) drop_source_line(n.line);
  profile_log.tape.clear();
  profile_log.tape_walk = 0;
}

void clear_log() {
  for (size_t i = 0; i < profile_log.events.size(); ++i)
    if (profile_log.events[i].line.code) drop_source_line(profile_log.events[i].line);
  for (size_t i = 0; i < profile_log.memory.size(); ++i)
    if (profile_log.memory[i].line.code) drop_source_line(profile_log.memory[i].line);
  profile_log.events.clear();
  if (profile_hooks.device_times.forget)
    for (int device = 1; has_device(device); ++device) profile_hooks.device_times.forget(static_cast<DeviceId>(device));
  profile_log.memory.clear();
  profile_log.signatures.clear();
  profile_log.spans.clear();
  clear_tape();
  profile_log.dropped = 0;
  known.clear();
  boundaries.clear();
  n_threads = 0;
}

}  // namespace

int64_t profile_ticks() {
#if defined(__x86_64__)
  if (steady_counter) return static_cast<int64_t>(__rdtsc());
#endif
  return steady_ns();
}

int64_t profile_nanoseconds(int64_t tick) {
  const double ticks = static_cast<double>(last_tick - profile_log.first_tick);
  const double speed = ticks > 0 ? static_cast<double>(last_ns - profile_log.first_ns) / ticks : 1.0;
  return static_cast<int64_t>(static_cast<double>(tick - profile_log.first_tick) * speed);
}

bool notes_tape(uint64_t walk) {
  constexpr size_t kMostNodes = 20000;
  if (!profile_log.tape_walk) profile_log.tape_walk = walk;
  return profile_log.tape_walk == walk && profile_log.tape.size() < kMostNodes;
}

void start_profile(bool detailed, size_t most_events) {
  clear_tape();
  if (profile_log.running++ == 0) {
    clear_log();
    ++session;
    profile_log.most_events = most_events;
    profile_log.first_ns = steady_ns();
    profile_log.first_tick = profile_ticks();
    watch_memory(&watch);
    profiling = true;
  }
  profile_log.most_events = std::max(profile_log.most_events, most_events);
  profile_log.detailed += detailed;
}

void stop_profile(bool detailed) {
  last_ns = steady_ns();
  last_tick = profile_ticks();
  profile_log.detailed -= detailed;
  if (--profile_log.running) return;
  profiling = false;
  watch_memory(nullptr);
}

uint32_t set_profiled_module(uint32_t module, uint64_t last_seq, const void* thread) {
  ThreadProfile& t = this_thread();
  boundaries[thread].push_back({last_seq, module});
  return std::exchange(t.module, module);
}

bool set_profile_paused(bool paused) {
  ThreadProfile& t = this_thread();
  return switch_span(t, ProfileSpan::Kind::profiler, t.paused, t.paused_at, paused);
}

bool set_profile_preparing(bool preparing) {
  if (!profiling) return false;
  ThreadProfile& t = this_thread();
  return switch_span(t, ProfileSpan::Kind::preparing, t.preparing, t.preparing_since, preparing);
}

void ProfiledFor::enter() {
  ThreadProfile& t = this_thread();
  outer = t.work;
  t.work = this;
}

ProfiledFor::ProfiledFor(Phase p) : phase(p), module(this_thread().module) { enter(); }

ProfiledFor::ProfiledFor(SourceLine recorded_at, uint64_t seq, const void* thread)
    : phase(Phase::backward), line(recorded_at), node(seq) {
  if (auto found = boundaries.find(thread); found != boundaries.end()) {
    const std::vector<Boundary>& all = found->second;
    auto after = std::lower_bound(all.begin(), all.end(), seq, [](const Boundary& b, uint64_t s) { return b.seq < s; });
    if (after != all.begin()) module = std::prev(after)->module;
  }
  enter();
}

ProfiledFor::~ProfiledFor() {
  if (mine.work == this) mine.work = outer;
}

void ProfiledRun::begin(uint64_t key, Signature (*describe)(const ProfiledRun&), DeviceId device) {
  ThreadProfile& t = this_thread();
  auto [found, fresh] = known.try_emplace(key, static_cast<uint32_t>(profile_log.signatures.size()));
  if (fresh) {
    profile_log.signatures.push_back(describe(*this));
    described_ = false;
  }
  signature_ = found->second;
  session_ = session;
  hidden_before_ = t.hidden;
  within_ = t.within;
  ++t.depth;
  device_ = device;
  if (device != kCpu && profile_hooks.device_times.mark && profile_log.events.size() < profile_log.most_events)
    began_ = profile_hooks.device_times.mark(device);
  start_ = profile_ticks();
}

ProfiledRun::ProfiledRun(const Op& op, Value* const* in, int n_in, const Attrs* attrs)
    : op_(&op), in_(in), n_in_(n_in), attrs_(attrs) {
  if (unseen(this_thread())) return;
  uint64_t key = static_cast<uint64_t>(op.id) << 8 | static_cast<uint64_t>(Signature::Kind::op);
  for (int i = 0; i < n_in; ++i) {
    mix(key, in[i]);
    bytes_ += touched_bytes(in[i]);
  }
  if (attrs) mix(key, *attrs);
  begin(
      key,
      [](const ProfiledRun& r) {
        Signature::Part part{r.op_->name, {}, {}, {}};
        for (int i = 0; i < r.n_in_; ++i) part.in.push_back(r.in_[i]->type());
        if (r.attrs_) part.attrs.assign(r.attrs_->v, r.attrs_->v + r.attrs_->n);
        return Signature{.kind = Signature::Kind::op, .name = r.op_->name, .parts = {std::move(part)}};
      },
      device_of(in, n_in));
}

ProfiledRun::ProfiledRun(const Program& p, Value* const* in, const int64_t* leaf_sizes) : in_(in), program_(&p) {
  ThreadProfile& t = this_thread();
  if (unseen(t)) return;
  uint64_t key = p.id << 8 | static_cast<uint64_t>(Signature::Kind::program);
  for (int i = 0; i < p.n_inputs; ++i) bytes_ += touched_bytes(in[i]);
  mix(key, static_cast<uint64_t>(bytes_));
  for (size_t i = 0; i < p.sizes.leaves.size(); ++i) mix(key, static_cast<uint64_t>(leaf_sizes[i]));
  begin(
      key, [](const ProfiledRun& r) { return Signature{.kind = Signature::Kind::program, .name = r.program_->name}; },
      device_of(in, p.n_inputs));
  t.within = described_ ? -1 : static_cast<int64_t>(signature_);
  t.hidden = described_ && !profile_log.detailed;  // its contents are known from the first run
}

ProfiledRun::ProfiledRun(const FusedGroup& g, int64_t rows, int64_t cols, int64_t bytes)
    : group_(&g), rows_(rows), cols_(cols), bytes_(bytes) {
  if (unseen(this_thread())) return;
  uint64_t key = static_cast<uint64_t>(Signature::Kind::group);
  mix(key, static_cast<uint64_t>(rows));
  mix(key, static_cast<uint64_t>(cols));
  for (auto& [op, i] : g.source) mix(key, static_cast<uint64_t>(op->id) << 8 | i.row);
  begin(
      key,
      [](const ProfiledRun& r) {
        Signature s{.kind = Signature::Kind::group};
        auto type = [&](int16_t k) {
          const FusedRegister& of = r.group_->registers[k];
          return of.row ? type_of(of.dtype, {r.rows_}) : type_of(of.dtype, {r.rows_, r.cols_});
        };
        for (auto& [op, i] : r.group_->source) {
          Signature::Part part{op->name, {}, {type(i.out)}, {}};
          for (int n = 0; n < i.n_in; ++n) part.in.push_back(type(i.in[n]));
          s.parts.push_back(std::move(part));
        }
        return s;
      },
      kCpu);
  described_ = true;
}

ProfiledRun::~ProfiledRun() {
  if (session_ != session) return;
  --mine.depth;
  mine.hidden = hidden_before_;
  mine.within = within_;
}

// Whether no data was moved: all results share memory with operands that were not written either.
bool ProfiledRun::gave_views(Value* const* out, int n_out) const {
  if (op_) return op_->view && out[0]->buffer == in_[0]->buffer;
  if (!program_ || !profile_log.signatures[signature_].only_views) return false;
  return std::all_of(out, out + n_out, [&](const Value* y) {
    return !y || std::any_of(in_, in_ + program_->n_inputs, [&](const Value* x) { return x->buffer == y->buffer; });
  });
}

void ProfiledRun::done(Value* const* out, int n_out) {
  if (session_ != session) return;  // a new log was started in the meantime
  const int64_t end = profile_ticks();
  ThreadProfile& t = this_thread();
  if (!described_ && op_)
    for (int i = 0; i < n_out; ++i) profile_log.signatures[signature_].parts[0].out.push_back(out[i]->type());
  if (gave_views(out, n_out)) {
    bytes_ = 0;
  } else {
    for (int i = 0; i < n_out; ++i)
      if (out[i]) bytes_ += touched_bytes(out[i]);
  }
  if (within_ >= 0) {
    Signature& around = profile_log.signatures[static_cast<size_t>(within_)];
    ++around.inner[signature_];
    around.only_views &= op_ && op_->view;
  }
  if (t.depth > 1 && !profile_log.detailed) return;
  if (profile_log.events.size() >= profile_log.most_events) {
    ++profile_log.dropped;
    return;
  }
  const ProfiledFor* work = t.work;
  profile_log.events.push({
      .start = start_,
      .end = end,
      .line = line_of(t),
      .node = work && work->node ? work->node : profile_hooks.last_recorded() + 1,
      .bytes = bytes_,
      .live = static_cast<int64_t>(memory_pool.stats.live_bytes),
      .signature = signature_,
      .module = work ? work->module : t.module,
      .thread = t.number,
      .phase = work ? work->phase : Phase::forward,
      .depth = static_cast<uint8_t>(t.depth - 1),
      .device = device_,
      .began = began_,
      .finished = began_ < 0 ? -1 : profile_hooks.device_times.mark(device_),
  });
}

}  // namespace wengert
