// A GPU as a device: its memory, its streams of work, kernels by source, and the ops that it has. Everything is started
// on the stream that the thread has chosen, and not waited for; copies to the host wait.
#pragma once
#include <map>
#include <optional>
#include <unordered_map>

#include "../device.h"
#include "../ops/op.h"
#include "blas.h"
#include "events.h"
#include "pool.h"
#include "source.h"

namespace wengert::cuda {

constexpr int kMostGpus = 64;
constexpr unsigned kNonBlocking = 1;  // of streams: they do not wait for the driver's default stream

// Memory is given up in the middle of other work, perhaps of another GPU, which finds its context as it was.
struct InContext {
  explicit InContext(Context context) { driver().cuCtxPushCurrent_v2(context); }
  InContext(const InContext&) = delete;
  ~InContext() {
    Context mine = nullptr;
    driver().cuCtxPopCurrent_v2(&mine);
  }
};

struct BodyKernel {
  Body body;
  Function function = nullptr;  // null: it has not been needed yet
};

struct BlockForm {
  int threads = 256;
  int shared = 0;          // bytes of shared memory that the kernel declares, at most
  int dynamic_shared = 0;  // bytes that the launch gives besides
  int resident = 1;        // blocks for which a multiprocessor has registers, at least
};

// A chain with the kernels that were made of it so far, one for each way in which operands lie in memory.
struct PreparedChain : Prepared {
  Chain chain;
  std::vector<std::pair<Form, BodyKernel*>> kernels;
  std::optional<std::vector<std::pair<ChainPart, std::unique_ptr<PreparedChain>>>> parts;  // once it was in a graph
};

struct Recording;

struct LaunchCounters {
  int64_t kernels = 0, copies = 0, graphs = 0, waits = 0;
};

// How many have asked that every op is waited for, so that an error of its kernels is raised by the op itself.
extern int waits_for_ops;

class CudaDevice : public Device {
 public:
  const int ordinal;
  int architecture = 0;
  LaunchCounters counters;
  bool graphs = true;     // programs that are run again are captured and replayed
  bool overlaps = false;  // a launch may begin before the one before it has ended: its kernel waits for that itself
  bool tf32 = false;      // products of float32 by the matrix units, in 10 bits

  explicit CudaDevice(int number);

  char* allocate(size_t bytes) override;
  void free(char* data, size_t bytes) noexcept override;
  void copy(const Value* from, Value* to) override;
  bool copy_across(const Value* from, Value* to) override;
  void fill(Value* to, const void* element) override;
  void run_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) override;
  void run_group(const GroupCall& call) override;
  bool run_program(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out, Value* const* donated,
                   int given) override;
  Buffer* allocate_host(size_t bytes) override;
  std::unique_ptr<Parked> park(const char* data, size_t bytes) override;
  void synchronise() override;

  PoolStats pool_stats() const { return pool_.stats; }
  void reset_peak();  // of memory, to what is in use now
  void empty_pool();
  std::string description() const;
  std::pair<size_t, size_t> free_memory();  // free, total
  int attribute(int which) const;           // one of the driver's CUdevice_attribute

  // The stream that this thread's work goes to: the GPU's own, unless the thread has chosen another one.
  Stream stream() const;
  Stream own_stream() const { return stream_; }
  Stream choose_stream(Stream stream);       // returns the one before
  Stream make_stream(int priority);          // lower numbers go first
  void give_back_stream(Stream stream);      // to be handed out again: streams live as long as the process
  void order(Stream other, Stream waiting);  // what `waiting` does from here on waits for what `other` was given so far
  bool is_done(Stream stream);
  void wait(Stream stream);  // the host; throws errors that occurred meanwhile
  std::unique_ptr<OwnEvent> make_event(bool timed);
  void record(OwnEvent& event, Stream stream);
  void wait(const OwnEvent& event);

  // Memory of other libraries that was used here is released when the work on it has been done.
  void release_later(void* owner, void (*release)(void*)) noexcept;
  void note_outside(const Buffer* buffer);  // another library learns its address

