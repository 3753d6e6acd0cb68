#include "elementwise.h"

#include "../threads.h"
#include "op.h"

namespace wengert {

namespace {

enum class DTypeClass : uint8_t { any, number, real, floating, rfloat, bits, integer, boolean };
enum class ResultType : uint8_t { same, bool_ };

struct Record {
  const char* name;
  int operands;
  DTypeClass dtype_class;
  ResultType result;
};

constexpr ResultType result_of(const char* word) { return word[0] == 'b' ? ResultType::bool_ : ResultType::same; }

constexpr Record kRecords[] = {
#define ELEMENTWISE(name, operands, dtype_class, result) \
  {#name, operands, DTypeClass::dtype_class, result_of(#result)},
#include "../kernels/elementwise.def"
#undef ELEMENTWISE
};

const Record& record(const Op& op) { return kRecords[static_cast<int>(op.kernel)]; }

[[noreturn]] void reject(const Op& op, DType t, const char* wanted) {
  fail(ErrorKind::dtype, op.name.c_str(),
       std::string("got ") + name_of(t) + ", but it is defined for " + wanted + "; convert with astype first");
}

DType computing_dtype(const Op& op, DType t) {
  bool truth = t == DType::Bool, whole = is_integer(t);
  switch (record(op).dtype_class) {
    case DTypeClass::any: return t;
    case DTypeClass::number:
      if (truth) reject(op, t, "numbers");
      return t;
    case DTypeClass::real:
      if (truth && op.kernel != Elementwise::less && op.kernel != Elementwise::greater &&
          op.kernel != Elementwise::less_equal && op.kernel != Elementwise::greater_equal)
        reject(op, t, "real numbers");
      if (is_complex(t)) reject(op, t, "real numbers (complex numbers have no order)");
      return truth ? DType::UInt8 : t;
    case DTypeClass::floating: return truth || whole ? DType::Float32 : t;
    case DTypeClass::rfloat:
      if (is_complex(t)) reject(op, t, "real floating numbers");
      return truth || whole ? DType::Float32 : t;
    case DTypeClass::bits:
      if (!truth && !whole) reject(op, t, "bool and integers");
      return t;
    case DTypeClass::integer:
      if (!whole) reject(op, t, "integers");
      return t;
    case DTypeClass::boolean: return DType::Bool;
  }
  return t;
}

void infer_elementwise(const Op& op, const Type* in, int n_in, const Attrs&, Type* out) {
  int first = op.kernel == Elementwise::where ? 1 : 0;
  DType compute = elementwise_types(op, in[first].dtype).compute;
  for (int i = 0; i < n_in; ++i) {
    DType wanted = i < first ? DType::Bool : compute;
    if (in[i].dtype != wanted)
      fail(ErrorKind::dtype, op.name.c_str(),
           "operand " + std::to_string(i) + " is " + to_string(in[i]) + ", expected " + name_of(wanted));
    if (!(in[i].shape == in[0].shape))
      fail(ErrorKind::shape, op.name.c_str(),
           "operands " + to_string(in[0]) + " and " + to_string(in[i]) + " have different shapes");
  }
  out[0] = {elementwise_types(op, compute).result, in[first].shape};
}

}  // namespace

ElementwiseTypes elementwise_types(const Op& op, DType promoted) {
  DType compute = computing_dtype(op, promoted);
  if (!kernels().map[static_cast<int>(op.kernel)][static_cast<int>(compute)])
    reject(op, compute, "other dtypes only");
  return {compute, record(op).result == ResultType::bool_ ? DType::Bool : compute};
}

void run_map(MapFn fn, char* out, int64_t out_size, const char* const* in, const int64_t* in_size, int n_in,
             int64_t n) {
  if (n < 2 * kElementwiseTile) {
    fn(out, reinterpret_cast<const void* const*>(in), n);
    return;
  }
  parallel_for((n + kElementwiseTile - 1) / kElementwiseTile, [&](int64_t tile) {
    int64_t start = tile * kElementwiseTile, count = std::min(kElementwiseTile, n - start);
    const void* at[3];
    for (int i = 0; i < n_in; ++i) at[i] = in[i] + start * in_size[i];
    fn(out + start * out_size, at, count);
  });
}

void register_elementwise_ops() {
  for (int k = 0; k < kNumElementwise; ++k) {
    Op op;
    op.name = kRecords[k].name;
    op.n_inputs = kRecords[k].operands;
    op.infer = infer_elementwise;
    op.elementwise = true;
    op.kernel = static_cast<Elementwise>(k);
    op.differentiable = kRecords[k].result == ResultType::same &&
                        kRecords[k].dtype_class != DTypeClass::bits && kRecords[k].dtype_class != DTypeClass::integer;
    add_op(op);
  }
}

}  // namespace wengert
