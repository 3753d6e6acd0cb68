// The tape: records instructions, walks them backwards, decides what is saved. It executes derivative programs that it
// is given and knows nothing of how they were derived. All of it runs under the GIL.
#pragma once
#include <functional>
#include <unordered_map>

#include "anomaly.h"
#include "path_ends.h"
#include "replay.h"

namespace wengert {

struct Edge {
  Node* node;
  uint32_t output;
};

struct Saved {
  Value* value;
  uint32_t version;
};

// How long a node's results stay tracked: while the tape with this number records, or while the transformation with
// this extent number runs. With neither, forever.
struct Lifetime {
  uint32_t tape = 0, extent = 0;
  bool lasting() const { return (tape | extent) == 0; }
};

// Whether a node still has what its backward step reads: in memory, or partly as references to blocks that may have to
// be recomputed. If not, who freed it.
enum class Saving : uint8_t { kept, replayable, freed_by_backward, freed_by_clear };

struct alignas(64) Node {
  static constexpr int kInline = 3;
  uint32_t refs;
  uint16_t n_edges, n_saved;
  bool leaf : 1, retains_grad : 1;
  Saving saving : 2;
  uint8_t zero_edges;  // edges whose cotangent was zero, as bits; the last bit covers all remaining edges
  uint16_t n_outputs;
  uint32_t walk_slot;
  // Few nodes use these fields. They are adjacent so that clearing a new node takes few instructions.
  union {
    uint64_t walk_id;
    Node* next_doomed;  // when the last reference is gone
  };
  Lifetime lifetime;
  uint64_t id;  // of leaves, and of intermediates that retain their gradient
  Alias* grad;  // likewise; shared with the tensors handed out by `.grad`, so writing to one of those writes to it
  int64_t* sizes;
  void* hooks;  // a Python list
  Type* types;  // of the outputs, where there are several; of a leaf
  union {
    void* custom;       // a Python callable that replaces `derivative` (custom ops)
    void* final_hooks;  // of a leaf: a Python list, called when its gradient is final
  };
  // What every recorded instruction has:
  uint64_t seq;  // the order of recording: an instruction comes after all that it depends on
  const Derivative* derivative;
  Edge* edges;
  Saved* saved;
  SourceLine line;
  // All recorded nodes, linked, for statistics and for freeing them at once; `thread` is the recording thread's.
  Node *previous, *following;
  const void* thread;
  Edge inline_edges[kInline];
  Saved inline_saved[kInline];
  uint32_t end;  // number of a path end (path_ends.h) among the operands; 0 if none
};

extern int64_t n_final_hooks;  // leaves that have them
Node* new_leaf(uint64_t id, Lifetime lifetime, const Type& type);
inline void retain(Node* n) { ++n->refs; }
// release(Node*) is declared in value.h; nodes are destroyed by queue, never by recursion.

struct Tape {
  uint32_t epoch = 0;  // of what was recorded since the tape was cleared
  bool recording = false;
  uint32_t start = 0;                              // last_made() when recording began
  std::vector<Node*> nodes;                        // in order of recording
  std::vector<std::shared_ptr<const Call>> calls;  // the same, and calls that have no derivative
  // Tensors that are tracked only while this tape records: tensor id -> value whose edge leads to a leaf owned by the
  // tape.
  std::unordered_map<uint64_t, Value*> handles;
  void clear();
  ~Tape();
};

struct CastPolicy;

struct ThreadState {
  bool grad_enabled = true;
  std::vector<Tape*>* tapes = nullptr;  // recording now, outermost first
  int n_tapes = 0;
  int n_extents = 0;                     // reverse-mode transformations that are running
  bool capturing = false;                // compile() is tracing: ops on plain tensors become instructions too
  const CastPolicy* autocast = nullptr;  // precision that ops run in; null: that of their operands
  bool watched = false;   // a tape records, a trace captures, or autocast is on: the slow path must look at operands
  bool replays = false;   // calls are remembered, so that their results can be dropped and recomputed
  bool logs = false;      // a tape records, or calls are remembered: calls are logged
  bool observed = false;  // calls are logged, or results are checked: calls are examined after they ran
  Checks checks = Checks::none;
  Node* pulled = nullptr;  // the node whose derivative is being computed, while results are checked

