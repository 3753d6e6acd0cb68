// CUDA C++ from chains of elementwise instructions, row reductions and broadcasts of their results: one kernel per
// chain and way in which its operands lie in memory. The functors are those of the CPU's kernels (device_group.h
// includes them), so an elementwise result is the same on both, but for what the C library computes.
#pragma once
#include <string>
#include <vector>

#include "../kernels/vector.h"
#include "blas.h"
#include "kernel_text.h"

namespace wengert::cuda {

// What a kernel computes. A register holds an element per point of the iteration space, or one per row of it.
struct Chain {
  struct Register {
    DType dtype;
    bool row = false;
    bool input = false, output = false;
    bool constant = false;
    char bytes[16] = {};  // of a constant
  };
  struct Instruction {
    enum class Kind : uint8_t { map, cast, reduce, expand } kind;
    Elementwise op = Elementwise::count;
    Reduction reduction = Reduction::count;
    uint8_t n_in = 1;
    int16_t in[3] = {};
    int16_t out = 0;
  };
  std::vector<Register> registers;
  std::vector<Instruction> code;
  bool rows = false;
};

// The points that a chain runs over: an iteration space whose last `row_axes` axes make a row.
struct Space {
  int ndim;
  const int64_t* shape;
  int row_axes = 0;  // 0 without rows
};

// Where an operand lies. Strides are in elements, one for each axis of the iteration space; of a row register, one for
// each axis of the rows. A number is in the host's memory instead, and is passed to the kernel. Outputs are packed.
struct Operand {
  const void* data;
  const int64_t* strides;
  bool number = false;
};

// How a kernel reaches an input.
enum class Access : uint8_t {
  packed,         // element upon element
  uniform,        // one element for all
  number,         // one element for all, among the words
  strided,        // by its strides
  strided_packs,  // by its strides; neighbours along the last axis are packed and aligned
};

// What is known when a kernel is compiled. Everything else is in its words.
struct Form {
  uint8_t pack = 1;               // elements that a thread loads together
  bool wide = false;              // positions need 64 bits
  uint8_t axes = 0;               // of the iteration space, after joining; of rows only, with rows
  uint8_t row_axes = 0;           // with rows: joined axes within a row
  int16_t threads = 0, each = 0;  // with rows: threads of a row, elements of a thread
  std::vector<Access> access;     // by input register, in order
  bool operator==(const Form&) const = default;
};

struct Launch {
  Form form;
  std::vector<int64_t> words;  // outputs, inputs, sizes, constants, shape, strides of strided inputs
  int64_t grid = 0;            // 0: nothing to do
  int block = 0;
};

// How to run a chain: `out` are the addresses of its output registers, `in` its inputs, both in the order
// of the registers.
Launch plan(const Chain& chain, const Space& space, const Operand* in, void* const* out, int most_pack = 8);

// A dtype as device code writes it: "DType::Float32".
std::string dtype_text(DType t);

Body body(const Chain& chain, const Form& form);

// The kernel that runs the body alone.
std::string source(const Chain& chain, const Form& form);

// A small matrix product (device_product.h). With a chain without rows: each element y of the product is its register
// `given` in the chain's iteration space, planned with packs of one or of `product_pack`, and is stored itself only if
// it is `kept`.
inline constexpr int kProductWords = 13;
Body product_body(const Product& product);
int64_t product_tile(const Product& product);  // a block makes so many rows and columns
int64_t product_pack(const Product& product);  // neighbours that a thread makes and can do more with at once
Body product_body(const Product& product, bool kept, const Chain& chain, const Form& form, int given);

// Elementwise work at the ends of another kernel, by packs: a chain without rows, planned for such packs, of which one
// register is what the kernel reads or makes.
struct EndChain {
  const Chain* chain;
  Form form;
  int joint;
};
// The kernel's body with functors for its ends. `function`: with its template arguments; its own words come first, then
// those of the chains. `from` and `to` are what brings and uses packs without a chain; with one, a result that is
// `kept` is stored besides.
Body body_with_ends(const Body& kernel, const std::string& function, const std::string& from, const EndChain* before,
                    const std::string& to, const EndChain* after, bool kept);

// Of a chain without rows, the parts that have nothing to do with each other, with the numbers of their inputs and
// outputs among the chain's. Empty if it is one.
struct ChainPart {
  Chain chain;
  std::vector<int> inputs, outputs;
};
std::vector<ChainPart> independent_parts(const Chain& chain, const Operand* in);

}  // namespace wengert::cuda
