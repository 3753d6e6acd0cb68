#include "op.h"

#include <algorithm>
#include <unordered_map>

#include "../kernels/strided.h"
#include "../profile.h"
#include "../threads.h"
#include "elementwise.h"

namespace wengert {

namespace {

std::vector<Op*>& ops() {
  static std::vector<Op*> list;
  return list;
}

std::unordered_map<std::string, Op*>& names() {
  static std::unordered_map<std::string, Op*> map;
  return map;
}

// The longest run of trailing axes over which every operand is packed, in elements; `outer` axes are left.
int64_t packed_row(Value* const* in, int n_in, int& outer) {
  const Value* shaped = in[n_in - 1];
  int64_t row = 1;
  for (outer = shaped->ndim; outer > 0; --outer) {
    const int64_t size = shaped->shape[outer - 1];
    for (int i = 0; i < n_in; ++i)
      if (in[i]->strides[outer - 1] != row && size != 1) return row;
    row *= size;
  }
  return row;
}

// Where each operand's row number `position` begins.
void locate_row(Value* const* in, int n_in, int outer, int64_t position, const char** at) {
  int64_t offset[3] = {};
  for (int a = outer - 1; a >= 0; --a) {
    const int64_t size = in[n_in - 1]->shape[a], index = position % size;
    position /= size;
    for (int i = 0; i < n_in; ++i) offset[i] += index * in[i]->strides[a];
  }
  for (int i = 0; i < n_in; ++i) at[i] = in[i]->data + offset[i] * size_of(in[i]->dtype);
}

// Operands that repeat or skip whole rows (a bias, a slice): the kernel runs row by row, and nothing is copied.
void run_rows(MapFn fn, Value* const* in, int n_in, Value* out, int64_t row, int outer) {
  const int64_t rows = out->size / row, tile_rows = std::max<int64_t>(1, kElementwiseTile / row);
  const int64_t inner = out->shape[outer - 1], row_bytes = row * size_of(out->dtype);
  int64_t step[3] = {};  // from row to row, in bytes, along the innermost axis of rows
  for (int i = 0; i < n_in; ++i) step[i] = in[i]->strides[outer - 1] * size_of(in[i]->dtype);
  parallel_for((rows + tile_rows - 1) / tile_rows, [&](int64_t tile) {
    const int64_t end = std::min(rows, (tile + 1) * tile_rows);
    for (int64_t r = tile * tile_rows; r < end;) {
      const char* at[3] = {};
      locate_row(in, n_in, outer, r, at);
      for (const int64_t stop = std::min(end, r - r % inner + inner); r < stop; ++r) {
        fn(out->data + r * row_bytes, reinterpret_cast<const void* const*>(at), row);
        for (int i = 0; i < 3; ++i) at[i] += step[i];
      }
    }
  });
}

// Operands with other strides are gathered into blocks, so that every element goes through the same vector kernel.
void run_blocks(MapFn fn, Value* const* in, int n_in, Value* out) {
  constexpr int64_t kBlock = 1024;
  const int64_t out_size = size_of(out->dtype), n = out->size;
  bool uniform[3];
  alignas(64) char filled[3][kBlock * 16];
  for (int i = 0; i < n_in; ++i) {
    uniform[i] = !in[i]->contiguous && is_uniform(in[i]);
    if (uniform[i]) fill(filled[i], in[i]->data, size_of(in[i]->dtype), std::min(n, kBlock));
  }
  auto block = [&](int64_t start, int64_t count, char (*scratch)[kBlock* 16]) {
    const void* at[3];
    for (int i = 0; i < n_in; ++i) {
      const Value* v = in[i];
      int64_t size = size_of(v->dtype);
      if (uniform[i]) {
        at[i] = filled[i];
      } else if (v->contiguous) {
        at[i] = v->data + start * size;
      } else {
        gather_block(scratch[i], v->data, v->strides, v->ndim, v->shape, size, start, count);
        at[i] = scratch[i];
      }
    }
    fn(out->data + start * out_size, at, count);
  };
  parallel_for((n + kElementwiseTile - 1) / kElementwiseTile, [&](int64_t tile) {
    alignas(64) char scratch[3][kBlock * 16];
    int64_t end = std::min(n, (tile + 1) * kElementwiseTile);
    for (int64_t s = tile * kElementwiseTile; s < end; s += kBlock) block(s, std::min(kBlock, end - s), scratch);
  });
}

void run_strided(MapFn fn, Value* const* in, int n_in, Value* out) {
  constexpr int64_t kWorthACall = 64;
  int outer;
  const int64_t row = packed_row(in, n_in, outer);
  if (row >= kWorthACall)
    run_rows(fn, in, n_in, out, row, outer);
  else
    run_blocks(fn, in, n_in, out);
}

}  // namespace

Op& add_op(Op op) {
  Op* added = new Op(std::move(op));  // ops live as long as the process
  added->id = static_cast<int>(ops().size());
  ops().push_back(added);
  names()[added->name] = added;
  return *added;
}

std::shared_ptr<const Op> add_temporary_op(Op op) {
  static int next_id = 1 << 20;  // above the ids of all other ops
  op.id = next_id++;
  auto* added = new Op(std::move(op));
  names()[added->name] = added;
  std::shared_ptr<const Op> owner(added, [](const Op* gone) {
    names().erase(gone->name);
    delete gone;
  });
  added->owned = owner;
  return owner;
}

Op* find_op(const std::string& name) {
  auto it = names().find(name);
  return it == names().end() ? nullptr : it->second;
}

const std::vector<Op*>& all_ops() { return ops(); }

int normalize_axis(const char* op, int64_t axis, int ndim) {
  if (axis < -ndim || axis >= ndim)
    fail(ErrorKind::shape, op,
         "axis " + std::to_string(axis) + " is out of range for " + std::to_string(ndim) + " dimension(s)");
  return static_cast<int>(axis < 0 ? axis + ndim : axis);
}

namespace {

[[noreturn, gnu::noinline]] void refuse(const Op& op, Value* const* in, int n_in) {
  const Value* shaped = in[n_in - 1];
  for (int i = 0; i + 1 < n_in; ++i)
    if (!same_shape(in[i], shaped))
      fail(ErrorKind::shape, op.name.c_str(),
           "operands " + to_string(in[i]->type()) + " and " + to_string(shaped->type()) + " have different shapes");
  elementwise_types(op, shaped->dtype);  // a dtype that the op is not defined for
  fail(ErrorKind::dtype, op.name.c_str(), "operands must be converted to one dtype that it computes in");
}

bool fits(const Op& op, const Value* v, int position, const Value* shaped) {
  if (v->dtype != shaped->dtype && !(position < op.n_conditions && v->dtype == DType::Bool)) return false;
  return same_shape(v, shaped);
}

}  // namespace

Value* run_elementwise(const Op& op, Value* const* in, int n_in, Value* spare) {
  const Value* shaped = in[n_in - 1];
  bool ok = op.map[static_cast<int>(shaped->dtype)] != nullptr;
  for (int i = 0; i + 1 < n_in; ++i) ok = ok && fits(op, in[i], i, shaped);
  if (!ok) [[unlikely]]
    refuse(op, in, n_in);
  return run_unified(op, in, n_in, spare);
}

namespace {

// Whether the elements fill their memory without gaps, in any order of the axes.
bool is_dense(const Value* v) {
  int64_t step = 1;
  for (bool found = true; found && step < v->size;) {
    found = false;
    for (int i = 0; i < v->ndim && !found; ++i)
      if (v->shape[i] > 1 && v->strides[i] == step) {
        step *= v->shape[i];
        found = true;
      }
  }
  return step == v->size;
}

// Whether all operands have their elements in the same memory order, such as all transposed in the same way.
bool share_a_dense_layout(Value* const* in, int n_in) {
  for (int k = 1; k < n_in; ++k)
    for (int i = 0; i < in[0]->ndim; ++i)
      if (in[0]->shape[i] > 1 && in[k]->strides[i] != in[0]->strides[i]) return false;
  return is_dense(in[0]);
}

// Gives the result the layout of its operands, so that memory is read and written in order.
[[gnu::noinline]] Value* run_in_layout(const Op& op, Value* const* in, int n_in) {
  const int dtype = static_cast<int>(in[n_in - 1]->dtype);
  Value* y = empty_like(in[0], op.map_result[dtype]);
  std::copy_n(in[0]->strides, y->ndim, y->strides);
  y->contiguous = false;
  run_map(op.map[dtype], y, in, n_in);
  return y;
}

[[gnu::noinline]] Value* run_unified_on_device(const Op& op, Value* const* in, int n_in, Value* spare) {
  static const Attrs none;
  const DeviceId device = common_device(op.name.c_str(), in, n_in);
  const Value* shaped = in[n_in - 1];
  Ref y(spare ? spare : nullptr);
  if (spare)
    retain(spare);
  else
    y = Ref(empty(op.map_result[static_cast<int>(shaped->dtype)], shaped->dims(), Category::activation, device));
  device_at(device).run_op(op, in, n_in, none, &y.v);
  return y.take();
}

// Handles few elements of packed operands and numbers. Returns false, having done nothing, for other operands.
[[gnu::noinline]] bool run_with_numbers(MapFn fn, Value* const* in, int n_in, Value* out) {
  constexpr int64_t kFew = 256;
  if (out->size > kFew) return false;
  alignas(64) char filled[3][kFew * 16];
  const void* at[3];
  for (int i = 0; i < n_in; ++i) {
    at[i] = in[i]->data;
    if (in[i]->contiguous) continue;
    if (!is_uniform(in[i])) return false;
    fill(filled[i], in[i]->data, size_of(in[i]->dtype), out->size);
    at[i] = filled[i];
  }
  fn(out->data, at, out->size);
  return true;
}

Value* compute_unified(const Op& op, Value* const* in, int n_in, Value* spare) {
  const Value* shaped = in[n_in - 1];
  const int dtype = static_cast<int>(shaped->dtype);
  MapFn fn = op.map[dtype];
  bool direct = true;
  unsigned device = kCpu;
  for (int i = 0; i < n_in; ++i) {
    direct &= in[i]->contiguous;
    device |= in[i]->device;
  }
  if (device != kCpu) [[unlikely]]
    return run_unified_on_device(op, in, n_in, spare);
  if (!direct && !spare && share_a_dense_layout(in, n_in)) return run_in_layout(op, in, n_in);
  Value* y = spare;
  if (y)
    retain(y);
  else
    y = empty_like(shaped, op.map_result[dtype]);
  if (direct) [[likely]]
    run_map(fn, y, in, n_in);
  else if (y->size && !run_with_numbers(fn, in, n_in, y))
    run_strided(fn, in, n_in, y);
  return y;
}

[[gnu::noinline, gnu::cold]] Value* profile_unified(const Op& op, Value* const* in, int n_in, Value* spare) {
  ProfiledRun event(op, in, n_in, nullptr);
  Value* y = compute_unified(op, in, n_in, spare);
  event.done(&y, 1);
  return y;
}

// The device on which an op runs. Without operands, it is the one on which new tensors are placed.
DeviceId device_for(const Op& op, Value* const* in, int n_in) {
  if (n_in == 0) return op.on_host ? kCpu : placement;
  unsigned any = kCpu;
  for (int i = 0; i < n_in; ++i) any |= in[i]->device;
  return any == kCpu ? kCpu : common_device(op.name.c_str(), in, n_in);
}

// Copies and users' own kernels handle values of any device.
void compute(DeviceId device, const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  if (device == kCpu || op.moves || !op.owned.expired())
    op.compute(op, in, n_in, attrs, out);
  else
    device_at(device).run_op(op, in, n_in, attrs, out);
}

void compute_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  if (op.elementwise) {
    out[0] = run_elementwise(op, in, n_in);
    return;
  }
  const DeviceId device = device_for(op, in, n_in);
  constexpr int kInline = 8;
  Type inline_types[kInline];
  std::vector<Type> many;
  Type* types = inline_types;
  if (n_in > kInline) {
    many.resize(n_in);
    types = many.data();
  }
  for (int i = 0; i < n_in; ++i) types[i] = in[i]->type();
  Type result[kMaxOutputs];
  op.infer(op, types, n_in, attrs, result);
  if (op.view) {
    out[0] = op.view(op, in[0], attrs, result[0]);
    if (out[0]) return;
  }
  Ref made[kMaxOutputs];
  Value* fresh[kMaxOutputs];
  for (int i = 0; i < op.n_outputs; ++i) {
    const DeviceId target = op.moves ? static_cast<DeviceId>(attrs[attrs.n - 1].i) : device;
    const bool in_background = op.moves && target == kCpu && device != kCpu && copies_in_background;
    made[i] = Ref(in_background ? empty_on_host(result[i].dtype, result[i].shape, device)
                                : empty(result[i].dtype, result[i].shape, Category::activation, target));
    fresh[i] = made[i].v;
  }
  Interruptible results_are_new;
  compute(device, op, in, n_in, attrs, fresh);
  for (int i = 0; i < op.n_outputs; ++i) out[i] = made[i].take();
}

[[gnu::noinline, gnu::cold]] void profile_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs,
                                             Value** out) {
  ProfiledRun event(op, in, n_in, &attrs);
  compute_op(op, in, n_in, attrs, out);
  event.done(out, op.n_outputs);
}

}  // namespace

bool keeps_layout(Value* const* in, int n_in) {
  bool packed = true;
  for (int i = 0; i < n_in; ++i) packed &= in[i]->contiguous;
  return !packed && share_a_dense_layout(in, n_in);
}

Value* run_unified(const Op& op, Value* const* in, int n_in, Value* spare) {
  if (profiling) [[unlikely]]
    return profile_unified(op, in, n_in, spare);
  return compute_unified(op, in, n_in, spare);
}

void run_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  if (op.elementwise) {
    out[0] = run_elementwise(op, in, n_in);
    return;
  }
  if (profiling) [[unlikely]]
    return profile_op(op, in, n_in, attrs, out);
  compute_op(op, in, n_in, attrs, out);
}

static const OpFamily* families = nullptr;  // set before any constructor runs

OpFamily::OpFamily(void (*add)()) : add(add), next(families) { families = this; }

void register_ops() {
  for (const OpFamily* f = families; f; f = f->next) f->add();
}

}  // namespace wengert