  void set_tapes(int n) {
    n_tapes = n;
    update();
  }
  // Recomputes the flags above after a change to what they depend on.
  void update() {
    watched = n_tapes || capturing || autocast;
    logs = n_tapes || replays;
    observed = logs || checks == Checks::results;
  }
};
// The initial-exec TLS model makes each access one instruction instead of a call; every op reads this.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local ThreadState thread_state;

// The value to record for a tensor that nothing else tracks: one handle per tensor and outermost tape, so that tapes of
// different threads do not see each other's. Borrowed; the tape owns it.
Value* tape_handle(uint64_t id, Value* v);

void start(Tape& t);
void stop(Tape& t);
// The tapes of this thread record nothing until they are resumed.
void pause_tapes();
void resume_tapes();
// The extent of a reverse-mode transformation is the call of the function that it differentiates. Leaves made for it
// are tracked, in every thread, until it ends; afterwards a result stays tracked only if it also depends on another
// leaf.
uint32_t begin_extent();
void end_extent(uint32_t extent);

// The longer of two lifetimes.
Lifetime longer(Lifetime a, Lifetime b);
bool still_tracked(Lifetime lifetime);  // of one that is not lasting

inline bool active(const Node* n) { return n->lifetime.lasting() || still_tracked(n->lifetime); }
inline bool tracked(const Value* v) { return v->node && active(v->node); }
// A leaf that the user made, as opposed to one that represents an argument of a transformation.
inline bool lasting_leaf(const Value* v) { return v->node && v->node->leaf && v->node->lifetime.lasting(); }

// Callbacks that the bindings provide to the tape; set once at import.
struct TapeHooks {
  SourceLine (*source_line)() = nullptr;  // a new reference
  void (*drop_line)(SourceLine) = nullptr;
  void (*drop_object)(void*) = nullptr;  // a PyObject reference
  std::string (*describe_line)(SourceLine) = nullptr;
  bool (*any_hooks)(void* hooks) = nullptr;  // not if they were all removed again
  // Calls hooks on a gradient: takes a reference, returns one.
  Value* (*call_hooks)(void* hooks, Value* gradient) = nullptr;
  void (*call_final_hooks)(void* hooks) = nullptr;
  // Runs a custom op's backward; outputs as for a vjp program. `record`: the result itself must be differentiable.
  void (*call_custom)(Node* n, Value* const* bars, Value** out, bool record) = nullptr;
};
extern TapeHooks tape_hooks;

// Keeps operands alive while large work runs without the GIL: another thread may rebind the tensor that owns one.
struct KeepAlive {
  static constexpr int64_t kLarge = 16384;  // in elements; smaller work is never split over threads
  Value* const* in;
  int n;
  bool held = false;
  KeepAlive(Value* const* values, int count) : in(values), n(count) {
    for (int i = 0; i < n; ++i) held |= in[i]->size >= kLarge;
    if (held)
      for (int i = 0; i < n; ++i) retain(in[i]);
  }
  KeepAlive(const KeepAlive&) = delete;
  ~KeepAlive() {
    if (held)
      for (int i = 0; i < n; ++i) release(in[i]);
  }
};

// Runs an op and records it if a gradient is needed. Outputs are new references.
void apply(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out);
// The same for an elementwise op, on operands of one shape and the dtype it computes in.
Value* apply_elementwise(const Op& op, Value* const* in, int n_in);
// The same when the derivative (and forward program) is already known, as for compiled functions.
void apply_derivative(const Derivative& d, Value* const* in, int n_in, const Attrs* attrs, Value** out);
// The same for a derived program, given the sizes it needs. An output is null if it is a symbolic zero.
void apply(Derived& p, Value* const* in, int n_in, const int64_t* given, Value** out);
// Whether an operand is tracked, or was computed from something tracked. The results of an untracked op then remember
// where that path ended. `differentiable`: the op has a derivative, but ran under no_grad.
inline bool led_to_leaves(Value* const* in, int n_in) {
  for (int i = 0; i < n_in; ++i)
    if (in[i]->node || at_end(in[i])) return true;
  return false;
}
void end_path(const char* op, bool differentiable, Value* const* in, int n_in, Value* const* out, int n_out);
// The tracked operands as a bit mask; 0 if nothing is being recorded.
uint64_t tracked_mask(Value* const* in, int n_in);
bool any_tracked(Value* const* in, int n_in);
// Records an instruction whose outputs exist already.
void record(const Derivative& d, Value* const* in, int n_in, const Attrs* attrs, const int64_t* given,
            Value* const* out, Value* const* residuals);
void record_custom(void* custom, Value* const* in, int n_in, Value* const* out, int n_out);

// Records an op that ran: its node, and the call if a tape records.
void record_op(const Op& op, const Derivative& d, Value* const* in, int n_in, const Attrs& attrs, Value* const* out);

// The log entry of a call. Its results are the outputs, followed by what was computed only for backward.
struct Logged {
  std::string_view name;
  Value* const* in;
  int n_in;
  Value* const* results;  // null where one is a symbolic zero
  int n_results, n_outputs;
  Node* node = nullptr;    // null: it has no derivative, or none was wanted
  void* python = nullptr;  // borrowed
};
// Adds a call to the recording tapes and, under a budget or policy, remembers how to recompute its results.
void log_call(const Logged& call, Work&& work);
void log_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value* const* out, Node* node = nullptr);
// Throws if an operand that the call read from outside the tape has been overwritten since.
void check_operands(const Call& call);

