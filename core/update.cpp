#include "update.h"

#include <optional>

#include "profile.h"
#include "small_array.h"
#include "threads.h"

namespace wengert {

namespace {

constexpr size_t kFewOperands = 24;

// Borrowed; null if there is none.
Value* gradient_of(const Updated& u) {
  if (u.gradient) return current(*u.gradient);
  const Value* v = current(*u.parameter);
  return v->node && v->node->grad ? v->node->grad->base : nullptr;
}

void require_fitting(const Value* parameter, const Value* gradient, const Value* first) {
  if (parameter->dtype != first->dtype)
    fail(ErrorKind::dtype, "update",
         "parameter " + to_string(parameter->type()) + " is updated together with " + to_string(first->type()) +
             "; make the optimizer after parameters are cast");
  if (gradient && (gradient->dtype != parameter->dtype || !same_shape(gradient, parameter)))
    fail(gradient->dtype != parameter->dtype ? ErrorKind::dtype : ErrorKind::shape, "update",
         "gradient " + to_string(gradient->type()) + " does not fit parameter " + to_string(parameter->type()));
}

// A parameter, its gradient and its state are on one device.
void require_one_device(const Value* parameter, const Value* gradient, const Updated& u) {
  DeviceId elsewhere = gradient->device;
  for (size_t i = 0; elsewhere == parameter->device && i < u.n_state; ++i) elsewhere = current(*u.state[i])->device;
  if (elsewhere != parameter->device)
    fail(ErrorKind::device, "step",
         "a parameter is on " + device_name(parameter->device) +
             ", and its gradient or the state of the optimizer on " + device_name(elsewhere) +
             "; make the optimizer after net.to(...)");
}

void update_one(const Program& p, const Updated& u, Value* gradient, Value* const* numbers, size_t n_numbers) {
  const size_t n_out = 1 + u.n_state;
  SmallArray<Value*, kFewOperands> in(2 + u.n_state + n_numbers), out(n_out), into(n_out);
  auto target = [&](size_t i) -> Tensor& { return i == 0 ? *u.parameter : *u.state[i - 1]; };
  for (size_t i = 0; i < n_out; ++i) {
    Value* v = current(target(i));
    in[i == 0 ? 0 : 1 + i] = v;
    into[i] = writable(target(i)) ? v : nullptr;
  }
  in[1] = gradient;
  std::copy(numbers, numbers + n_numbers, in.data() + 2 + u.n_state);
  run(p, in.data(), nullptr, out.data(), into.data());
  for (size_t i = 0; i < n_out; ++i) {
    if (into[i]) {
      before_write(out[i]->buffer);
      ++out[i]->buffer->version;
      release(out[i]);
    } else {
      assign(target(i), out[i], "update", false);
    }
    set_category(target(i).value->buffer, i == 0 ? Category::parameter : Category::optimizer);
  }
}

}  // namespace

std::vector<size_t> update(const Program& p, const std::vector<Updated>& all, Value* const* numbers, size_t n_numbers) {
  if (!p.sizes.leaves.empty()) fail(ErrorKind::value, "update", "the program depends on sizes");
  std::vector<size_t> missing;
  for (size_t k = 0; k < all.size(); ++k) {
    const Value* gradient = gradient_of(all[k]);
    require_fitting(current(*all[k].parameter), gradient, current(*all[0].parameter));
    if (p.n_inputs != static_cast<int>(2 + all[k].n_state + n_numbers) || p.outputs.size() != 1 + all[k].n_state)
      fail(ErrorKind::value, "update", "the program does not take this many states and numbers");
    if (gradient)
      require_one_device(current(*all[k].parameter), gradient, all[k]);
    else
      missing.push_back(k);
  }
  if (!missing.empty()) return missing;
  Uninterruptible all_parameters;
  std::optional<ProfiledFor> step;
  if (profiling) step.emplace(Phase::update);
  for (const Updated& u : all) {
    const Ref gradient = Ref::share(gradient_of(u));  // held, because writing the parameter may replace its leaf
    update_one(p, u, gradient.v, numbers, n_numbers);
  }
  return missing;
}

}  // namespace wengert
