#include "shape.h"

#include <algorithm>

namespace wengert {

void fail_rank() {
  throw Error(ErrorKind::shape, "a tensor has at most " + std::to_string(kMaxRank) +
                                    " axes; join some with reshape, or use fewer indices");
}

Dim product(const Dims& d) {
  Dim p(1);
  for (Dim x : d) p = p * x;
  return p;
}

std::string to_string(const Dims& d) {
  std::string s = "(";
  for (int i = 0; i < d.n; ++i) {
    if (i) s += ", ";
    s += to_string(d[i]);
  }
  return s + (d.n == 1 ? ",)" : ")");
}

std::string to_string(const Type& t) { return std::string(name_of(t.dtype)) + to_string(t.shape); }

Dims broadcast(const char* op, const Dims& a, const Dims& b) {
  Dims out;
  out.n = std::max(a.n, b.n);
  for (int i = 0; i < out.n; ++i) {
    int ia = i - (out.n - a.n), ib = i - (out.n - b.n);
    if (ia < 0) {
      out[i] = b[ib];
    } else if (ib < 0 || b[ib].raw == 1) {
      out[i] = a[ia];
    } else if (a[ia].raw == 1 || a[ia] == b[ib]) {
      out[i] = b[ib];
    } else if (a[ia] == Dim(1)) {
      out[i] = b[ib];
    } else if (b[ib] == Dim(1)) {
      out[i] = a[ia];
    } else {
      fail(ErrorKind::shape, op,
           "shapes " + to_string(a) + " and " + to_string(b) +
               " do not broadcast: sizes of an axis must be equal, or one of them 1");
    }
  }
  return out;
}

}  // namespace wengert
