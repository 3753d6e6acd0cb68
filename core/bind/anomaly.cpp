// Reports to `detect_anomaly`: a Python handler for each thread that checks.
#include <nanobind/stl/string.h>

#include "../finite.h"
#include "program.h"

namespace wengert {

namespace {

thread_local PyObject* handler = nullptr;

// Switches checks off while the handler runs.
struct Unchecked {
  const Checks before = thread_state.checks;
  Unchecked() { set(Checks::none); }
  ~Unchecked() { set(before); }
  static void set(Checks c) {
    thread_state.checks = c;
    thread_state.update();
  }
};

template <class... Args>
void tell(const char* method, Args&&... args) {
  if (!handler) return;
  Unchecked unchecked;
  try {
    nb::handle(handler).attr(method)(std::forward<Args>(args)...);
  } catch (nb::python_error& e) {
    e.restore();
    throw Error(ErrorKind::python, "");
  }
}

// (tensor, number) for each value, or None if there is none. The tensors are new and untracked.
nb::list described(Value* const* values, int n) {
  nb::list out;
  for (int i = 0; i < n; ++i) {
    if (values[i])
      out.append(nb::make_tuple(to_python(alias(values[i])), values[i]->made));
    else
      out.append(nb::none());
  }
  return out;
}

nb::object handle_of(Node* n) { return n ? nb::object(node_to_python(n)) : nb::none(); }

void found(const char* name, Node* node, Value* const* in, int n_in, Value* const* out, int n_out) {
  tell("found", nb::str(name), handle_of(node), described(in, n_in), described(out, n_out));
}

void read(uint32_t number) { tell("read", nb::int_(number)); }

void bad_loss(Value* loss) {
  tell("bad_loss", to_python(alias(loss)), nb::int_(loss->made), handle_of(loss->node));
  throw Error(ErrorKind::gradient, "backward: the loss is not finite");
}

void bad_gradient(Node* of, Value* gradient) {
  tell("bad_gradient", handle_of(of), to_python(alias(gradient)), nb::int_(gradient->made));
  throw Error(ErrorKind::gradient, "backward: a gradient is not finite");
}

// Returns the previous setting: (checks, handler).
nb::object set_checks(int checks, nb::object with) {
  if (checks < 0 || checks > static_cast<int>(Checks::results)) throw nb::value_error("set_checks: 0, 1 or 2");
  nb::object before =
      nb::make_tuple(static_cast<int>(thread_state.checks), handler ? nb::borrow(handler) : nb::object(nb::none()));
  Py_XDECREF(handler);
  handler = with.is_none() ? nullptr : with.release().ptr();
  Unchecked::set(static_cast<Checks>(checks));
  return before;
}

// Checks the results of a custom op.
void check_custom(const std::string& name, const nb::list& inputs, const nb::list& outputs) {
  guarded([&] {
    std::vector<Value*> in, out;
    for (nb::handle h : inputs) in.push_back(value_from(h, "custom op"));
    for (nb::handle h : outputs) out.push_back(value_from(h, "custom op"));
    check_results(name.c_str(), thread_state.pulled, in.data(), static_cast<int>(in.size()), out.data(),
                  static_cast<int>(out.size()));
  });
}

}  // namespace

void init_anomaly(nb::module_& m) {
  m.def("set_checks", &set_checks, nb::arg("checks"), nb::arg("handler").none());
  m.def("checks", [] { return static_cast<int>(thread_state.checks); });
  m.def("check_custom", &check_custom);
  m.def("all_finite", [](nb::handle h) { return guarded([&] { return all_finite(value_from(h, "all_finite")); }); });
  anomaly_hooks = {.found = found, .read = read, .bad_loss = bad_loss, .bad_gradient = bad_gradient};
}

}  // namespace wengert
