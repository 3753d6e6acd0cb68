#include "anomaly.h"

#include "finite.h"

namespace wengert {

AnomalyHooks anomaly_hooks;

void check_results(const char* name, Node* node, Value* const* in, int n_in, Value* const* out, int n_out) {
  for (int i = 0; i < n_in; ++i)
    if (in[i] && in[i]->made && in[i]->made < Value::kFirstSpecial) anomaly_hooks.read(in[i]->made);
  bool finite = true;
  for (int i = 0; i < n_out; ++i) {
    if (!out[i] || all_finite(out[i])) continue;
    finite = false;
    number_result(out[i]);
  }
  if (!finite) anomaly_hooks.found(name, node, in, n_in, out, n_out);
}

}  // namespace wengert
