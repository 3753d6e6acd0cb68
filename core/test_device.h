// A device for tests, on machines that have no other: the CPU behind an interface that nothing can reach around. What
// tensors point to is memory that nobody may touch; the bytes lie at a fixed distance from it. Every call is counted,
// and ops can be taken away.
#pragma once
#include <map>
#include <set>

#include "device.h"

namespace wengert {

class TestDevice : public Device {
 public:
  std::map<std::string, int64_t> calls;  // by method, and "op <name>"
  std::set<std::string> refused;         // ops that it has not
  size_t most_bytes = size_t{1} << 30;

  TestDevice();
  char* allocate(size_t bytes) override;
  void free(char* data, size_t bytes) noexcept override;
  void copy(const Value* from, Value* to) override;
  void fill(Value* to, const void* element) override;
  void run_op(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) override;
  void run_group(const GroupCall& call) override;
  void synchronise() override;

 private:
  char *seen_, *real_;  // what tensors point to, and where the bytes are
  size_t used_ = 0;
  std::multimap<size_t, char*> spare_;

  struct Opened;
  Value* open(const Value* v) const;
};

}  // namespace wengert
