#include "writer.h"

namespace wengert::generate {

namespace {

void write_fill(Text& text, double number, const Location& y) {
  alignas(16) char one[16];
  set_scalar(y.layout->dtype, one, number);
  const std::string value = text.constant(y.layout->dtype, one);
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

void write_joined(Text& text, const std::vector<const Location*>& in, int axis, const Location& y) {
  Dims starts, steps;
  for (int i = 0; i < y.layout->ndim; ++i) {
    starts.push(0);
    steps.push(1);
  }
  for (const Location* x : in) {
    text.copy(*x, part_of(y, starts, steps, *x));
    starts[axis] = starts[axis] + Dim(x->layout->shape[axis]);
  }
}

}  // namespace

bool is_move(const Op& op) { return op.placing != Placing::none && op.placing != Placing::size; }

void write_move(Text& text, const Op& op, const std::vector<const Location*>& in, const Attrs& attrs,
                const Location& y) {
  switch (op.placing) {
    case Placing::copy: text.copy(*in[0], y); break;
    case Placing::convert: write_cast(text, *in[0], y); break;
    case Placing::fill: write_fill(text, attrs[2].f, y); break;
    case Placing::join: write_joined(text, in, normalize_axis(op.name.c_str(), attrs[0].i, y.layout->ndim), y); break;
    case Placing::in_zeros:
      write_fill(text, 0, y);
      text.copy(*in[0], part_of(y, attrs[1].dims, attrs[2].dims, *in[0]));
      break;
    case Placing::in_a_copy:
      text.copy(*in[0], y);
      text.copy(*in[1], part_of(y, attrs[0].dims, attrs[1].dims, *in[1]));
      break;
    case Placing::size:
    case Placing::none: break;
  }
}

}  // namespace wengert::generate
