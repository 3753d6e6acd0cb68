#include "tier.h"

#include <algorithm>
#include <cstdlib>

#include "../threads.h"
#include "background.h"
#include "compiler.h"

namespace wengert {

using generate::Base;
using generate::Job;
using generate::Result;

namespace {

constexpr size_t kMostForms = 4;  // per program; for further sizes the executor runs it
constexpr size_t kMostFormsForced = 64;
constexpr int64_t kLargeResult = 4096;          // elements; after a call that makes more, signals are checked
constexpr int kSmallCalls = 64;                 // smaller ones between checks
constexpr int64_t kSmallWorkspace = 64 * 1024;  // bytes; smaller ones share a buffer

TierCounters counters;
bool warned = false;

struct Key {
  std::vector<int64_t> words;  // of each input dtype, rank, shape and strides; then the sizes

  Key(const Program& p, Value* const* in, const int64_t* leaf_sizes) {
    for (int i = 0; i < p.n_inputs; ++i) {
      const Value* v = in[i];
      words.push_back(static_cast<int64_t>(v->dtype) << 8 | v->ndim);
      words.insert(words.end(), v->shape, v->shape + v->ndim);
      words.insert(words.end(), v->strides, v->strides + v->ndim);
    }
    words.insert(words.end(), leaf_sizes, leaf_sizes + p.sizes.leaves.size());
  }

  bool fits(const Program& p, Value* const* in, const int64_t* leaf_sizes) const {
    const int64_t* w = words.data();
    for (int i = 0; i < p.n_inputs; ++i) {
      const Value* v = in[i];
      if (*w++ != (static_cast<int64_t>(v->dtype) << 8 | v->ndim)) return false;
      for (int a = 0; a < v->ndim; ++a)
        if (w[a] != v->shape[a] || w[v->ndim + a] != v->strides[a]) return false;
      w += 2 * v->ndim;
    }
    return std::equal(leaf_sizes, leaf_sizes + p.sizes.leaves.size(), w);
  }
};

}  // namespace

// Code for one set of types, layouts and sizes.
struct GeneratedForm {
  Key key;
  std::string refused;  // why there is no code
  generate::Generated made;
  std::shared_ptr<Job> job;
  generate::Function function = nullptr;
  std::vector<char*> bases;
  std::vector<Ref> fresh;            // what they point to, while the function runs; by base
  std::vector<Ref> spare;            // by base: what the last call got in exchange for a result, for the next one
  std::vector<int64_t> in_workshop;  // by base: the place of a small workspace in the memory that they share, or -1
  int64_t workshop_bytes = 0;
  std::vector<std::vector<Value*>> in, out;  // of the calls
  std::vector<Ref> growing;                  // arrays whose sizes the function computes, while it runs
  int small_calls = 0;                       // since signals were checked
  bool busy = false;                         // a call may release the GIL, or re-enter through a callback

  void refuse(const std::string& why) {
    refused = why;
    made = {};
    ++counters.refused[why];
  }

  void prepare(const Program& p, Value* const* inputs, const int64_t* leaf_sizes, bool forced) {
    try {
      made = generate::write_source(p, inputs, leaf_sizes, !forced);
    } catch (const generate::Refused& e) {
      return refuse(e.what());
    } catch (const Error&) {
      return refuse("it raises an error");  // so that the executor raises it
    }
    bases.resize(made.bases.size());
    for (size_t k = 0; k < bases.size(); ++k) {
      const Base& b = made.bases[k];
      if (b.kind == Base::Kind::constant) bases[k] = made.constants[b.index]->data;
      const int64_t bytes = product(b.shape).raw * size_of(b.dtype);
      const bool small = b.kind == Base::Kind::workspace && bytes <= kSmallWorkspace;
      in_workshop.push_back(small ? workshop_bytes : -1);
      if (small) workshop_bytes += whole_lines(bytes);
    }
    fresh.resize(bases.size());
    spare.resize(bases.size());
    for (const generate::Call& c : made.calls) {
      in.emplace_back();
      out.emplace_back();
      for (const Ref& r : c.in) in.back().push_back(r.v);
      for (const Ref& r : c.out) out.back().push_back(r.v);
    }
    job = generate::request(made.text, forced);
  }