struct Root {
  Value* value;
  Value* seed;  // null: one
};

struct WalkOptions {
  bool retain_graph = false;
  bool accumulate = false;                     // into .grad of leaves
  bool all_leaves = false;                     // collect every leaf reached
  bool record = false;                         // record the backward computation, so that it can be differentiated
  const std::vector<Edge>* sources = nullptr;  // compute only these
};

struct WalkResult {
  std::vector<Value*> sources;  // new references; null if not connected, or if the gradient is a symbolic zero
  std::vector<bool> reached;
  std::vector<std::pair<uint64_t, Value*>> leaves;  // id and gradient, new references
  int64_t nodes_run = 0, edges_computed = 0;
};

// Reverse mode: runs every node's vjp program once, latest first. Throws; gradients computed so far are dropped.
WalkResult walk(const std::vector<Root>& roots, const WalkOptions& options);

// A saved value as an operand; a saved output gets its edge back. Recomputed if it was dropped. A new reference.
Value* saved_operand(Node* n, int i);

// Adds to this node's `.grad`. Borrows the gradient.
void keep_grad(Node* n, Value* gradient);

// x += y where nobody else can see x, otherwise a new sum. Takes x's reference, borrows y.
Value* accumulate(Value* x, Value* y);

// The saved values of a node in the order its vjp program reads them; throws if overwritten or freed.
void check_saved(const Node* n);

// Raises an error that says who freed this node's saved values, and what to do.
[[noreturn, gnu::noinline, gnu::cold]] void fail_freed(const Node* n);

// Whether the saved values were released.
inline bool is_freed(const Node* n) { return n->saving > Saving::replayable; }
inline void free_saved(Node* n) {
  for (int i = 0; i < n->n_saved; ++i) {
    note_unsaved(n->saved[i].value->buffer);
    release(n->saved[i].value);
  }
  n->n_saved = 0;
}

uint64_t new_id();
uint64_t last_recorded();  // Node::seq of the latest node
void drop_free_objects();  // returns the memory of pooled nodes and values to the system

const Node* latest_recorded();  // across all threads; follow `previous` for the others
// Frees everything that this thread's recorded instructions keep; they can no longer be differentiated.
void clear_recorded();

}  // namespace wengert
