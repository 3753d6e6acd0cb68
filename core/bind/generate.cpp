// Which tier runs programs, for reports, tests and benchmarks.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include <algorithm>

#include "../generate/source.h"
#include "../generate/tier.h"
#include "program.h"

namespace wengert {

namespace {

nb::dict counters() {
  const TierCounters c = tier_counters();
  nb::dict d;
  d["runs"] = c.runs;
  d["programs"] = c.programs;
  d["compiled"] = c.compiled;
  d["read"] = c.read;
  d["refused"] = c.refused;
  return d;
}

void warn(const char* why) {
  const std::string text = std::string("no code is generated for programs that stay hot, the executor runs them: ") +
                           why + "\nInstall a C++ compiler, or set WENGERT_TIER=executor";
  if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) != 0) throw Error(ErrorKind::python, "");
}

constexpr const char* kModes[] = {"automatic", "executor", "generated"};

std::string set_tier(const std::string& name) {
  return guarded([&] {
    const auto* found = std::find(std::begin(kModes), std::end(kModes), name);
    if (found == std::end(kModes))
      fail(ErrorKind::value, "tier", "must be automatic, executor or generated, got " + name);
    const TierMode before = tier_mode();
    set_tier_mode(static_cast<TierMode>(found - std::begin(kModes)));
    return std::string(kModes[static_cast<int>(before)]);
  });
}

// The tiers that run the forward and the backward program of a derivative.
nb::list tiers_of_derivative(const DerivativeHandle& d) {
  nb::list tiers;
  if (d.held->forward) tiers.append(tier_of(*d.held->forward));
  tiers.append(tier_of(*d.held->vjp->program));
  return tiers;
}

}  // namespace

void init_generate(nb::module_& m) {
  tier_mode();
  warn_without_compiler = warn;
  m.def("tier_counters", &counters);
  m.def("wait_for_compiler", &wait_for_compiler, nb::call_guard<nb::gil_scoped_release>());
  m.def("tier_of", &tier_of);
  m.def("tiers_of_derivative", &tiers_of_derivative);
  m.def("set_tier", &set_tier, "Another mode than that of WENGERT_TIER; returns the one before.");
  m.def("generated_source", [](const Program& p, const nb::sequence& inputs) {
    return guarded([&] {
      std::vector<Value*> in;
      for (nb::handle h : inputs) in.push_back(value_from(h, "program"));
      check_count(p, in.size());
      check_leaves(p.sizes.leaves, in.data(), in.size());
      std::vector<int64_t> sizes(p.sizes.leaves.size());
      gather_sizes(p.sizes.leaves, in.data(), nullptr, nullptr, sizes.data());
      return generate::write_source(p, in.data(), sizes.data(), false).text;
    });
  });
  nb::module_::import_("atexit").attr("register")(
      nb::cpp_function([] { end_compiler(); }, nb::call_guard<nb::gil_scoped_release>()));
}

}  // namespace wengert
