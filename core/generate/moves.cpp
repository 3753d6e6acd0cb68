#include <algorithm>
#include <string_view>

#include "writer.h"

namespace wengert::generate {

namespace {

void fill(Text& text, const Location& y, const std::string& value) {
  if (y.size() == 0) return;
  text.open_loop("i", y.size());
  text.line(y.element("i") + " = " + value + ";");
  text.close();
}

// The part of y that begins at `starts` and goes on in `steps`, in the shape of x.
Location part_of(const Location& y, const Dims& starts, const Dims& steps, const Location& x) {
  int64_t strides[kMaxRank], offset = y.offset;
  for (int i = 0; i < y.layout->ndim; ++i) {
    strides[i] = y.layout->strides[i] * steps[i].raw;
    offset += y.layout->strides[i] * starts[i].raw;
  }
  return {make_layout(y.layout->dtype, x.layout->dims(), strides), y.base, offset, y.array};
}

void write_cast(Text& text, const Location& x, const Location& y) {
  const Location packed = text.packed(x);
  std::vector<Register> registers = {{x.layout->dtype, false, "", packed.address(), false},
                                     {y.layout->dtype, false, "", y.base, true}};
  FusedInstruction i{};
  i.kind = FusedInstruction::Kind::cast;
  i.n_in = 1;
  i.out = 1;
  i.cast = kernels().cast[static_cast<int>(x.layout->dtype)][static_cast<int>(y.layout->dtype)];
  write_group(text, registers, {i}, y.size(), 1);
}

}  // namespace

bool is_move(const Op& op) {
  constexpr std::string_view kMoves[] = {"contiguous", "cast", "full", "concat", "unslice", "slice_update"};
  return std::find(std::begin(kMoves), std::end(kMoves), op.name) != std::end(kMoves);
}

void write_move(Text& text, const Op& op, const std::vector<const Location*>& in, const Attrs& attrs,
                const Location& y) {
  if (op.name == "contiguous") {
    text.copy(*in[0], y);
  } else if (op.name == "cast") {
    write_cast(text, *in[0], y);
  } else if (op.name == "full") {
    alignas(16) char one[16];
    set_scalar(y.layout->dtype, one, attrs[2].f);
    fill(text, y, text.constant(y.layout->dtype, one));
  } else if (op.name == "concat") {
    const int ndim = y.layout->ndim, axis = normalize_axis(op.name.c_str(), attrs[0].i, ndim);
    Dims starts, steps;
    for (int i = 0; i < ndim; ++i) {
      starts.push(0);
      steps.push(1);
    }
    for (const Location* x : in) {
      text.copy(*x, part_of(y, starts, steps, *x));
      starts[axis] = starts[axis] + Dim(x->layout->shape[axis]);
    }
  } else if (op.name == "unslice") {
    alignas(16) const char zero[16] = {};
    fill(text, y, text.constant(y.layout->dtype, zero));
    text.copy(*in[0], part_of(y, attrs[1].dims, attrs[2].dims, *in[0]));
  } else {  // slice_update
    text.copy(*in[0], y);
    text.copy(*in[1], part_of(y, attrs[0].dims, attrs[1].dims, *in[1]));
  }
}

}  // namespace wengert::generate
