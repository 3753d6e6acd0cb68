#include "autocast.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "dual.h"
#include "program.h"

namespace wengert {

namespace {

// The dtype of a tensor of any level.
DType dtype_of(PyObject* tensor) {
  if (const Value* v = bottom_value(tensor)) return v->dtype;
  return dtype_from(nb::cast<int>(nb::handle(tensor).attr("dtype").attr("code")));
}

// A new reference. Plain tensors that are leaves are cast once; while tracing, equal casts become one later.
PyObject* cast_object(PyObject* o, DType t) {
  static const Op& cast = *find_op("cast");
  PyObject* made;
  if (as_tensor(o)->plain && !thread_state.capturing) {
    made = wrap(cast_operand(operand(as_tensor(o)), t));
  } else {
    nb::int_ code(static_cast<int>(t));
    PyObject* attrs[1] = {code.ptr()};
    made = call_op(cast, &o, 1, attrs, 1);
  }
  if (!made) throw Error(ErrorKind::python, "");
  return made;
}

const Op& op_named(const std::string& name) {
  const Op* op = find_op(name);
  if (!op) throw nb::key_error(name.c_str());
  return *op;
}

Precision precision_from(int code) {
  if (code < 0 || code > static_cast<int>(Precision::full)) throw nb::value_error("there is no such precision");
  return static_cast<Precision>(code);
}

uint32_t last_policy = 0;

// overrides: (the name of an op or a compiled function, precision)
CastPolicy* new_policy(int low, const nb::list& overrides) {
  auto policy = std::make_unique<CastPolicy>();
  policy->low = dtype_from(low);
  policy->id = ++last_policy;
  for (nb::handle h : overrides) {
    nb::tuple t = nb::cast<nb::tuple>(h);
    nb::object unit(t[0]);
    const void* key =
        nb::isinstance<nb::str>(unit) ? static_cast<const void*>(&op_named(nb::cast<std::string>(unit))) : unit.ptr();
    policy->overrides.emplace(key, precision_from(nb::cast<int>(nb::object(t[1]))));
  }
  return policy.release();
}

}  // namespace

void CastOperands::cast(Precision precision, Py_ssize_t n) {
  if (precision == Precision::any) return;
  CastRule rule(precision, thread_state.autocast->low);
  for (Py_ssize_t i = 0; i < n; ++i)
    if (is_tensor(objects_[i])) rule.see(dtype_of(objects_[i]));
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (!is_tensor(objects_[i])) continue;
    const DType t = dtype_of(objects_[i]), wanted = rule.wanted(t);
    if (wanted == t) continue;
    PyObject* made = cast_object(objects_[i], wanted);
    if (made_.empty()) {
      for (Py_ssize_t k = 0; k < n; ++k) made_.push_back(Py_NewRef(objects_[k]));
      objects_ = made_.data();
    }
    Py_DECREF(made_[i]);
    made_[i] = made;
  }
}

void init_autocast(nb::module_& m) {
  nb::class_<CastPolicy>(m, "CastPolicy").def_prop_ro("low", [](const CastPolicy& p) {
    return static_cast<int>(p.low);
  });
  m.def("cast_policy", &new_policy, nb::rv_policy::reference);  // it lives as long as the process
  m.def("autocast_policy", [] { return thread_state.autocast; }, nb::rv_policy::reference);
  m.def(
      "set_autocast",
      [](const CastPolicy* policy) {
        const CastPolicy* before = thread_state.autocast;
        set_autocast(policy);
        return before;
      },
      nb::arg("policy").none(), nb::rv_policy::reference);
  // cast_operands(composite, tensors): the operands of that composite as autocast casts them.
  m.def("cast_operands", [](nb::handle unit, nb::list tensors) {
    if (!thread_state.autocast) return nb::list(tensors);
    const auto own = precision_from(nb::cast<int>(unit.attr("precision")));
    const CastOperands cast(thread_state.autocast->precision_of(unit.ptr(), own),
                            reinterpret_cast<PyListObject*>(tensors.ptr())->ob_item, PyList_GET_SIZE(tensors.ptr()));
    nb::list made;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tensors.ptr()); ++i) made.append(nb::handle(cast.objects()[i]));
    return made;
  });
  // Whether autocast casts operands of these dtypes to a common one, so that the op needs no promotion.
  m.def("unifies_operands", [](const std::string& name, const std::vector<int>& dtypes) {
    const Op& op = op_named(name);
    if (!casts_operands(op) || dtypes.empty()) return false;
    CastRule rule(thread_state.autocast->precision_of(&op, op.precision), thread_state.autocast->low);
    for (int t : dtypes) rule.see(dtype_from(t));
    for (int t : dtypes)
      if (rule.wanted(dtype_from(t)) != rule.wanted(dtype_from(dtypes[0]))) return false;
    return true;
  });
  m.def("forget_casts", &forget_casts);
  m.def("set_precision", [](const std::string& op, int precision) {
    const_cast<Op&>(op_named(op)).precision = precision_from(precision);
  });
}

}  // namespace wengert
