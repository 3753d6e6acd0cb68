#include "elementwise.h"

#include "../threads.h"
#include "op.h"

namespace wengert {

namespace {

enum class DTypeClass : uint8_t { any, number, real, floating, rfloat, wfloat, cfloat, bits, integer, boolean };
enum class ResultType : uint8_t { same, bool_, real, complex };

struct Record {
  const char* name;
  int operands;
  DTypeClass dtype_class;
  ResultType result;
};

constexpr ResultType result_of(const char* word) {
  switch (word[0]) {
    case 'b': return ResultType::bool_;
    case 'r': return ResultType::real;
    case 'c': return ResultType::complex;
    default: return ResultType::same;
  }
}

constexpr Record kRecords[] = {
#define ELEMENTWISE(name, operands, dtype_class, result) {#name, operands, DTypeClass::dtype_class, result_of(#result)},
#include "../kernels/elementwise.def"
#include "../kernels/elementwise_scalar.def"
#undef ELEMENTWISE
};

// Of truth values the larger is `or`, the smaller `and`.
bool is_extremum(const Op& op) { return op.kernel == Elementwise::maximum || op.kernel == Elementwise::minimum; }

const Record& record(const Op& op) { return kRecords[static_cast<int>(op.kernel)]; }

[[noreturn]] void reject(const Op& op, DType t, const char* wanted) {
  fail(ErrorKind::dtype, op.name.c_str(),
       std::string("got ") + name_of(t) + ", but it is defined for " + wanted + "; " +
           (is_complex(t) ? "take real(x), imag(x) or abs(x) first" : "convert with astype first"));
}

// What the op is defined for, if that does not include t; else null.
const char* refusal(const Op& op, DType t) {
  const bool truth = t == DType::Bool;
  switch (record(op).dtype_class) {
    case DTypeClass::number: return truth ? "numbers" : nullptr;
    case DTypeClass::real:
      if (truth && !is_extremum(op) && op.kernel != Elementwise::less && op.kernel != Elementwise::greater &&
          op.kernel != Elementwise::less_equal && op.kernel != Elementwise::greater_equal)
        return "real numbers";
      return is_complex(t) ? "real numbers (complex numbers have no order)" : nullptr;
    case DTypeClass::rfloat:
    case DTypeClass::wfloat: return is_complex(t) ? "real floating numbers" : nullptr;
    case DTypeClass::cfloat: return is_complex(t) ? nullptr : "complex numbers";
    case DTypeClass::bits: return truth || is_integer(t) ? nullptr : "bool and integers";
    case DTypeClass::integer: return is_integer(t) ? nullptr : "integers";
    default: return nullptr;
  }
}

DType computing_dtype(const Op& op, DType t) {
  const bool truth = t == DType::Bool;
  switch (record(op).dtype_class) {
    case DTypeClass::real: return truth && !is_extremum(op) ? DType::UInt8 : t;
    case DTypeClass::floating:
    case DTypeClass::rfloat: return truth || is_integer(t) ? DType::Float32 : t;
    case DTypeClass::wfloat: return t == DType::Float64 ? t : DType::Float32;
    case DTypeClass::boolean: return DType::Bool;
    default: return t;
  }
}

DType result_dtype(const Op& op, DType compute) {
  switch (record(op).result) {
    case ResultType::bool_: return DType::Bool;
    case ResultType::real: return real_of(compute);
    case ResultType::complex: return complex_of(compute);
    default: return compute;
  }
}

MapFn kernel_of(const Op& op, DType compute) {
  Elementwise kernel = op.kernel;
  if (compute == DType::Bool && is_extremum(op)) {
    kernel = kernel == Elementwise::maximum ? Elementwise::logical_or : Elementwise::logical_and;
  }
  return kernels().map[static_cast<int>(kernel)][static_cast<int>(compute)];
}

void infer_elementwise(const Op& op, const Type* in, int n_in, const Attrs&, Type* out) {
  const int first = op.n_conditions;
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
  if (const char* wanted = refusal(op, promoted)) reject(op, promoted, wanted);
  DType compute = computing_dtype(op, promoted);
  if (!kernel_of(op, compute)) reject(op, compute, "other dtypes only");
  return {compute, result_dtype(op, compute)};
}

void run_map_tiles(MapFn fn, Value* out, Value* const* in, int n_in) {
  const int64_t n = out->size;
  parallel_for((n + kElementwiseTile - 1) / kElementwiseTile, [&](int64_t tile) {
    const int64_t start = tile * kElementwiseTile;
    const void* at[3];
    for (int i = 0; i < n_in; ++i) at[i] = in[i]->data + start * size_of(in[i]->dtype);
    fn(out->data + start * size_of(out->dtype), at, std::min(kElementwiseTile, n - start));
  });
}

static const Op* by_kernel[kNumElementwise];

const Op& elementwise_op(Elementwise kernel) { return *by_kernel[static_cast<int>(kernel)]; }

static void add_ops() {
  for (int k = 0; k < kNumElementwise; ++k) {
    Op op;
    op.name = kRecords[k].name;
    op.n_inputs = kRecords[k].operands;
    op.infer = infer_elementwise;
    op.elementwise = true;
    op.kernel = static_cast<Elementwise>(k);
    op.fusion = FusionRole::map;
    op.n_conditions = op.kernel == Elementwise::where ? 1 : 0;
    op.compares = kRecords[k].operands == 2 && kRecords[k].result == ResultType::bool_ &&
                  (kRecords[k].dtype_class == DTypeClass::any || kRecords[k].dtype_class == DTypeClass::real);
    op.differentiable = kRecords[k].result != ResultType::bool_ && kRecords[k].dtype_class != DTypeClass::bits &&
                        kRecords[k].dtype_class != DTypeClass::integer;
    for (int t = 0; t < kNumDTypes; ++t) {
      const DType dtype = static_cast<DType>(t);
      if (refusal(op, dtype) || computing_dtype(op, dtype) != dtype) continue;
      op.map[t] = kernel_of(op, dtype);
      op.map_result[t] = result_dtype(op, dtype);
    }
    by_kernel[k] = &add_op(op);
  }
}
static const OpFamily family(add_ops);

}  // namespace wengert
