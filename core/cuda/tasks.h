// What a program does on a GPU, noted instead of done: kernels and products with the memory that they read and write.
#pragma once
#include <map>
#include <optional>
#include <set>

#include "../regions.h"
#include "device.h"

namespace wengert::cuda {

struct Range {
  const char *begin = nullptr, *end = nullptr;
  bool holds(const void* p) const { return p >= begin && p < end; }
};

// The memory that a value reaches.
Range range_of(const Value* v);

// A chain with its operands, kept to be planned again.
struct ElementCall {
  const Chain* chain;
  std::vector<int64_t> shape;
  int row_axes = 0;
  std::vector<Operand> in;
  std::vector<std::vector<int64_t>> strides;
  std::vector<std::vector<char>> numbers;  // bytes of the operands that are numbers
  std::vector<void*> out;
  std::shared_ptr<const Chain> owned;  // the chain, if it was made of those of these calls
  std::vector<std::shared_ptr<ElementCall>> sources;
  int64_t size() const;
  int64_t rows() const;
  bool is_packed(const int64_t* over) const;  // whether these strides are those of packed elements
  // The register that is written to this address; -1: none that has an element per point.
  int written_at(const void* data, DType dtype) const;
};

// A kernel that is not a chain, and lets others do elementwise work: one functor brings each pack of its operand,
// another uses each pack of its result, once. The first may be called again for packs whose result is thrown away, so
// it writes nothing. What the kernel reads at the place of a pack is read before the pack's result is used.
struct Ends {
  std::string function;  // with its template arguments; parameters: words, block_number, bring, use
  DType dtype;           // of operand and result, which are packed
  int pack;
  int64_t size;
  int result_word, operand_word;
  std::vector<int> same_place;  // words of operands of this dtype that are read at the same place
};

struct Task {
  struct Number {
    int32_t word;
    const void* data;  // of the host
    int64_t bytes;
    Dim size = 0;  // without data: of an attribute, as the program has it
  };
  BodyKernel* kernel = nullptr;  // null: a product of the library
  int64_t grid = 0;
  std::vector<int64_t> words;
  std::vector<Number> numbers;
  std::vector<const char*> reads, writes;  // the blocks of memory, by their beginnings
  std::optional<Product> product;          // of the library, or of a kernel of ours
  std::shared_ptr<ElementCall> elements;   // of a chain
  std::optional<Ends> ends;
};

struct Recording : NumberLog {
  std::shared_ptr<Arena> arena;
  std::vector<Task> tasks;
  std::vector<std::pair<int32_t, Ref>> numbers;             // results of the host's steps, by slot
  std::vector<std::pair<const char*, const char*>> staged;  // memory that may be elsewhere in other runs

  void add(BodyKernel& kernel, int64_t grid, const std::vector<int64_t>& words, int results);
  void add_library(const Product& product);
  // Of the chain whose kernel was added last: what it reads and writes, and where numbers are among its words.
  void describe_chain(const Chain& chain, const Space& space, const Operand* in, void* const* out);
  // Of the kernel that was added last.
  void describe_ends(Ends ends) { tasks.back().ends = std::move(ends); }
  // Memory that tasks use: what the program was given, and what it allocates.
  void add_block(const char* begin, size_t bytes);
  const char* block_of(const void* p) const;  // null: nobody writes there

  // The input register of a chain that is this array of so many packed elements, read element by element; -1: the chain
  // reads another part of it, or reads it otherwise.
  int register_of(const ElementCall& call, const void* array, DType dtype, int64_t size) const;

  // The draws that are described, by their step and a size as it has it.
  std::set<std::pair<const Step*, int64_t>> draws;
  // Of the task that was added last: its words from this one on are the key and the counter of a draw, the step's
  // attributes with these numbers.
  void describe_draw(int32_t word, int key, int counter);

  void add_number(int32_t slot, Value* number) override { numbers.emplace_back(slot, Ref::share(number)); }
  void set_step(const Step* s) override { step_ = s; }
  bool is_staged(const void* p) const {
    for (auto& [begin, end] : staged)
      if (p >= begin && p < end) return true;
    return false;
  }

 private:
  const Step* step_ = nullptr;
  std::map<const char*, const char*> blocks_;  // beginnings and ends
};

// Removes the tasks that were joined to others.
void drop(std::vector<Task>& tasks, const std::vector<bool>& gone);

}  // namespace wengert::cuda