  // The functor of an elementwise op on operands of the iteration space's shape; numbers may lie on the host.
  void run_map(Elementwise op, DType dtype, Value* const* in, int n_in, Value* out);
  // Rows that are too long for the registers of a block are passed through memory, instruction by instruction.
  void run_chain(PreparedChain& prepared, const Space& space, const Operand* in, void* const* out);
  // A chain that an op is made of, by the op and a number of its own, written the first time.
  template <class Write>
  PreparedChain& prepared(const Op& op, int variant, Write&& write) {
    std::unique_ptr<PreparedChain>& found =
        chains_[static_cast<uint64_t>(op.id) << 32 | static_cast<uint32_t>(variant)];
    if (!found) {
      found = std::make_unique<PreparedChain>();
      write(*found);
    }
    return *found;
  }
  // A kernel of one of the device headers: `call` is an expression such as "fill<4>(words, block_number)". Threads come
  // in blocks of 256, at least `threads` of them. It writes where its first `results` words point to, and reads at
  // others. `shared`: bytes of shared memory of a block, at most.
  void run_kernel(const char* header, const std::string& call, const std::vector<int64_t>& words, int64_t threads,
                  int results = 1, int shared = 0);
  // The same with blocks of a form of their own.
  void run_blocks(const char* header, const std::string& call, const std::vector<int64_t>& words, int64_t blocks,
                  const BlockForm& form, int results = 1);
  void own_product(const Product& product);  // by a kernel of ours
  void multiply(const Product& product);     // by the library
  // Between these, launches and products are noted, and do not run.
  void begin_recording(Recording& recording);
  void end_recording();
  Recording* recording() const { return recording_; }
  // Between these, launches and products become nodes of a graph.
  void begin_capture();
  Graph end_capture();  // null: it could not be captured
  void launch(Function f, int64_t grid, int block, const std::vector<int64_t>& words, int dynamic_shared = 0);
  Function function(BodyKernel& kernel);
  std::vector<Function> functions(const std::vector<JoinedKernel>& kernels);
  void launch_graph(GraphExec exec);
  // Appends where a bad index is noted, and the op's number.
  void note_index(const Op& op, std::vector<int64_t>& words);
  // Says of the kernel that was run last that its words from this one on are the key and the counter of a draw, which
  // are the attributes with these numbers: a graph draws from another place in every run.
  void describe_draw(int word, int key, int counter);

 private:
  struct Release {
    void* owner;
    void (*release)(void*);
    std::vector<Event> events;
  };

  Context context_ = nullptr;
  Stream stream_ = nullptr;
  std::vector<Stream> others_;                        // streams that were chosen, or that copy
  Stream copying_ = nullptr;                          // copies contents that are parked
  std::map<int, std::vector<Stream>> spare_streams_;  // by priority
  std::unordered_map<Stream, int> priorities_;
  Events events_;
  Pool pool_{events_};
  std::vector<Release> releases_;
  std::unique_ptr<BlasHandle> blas_;
  std::unordered_map<Stream, void*> workspaces_;  // of products
  Recording* recording_ = nullptr;
  bool capturing_ = false;
  int64_t* note_ = nullptr;                              // three words of host memory that the GPU writes to
  std::unordered_map<std::string, BodyKernel> kernels_;  // by the text of their bodies
  std::unordered_map<std::string, std::vector<Function>> joined_;
  std::unordered_map<uint32_t, std::unique_ptr<PreparedChain>> maps_, casts_;
  std::unordered_map<uint64_t, std::unique_ptr<PreparedChain>> chains_;

  friend class ParkedContents;
  void enter() const;     // makes the GPU that of this thread
  Stream chosen() const;  // by this thread; null: the GPU's own
  void note_use(const Value* v);
  void release_what_is_done();
  void* workspace();
  BodyKernel& kernel(const Body& body) { return kernels_.try_emplace(body.text, BodyKernel{body}).first->second; }
  void run(BodyKernel& kernel, int64_t grid, const std::vector<int64_t>& words, int results = 1);
  Module module(const std::string& source);
  void run_planned(PreparedChain& prepared, const Space& space, const Operand* in, void* const* out);
  void check_note();
  void settle(const char* op);  // where ops are waited for
  void to_host(const Value* from, Value* to);
  void finish_copy(const Value* host);
  Ref filled(const Value* number);
  void from_host(const Value* from, Value* to);
  void copy_here(const Value* from, Value* to);
  void run_long_rows(const Chain& chain, const Space& space, const Operand* in, void* const* out);
};

// y = the reduction of x over the axes in the mask; y is packed.
void reduce_axes(CudaDevice& gpu, Reduction reduction, const Value* x, uint32_t mask, Value* y);

// y = x z, batch by batch, operands transposed where that is said; y is packed.
void multiply_into(CudaDevice& gpu, Value* x, bool x_transposed, Value* z, bool z_transposed, Value* y);

// A kernel of an op: fills packed outputs.
using Kernel = void (*)(CudaDevice& gpu, const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out);
Kernel find_kernel(const Op& op);  // null: it has none
void add_kernel(const char* op, Kernel kernel);

void register_memory_kernels();
void register_reduce_kernels();
void register_index_kernels();
void register_product_kernels();
void register_random_kernels();
void register_row_kernels();
void register_scan_kernels();
void register_sort_kernels();
void register_pool_kernels();
void register_resample_kernels();
void register_conv_kernels();
void register_recurrent_kernels();
void register_attention_kernels();
void register_series_kernels();

// The number of a GPU as a device, opened now if it was not yet. Throws a device error.
DeviceId open_device(int ordinal);

}  // namespace wengert::cuda
