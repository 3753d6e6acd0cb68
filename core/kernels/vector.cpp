// The vector kernels of one instruction set. The build compiles this file once per set, with
//   -DWENGERT_ISA_NAMESPACE=isa_v3 -DWENGERT_ISA_NAME="x86-64-v3" -march=x86-64-v3
//   -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math
// All code is in the set's own namespace: nothing compiled here may be shared with another set.
#include "vector.h"

#include "vector_cast.h"
#include "vector_map.h"
#include "vector_reduce.h"

namespace wengert::WENGERT_ISA_NAMESPACE {

namespace {

constexpr VectorKernels make_table() {
  VectorKernels table{};
  table.instruction_set = WENGERT_ISA_NAME;
  fill_map(table);
  fill_cast(table);
  fill_reduce(table);
  return table;
}

constexpr VectorKernels kTable = make_table();

}  // namespace

const VectorKernels& table();
const VectorKernels& table() { return kTable; }

}  // namespace wengert::WENGERT_ISA_NAMESPACE