  // Whether the function is ready.
  bool ready() {
    if (function) return true;
    if (!job || job->state == Job::State::waiting) return false;
    if (job->state == Job::State::failed) {
      if (!warned && warn_without_compiler) {
        warned = true;
        warn_without_compiler(job->error.c_str());
      }
      refuse("no compiler");
      job = nullptr;
      return false;
    }
    function = job->function;
    job = nullptr;
    ++counters.programs;
    return true;
  }

  static void call(void* context, int64_t which, char* const* at) {
    auto& form = *static_cast<GeneratedForm*>(context);
    const generate::Call& c = form.made.calls[static_cast<size_t>(which)];
    for (Value* v : form.in[static_cast<size_t>(which)]) v->data = *at++;
    for (Value* v : form.out[static_cast<size_t>(which)]) v->data = *at++;
    ++run_counters.steps;
    run_counters.gemms += c.gemm;
    Interruptible results_are_new;
    c.op->compute(*c.op, form.in[static_cast<size_t>(which)].data(), static_cast<int>(c.in.size()), c.attrs,
                  form.out[static_cast<size_t>(which)].data());
    if (form.out[static_cast<size_t>(which)][0]->size <= kLargeResult && ++form.small_calls < kSmallCalls) return;
    form.small_calls = 0;
    check_interrupt();
  }

  static char* grow(void* context, int64_t which, int64_t bytes) {
    Ref& array = static_cast<GeneratedForm*>(context)->growing[static_cast<size_t>(which)];
    if (!array.v || array->size < bytes) {
      array = Ref();
      array = Ref(empty(DType::UInt8, {bytes}, Category::workspace));
    }
    return array->data;
  }

  void run(Value* const* inputs, Value** results) {
    const Ref workshop(workshop_bytes ? empty(DType::UInt8, {workshop_bytes}, Category::workspace) : nullptr);
    const generate::Core core{call, grow, check_interrupt, this, made.functions.data()};
    struct Running {
      GeneratedForm& form;
      explicit Running(GeneratedForm& f) : form(f) {
        form.busy = true;
        form.growing.resize(static_cast<size_t>(form.made.n_growing));
      }
      ~Running() {
        form.busy = false;
        form.growing.clear();
        for (Ref& r : form.fresh) r = Ref();
      }
    } running(*this);
    for (size_t k = 0; k < bases.size(); ++k) {
      const Base& b = made.bases[k];
      if (b.kind == Base::Kind::input) {
        bases[k] = inputs[b.index]->data;
      } else if (in_workshop[k] >= 0) {
        bases[k] = workshop->data + in_workshop[k];
      } else if (b.kind != Base::Kind::constant) {
        fresh[k] = spare[k] ? std::move(spare[k]) : Ref(empty(b.dtype, b.shape, category_of(b)));
        bases[k] = fresh[k]->data;
      }
    }
    function(bases.data(), made.words.data(), &core);
    std::fill_n(results, made.results.size(), nullptr);
    for (size_t i = 0; i < made.results.size(); ++i) results[i] = result(made.results[i], inputs, results);
  }

  static Category category_of(const Base& b) {
    return b.kind == Base::Kind::output ? Category::activation : Category::workspace;
  }

  // Keeps result `i`, which exchanged its memory with a parameter, say: every step needs as much again.
  void keep_spare(size_t i, Value* owned) {
    Ref& place = spare[static_cast<size_t>(made.results[i].base)];
    if (owned->bytes() <= kSmallWorkspace) std::swap(place.v, owned);
    if (owned) release(owned);
  }

