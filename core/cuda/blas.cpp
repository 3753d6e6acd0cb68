#include "blas.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "../code_cache.h"
#include "../error.h"

namespace wengert::cuda {

namespace {

// Numbers of cublasLt.h and library_types.h.
constexpr int kReal32 = 0, kReal64 = 1, kReal16 = 2, kComplex32 = 4, kComplex64 = 5, kBrain16 = 14;
constexpr int kCompute32 = 68, kCompute64 = 70, kComputeTf32 = 77;
constexpr int kDescTransposeA = 3, kDescTransposeB = 4;
constexpr int kLayoutBatchCount = 5, kLayoutBatchStride = 6;
constexpr int kPreferenceWorkspace = 1;

constexpr int kCandidates = 8;  // algorithms that are timed
// Rounds in which each is run a few times: an idle GPU begins slowly, so that the first would seem slow.
constexpr int kTimedRuns = 4, kFewestRounds = 2, kMostRounds = 10;
constexpr float kLongEnough = 4.0f;  // milliseconds of all rounds

void check_blas(Status status, const char* call) {
  if (status)
    throw Error(ErrorKind::device, std::string("matmul: ") + call + " failed with status " + std::to_string(status));
}

int type_of(DType t) {
  switch (t) {
    case DType::Float64: return kReal64;
    case DType::Float16: return kReal16;
    case DType::BFloat16: return kBrain16;
    case DType::Complex64: return kComplex32;
    case DType::Complex128: return kComplex64;
    default: return kReal32;
  }
}

// What cuBLASLt calls a matrix: column-major. Of ours, row-major, it sees the transpose, so it is asked for
// yᵀ = bᵀ aᵀ: an operand whose rows are packed is taken as it is, one whose columns are packed, transposed.
struct Stored {
  bool transposed;
  int64_t rows, cols, leading;
};

Stored stored(const MatrixOperand& x, int64_t rows, int64_t cols) {
  if (x.col == 1 || cols == 1) return {false, cols, rows, rows == 1 ? cols : std::max(x.row, cols)};
  return {true, rows, cols, std::max(x.col, rows)};
}

using Key = std::tuple<int, bool, int64_t, int64_t, int64_t, int64_t, bool, int64_t, int64_t, bool, int64_t, int64_t>;

// Descriptions for one shape, and its algorithm, or those to choose from.
struct Plan {
  void *description = nullptr, *a = nullptr, *b = nullptr, *y = nullptr;
  std::vector<BlasHeuristic> choices;  // in the library's order
  std::optional<BlasHeuristic> fastest;
};

std::map<Key, Plan>& plans() {
  static auto* map = new std::map<Key, Plan>;
  return *map;
}

void* layout(int type, const Stored& s, int64_t batch, int64_t batch_stride) {
  void* made = nullptr;
  check_blas(blas().cublasLtMatrixLayoutCreate(&made, type, static_cast<uint64_t>(s.rows),
                                               static_cast<uint64_t>(s.cols), s.leading),
             "cublasLtMatrixLayoutCreate");
  const int count = static_cast<int>(batch);
  blas().cublasLtMatrixLayoutSetAttribute(made, kLayoutBatchCount, &count, sizeof(count));
  blas().cublasLtMatrixLayoutSetAttribute(made, kLayoutBatchStride, &batch_stride, sizeof(batch_stride));
  return made;
}

Plan make_plan(const Product& p, const Stored& first, const Stored& second, void* handle) {
  const Blas& lt = blas();
  const int type = type_of(p.dtype);
  const bool wide = p.dtype == DType::Float64 || p.dtype == DType::Complex128;
  const int compute = wide ? kCompute64 : p.tf32 && !is_half(p.dtype) ? kComputeTf32 : kCompute32;
  const int scale = is_half(p.dtype) ? kReal32 : type;
  Plan plan;
  check_blas(lt.cublasLtMatmulDescCreate(&plan.description, compute, scale), "cublasLtMatmulDescCreate");
  const int transpose_first = first.transposed, transpose_second = second.transposed;
  lt.cublasLtMatmulDescSetAttribute(plan.description, kDescTransposeA, &transpose_first, sizeof(int));
  lt.cublasLtMatmulDescSetAttribute(plan.description, kDescTransposeB, &transpose_second, sizeof(int));
  plan.a = layout(type, first, p.batch, p.b.batch);
  plan.b = layout(type, second, p.batch, p.a.batch);
  plan.y = layout(type, {false, p.n, p.m, p.n}, p.batch, p.m * p.n);
  void* preference = nullptr;
  check_blas(lt.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const uint64_t most = BlasHandle::kWorkspace;
  lt.cublasLtMatmulPreferenceSetAttribute(preference, kPreferenceWorkspace, &most, sizeof(most));
  int found = 0;
  plan.choices.resize(kCandidates);
  const Status status = lt.cublasLtMatmulAlgoGetHeuristic(handle, plan.description, plan.a, plan.b, plan.y, plan.y,
                                                          preference, kCandidates, plan.choices.data(), &found);
  lt.cublasLtMatmulPreferenceDestroy(preference);
  if (status || !found)
    throw Error(ErrorKind::device, "matmul: cuBLASLt has no algorithm for " + std::string(name_of(p.dtype)) + " " +
                                       std::to_string(p.m) + "x" + std::to_string(p.k) + " by " + std::to_string(p.k) +
                                       "x" + std::to_string(p.n));
  plan.choices.resize(static_cast<size_t>(found));
  return plan;
}

// What a choice depends on, besides the shape.
std::string text_of(const Key& key, int architecture) {
  std::string text = "products 2, cuBLASLt " + std::to_string(blas().cublasLtGetVersion()) + ", sm_" +
                     std::to_string(architecture) + ":";
  std::apply([&](auto... part) { ((text += " " + std::to_string(static_cast<int64_t>(part))), ...); }, key);
  return text;
}

struct Timer {
  Event begin = nullptr, end = nullptr;
  Timer() {
    checked(driver().cuEventCreate(&begin, 0), "cuEventCreate");
    checked(driver().cuEventCreate(&end, 0), "cuEventCreate");
  }
  Timer(const Timer&) = delete;
  ~Timer() {
    driver().cuEventDestroy_v2(begin);
    driver().cuEventDestroy_v2(end);
  }
  // Milliseconds of the calls of f on the stream.
  template <class F>
  float of(Stream stream, int calls, F&& f) const {
    checked(driver().cuEventRecord(begin, stream), "cuEventRecord");
    for (int k = 0; k < calls; ++k) f();
    checked(driver().cuEventRecord(end, stream), "cuEventRecord");
    checked(driver().cuEventSynchronize(end), "cuEventSynchronize");
    float milliseconds = 0;
    checked(driver().cuEventElapsedTime(&milliseconds, begin, end), "cuEventElapsedTime");
    return milliseconds;
  }
};

// The fastest of the plan's algorithms by `run(algorithm)`, which returns its status.
template <class Run>
BlasHeuristic fastest(std::vector<BlasHeuristic> choices, Stream stream, Run&& run) {
  const Timer timer;
  const BlasHeuristic first = choices[0];
  std::erase_if(choices, [&](const BlasHeuristic& choice) { return choice.status || run(choice); });
  if (choices.empty()) return first;
  std::vector<float> shortest(choices.size(), std::numeric_limits<float>::infinity());
  float spent = 0;
  for (int round = 0; round < kMostRounds && (round < kFewestRounds || spent < kLongEnough); ++round)
    for (size_t k = 0; k < choices.size(); ++k) {
      const float taken = timer.of(stream, kTimedRuns, [&] { run(choices[k]); });
      shortest[k] = std::min(shortest[k], taken);
      spent += taken;
    }
  const auto best = std::min_element(shortest.begin(), shortest.end()) - shortest.begin();
  return choices[static_cast<size_t>(best)];
}

}  // namespace

constinit thread_local bool fixed_algorithms = false;

bool fits_blas(const MatrixOperand& x, int64_t rows, int64_t cols) {
  if (x.col == 1 || cols == 1) return rows == 1 || x.row >= cols;
  return (x.row == 1 || rows == 1) && x.col >= rows;
}

BlasHandle::BlasHandle(int architecture) : architecture_(architecture) {
  check_blas(blas().cublasLtCreate(&handle_), "cublasLtCreate");
}

void BlasHandle::run(const Product& p, Stream stream, void* workspace, bool captured) {
  const Stored first = stored(p.b, p.k, p.n), second = stored(p.a, p.m, p.k);
  const Key key{
      static_cast<int>(p.dtype), p.tf32,         p.batch,  p.m, p.n, p.k, first.transposed, first.leading, p.b.batch,
      second.transposed,         second.leading, p.a.batch};
  auto found = plans().find(key);
  if (found == plans().end()) found = plans().emplace(key, make_plan(p, first, second, handle_)).first;
  Plan& plan = found->second;
  const float one_float[2] = {1, 0}, zero_float[2] = {};
  const double one_double[2] = {1, 0}, zero_double[2] = {};
  const bool wide = p.dtype == DType::Float64 || p.dtype == DType::Complex128;
  const void* one = wide ? static_cast<const void*>(one_double) : one_float;
  const void* zero = wide ? static_cast<const void*>(zero_double) : zero_float;
  const auto multiply = [&](const BlasHeuristic& choice) {
    return blas().cublasLtMatmul(handle_, plan.description, one, p.b.data, plan.a, p.a.data, plan.b, zero, p.y, plan.y,
                                 p.y, plan.y, choice.algorithm, workspace, kWorkspace, stream);
  };
  BlasHeuristic chosen = plan.choices[0];
  if (plan.choices.size() > 1 && !captured && !fixed_algorithms && !plan.fastest) {
    const std::string text = text_of(key, architecture_);
    std::string kept;
    if (read_cached("cuda", text, kept) && kept.size() == sizeof(chosen.algorithm)) {
      std::memcpy(chosen.algorithm, kept.data(), kept.size());
    } else {
      chosen = fastest(plan.choices, stream, multiply);
      write_cached("cuda", text, {reinterpret_cast<const char*>(chosen.algorithm), sizeof(chosen.algorithm)});
    }
    plan.fastest = chosen;
  }
  if (plan.fastest && !fixed_algorithms) chosen = *plan.fastest;
  check_blas(multiply(chosen), "cublasLtMatmul");
}

}  // namespace wengert::cuda
