// Moving values between devices.
#include "check.h"

namespace wengert {

namespace {

using Kind = Attr::Kind;

// Programs name no device, so the op names both, and its transpose moves back.
void infer_move(const Op&, const Type* in, int, const Attrs&, Type* out) { *out = in[0]; }

void compute_move(const Op& op, Value* const* in, int, const Attrs& attrs, Value** out) {
  if (in[0]->device != static_cast<DeviceId>(attrs[0].i))
    fail(ErrorKind::device, op.name.c_str(),
         "the operand is on " + device_name(in[0]->device) + ", and " + device_name(static_cast<DeviceId>(attrs[0].i)) +
             " was said");
  copy_into(in[0], out[0]);
}

}  // namespace

static void add_ops() {
  add_op({.name = "to_device",
          .attrs = {{"source", Kind::integer}, {"target", Kind::integer}},
          .infer = infer_move,
          .compute = compute_move,
          .moves = true});
}
static const OpFamily family(add_ops);

}  // namespace wengert