  Value* result(const Result& r, Value* const* inputs, Value* const* results) const {
    if (r.kind == Result::Kind::zero) return nullptr;
    if (r.kind != Result::Kind::view) {
      Value* same = r.kind == Result::Kind::input ? inputs[r.base] : results[r.base];
      retain(same);
      return same;
    }
    const Base& b = made.bases[static_cast<size_t>(r.base)];
    Value* whole = b.kind == Base::Kind::input      ? inputs[b.index]
                   : b.kind == Base::Kind::constant ? made.constants[static_cast<size_t>(b.index)]
                                                    : fresh[static_cast<size_t>(r.base)].v;
    if (b.kind == Base::Kind::output && r.layout->contiguous && same_shape(r.layout.v, whole)) {
      retain(whole);
      return whole;
    }
    return view(whole, r.layout->dims(), r.layout->strides, r.offset);
  }
};

struct GeneratedForms {
  std::vector<std::unique_ptr<GeneratedForm>> forms;
};

namespace {

// A value that fills its buffer, which nobody else sees.
bool is_alone(const Value* v) {
  return v->contiguous && v->buffer->refs == 1 && !v->buffer->pinned && v->buffer->data == v->data;
}

// In place of copying one value into another: their buffers exchange their memory and stay what else they are.
bool exchange_memory(Value* from, Value* to) {
  Buffer *a = from->buffer, *b = to->buffer;
  if (from->refs != 1 || !is_alone(from) || !is_alone(to) || from->dtype != to->dtype || !same_shape(from, to) ||
      a->size_class != b->size_class || a->size_class >= kManaged || a->bytes != b->bytes)
    return false;
  std::swap(a->data, b->data);
  std::swap(from->data, to->data);
  return true;
}

GeneratedForm* find_form(const Program& p, Value* const* in, const int64_t* leaf_sizes) {
  const bool forced = tier_mode() == TierMode::generated;
  if (!p.generated) {
    if (!forced && p.heat < 0) return nullptr;
    p.generated = std::make_shared<GeneratedForms>();
  }
  auto& forms = p.generated->forms;
  for (auto& f : forms)
    if (f->key.fits(p, in, leaf_sizes)) return f.get();
  if (forms.size() >= (forced ? kMostFormsForced : kMostForms)) return nullptr;
  forms.push_back(std::make_unique<GeneratedForm>(GeneratedForm{.key = Key(p, in, leaf_sizes)}));
  forms.back()->prepare(p, in, leaf_sizes, forced);
  return forms.back().get();
}

}  // namespace

void (*warn_without_compiler)(const char* why) = nullptr;

namespace {

TierMode mode_from_environment() {
  const char* wanted = std::getenv("WENGERT_TIER");
  const std::string name = wanted ? wanted : "";
  if (name.empty() || name == "automatic") return TierMode::automatic;
  if (name == "executor") return TierMode::executor;
  if (name == "generated") return TierMode::generated;
  throw std::runtime_error("WENGERT_TIER=" + name + ": must be automatic, executor or generated");
}

TierMode& current_mode() {
  static TierMode mode = mode_from_environment();
  return mode;
}

}  // namespace

TierMode tier_mode() { return current_mode(); }
void set_tier_mode(TierMode mode) { current_mode() = mode; }

bool run_generated(const Program& p, Value* const* in, const int64_t* leaf_sizes, Value** out, Value* const* donated,
                   int given) {
  if (tier_mode() == TierMode::executor || p.steps.empty()) return false;
  GeneratedForm* form = nullptr;
  std::shared_ptr<GeneratedForms> kept;
  try {
    form = find_form(p, in, leaf_sizes);
    if (!form || !form->refused.empty() || !form->ready() || form->busy) return false;
    kept = p.generated;
    form->run(in, out);
  } catch (...) {
    for (int i = 0; i < given; ++i) release(in[i]);
    throw;
  }
  ++counters.runs;
  for (size_t i = 0; donated && i < p.outputs.size(); ++i) {
    if (!donated[i] || !out[i] || out[i] == donated[i]) continue;
    if (exchange_memory(out[i], donated[i])) {
      form->keep_spare(i, out[i]);
    } else {
      copy_into(out[i], donated[i]);
      release(out[i]);
    }
    retain(donated[i]);
    out[i] = donated[i];
  }
  for (int i = 0; i < given; ++i) release(in[i]);
  return true;
}

std::string tier_of(const Program& p) {
  if (!p.generated || p.generated->forms.empty()) return "executor";
  std::string why;
  for (const auto& f : p.generated->forms) {
    if (f->function) return "generated code";
    why = f->refused.empty() ? "its code is being compiled" : f->refused;
  }
  return "executor (" + why + ")";
}

TierCounters tier_counters() {
  TierCounters all = counters;
  const generate::CompilerCounters compiler = generate::compiler_counters();
  all.compiled = compiler.compiled;
  all.read = compiler.read;
  return all;
}

void wait_for_compiler() { generate::wait_until_idle(); }
void end_compiler() { generate::end_background(); }

}  // namespace wengert
