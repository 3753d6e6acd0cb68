// Matrix products by cuBLASLt: row-major, batched, operands transposed by their strides.
#pragma once
#include "../dtype.h"
#include "libraries.h"

namespace wengert::cuda {

// A matrix of a batch; strides in elements.
struct MatrixOperand {
  const void* data;
  int64_t batch, row, col;
};

struct Product {
  DType dtype;
  int64_t batch, m, n, k;
  MatrixOperand a, b;
  void* y;  // packed
  bool tf32 = false;
};

// Whether cuBLASLt takes these operands as they lie; others are packed first.
bool fits_blas(const MatrixOperand& x, int64_t rows, int64_t cols);

// Whether this thread's products take the library's own first choice of an algorithm, which is the same in every
// process, rather than the one that was fastest here.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local bool fixed_algorithms;

class BlasHandle {
 public:
  static constexpr size_t kWorkspace = size_t{32} << 20;
  explicit BlasHandle(int architecture);
  // `workspace`: memory of the stream's own. Throws a device error. The first product of a shape is computed by several
  // algorithms, and the fastest one is kept, for later processes as well: results repeat to the bit. While work is
  // captured, nothing can be timed.
  void run(const Product& p, Stream stream, void* workspace, bool captured);

 private:
  void* handle_ = nullptr;
  int architecture_;
};

}  // namespace wengert::cuda
