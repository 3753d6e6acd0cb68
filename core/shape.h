// Shapes, types of values, and attributes of instructions.
#pragma once
#include <string>
#include <vector>

#include "dim.h"
#include "dtype.h"
#include "error.h"

namespace wengert {

inline constexpr int kMaxRank = 12;
[[noreturn]] void fail_rank();  // an error that says so

// A short list of sizes: a shape, a list of axes, a list of offsets.
struct Dims {
  int32_t n = 0;
  Dim v[kMaxRank];

  Dims() {}
  Dims(std::initializer_list<Dim> list) {
    for (Dim d : list) push(d);
  }
  void push(Dim d) {
    if (n == kMaxRank) fail_rank();
    v[n++] = d;
  }
  Dim& operator[](int i) { return v[i]; }
  Dim operator[](int i) const { return v[i]; }
  int size() const { return n; }
  const Dim* begin() const { return v; }
  const Dim* end() const { return v + n; }
};

inline bool operator==(const Dims& a, const Dims& b) {
  if (a.n != b.n) return false;
  for (int i = 0; i < a.n; ++i)
    if (!(a[i] == b[i])) return false;
  return true;
}

Dim product(const Dims& d);
std::string to_string(const Dims& d);  // "(3, 4)"

struct Type {
  DType dtype;
  Dims shape;
  uint8_t device = 0;  // of a value; what is said of programs says it of every device
};
std::string to_string(const Type& t);  // "float32(3, 4)"

// The common shape under broadcasting; throws a shape error that names the op and both shapes.
Dims broadcast(const char* op, const Dims& a, const Dims& b);

// What an instruction carries besides its operands. `sizes` may be symbolic and do not enter cache keys;
// everything else is static and does.
struct Attr {
  enum class Kind : uint8_t { integer, real, integers, sizes } kind = Kind::integer;
  int64_t i = 0;
  double f = 0;
  Dims dims;
};

struct AttrSpec {
  const char* name;
  Attr::Kind kind;
};

inline constexpr int kMaxAttrs = 6;
struct Attrs {
  int n = 0;
  Attr v[kMaxAttrs];
  Attrs() {}
  const Attr& operator[](int k) const { return v[k]; }
  Attr& add(Attr::Kind kind) {
    v[n].kind = kind;
    return v[n++];
  }
};

}  // namespace wengert
