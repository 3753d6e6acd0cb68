// CUDA for Python: the available hardware, and access to generated kernels for tests and inspection.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>

#include "../cuda/host_memory.h"
#include "../cuda/libraries.h"
#include "../cuda/library_kernels.h"
#include "../cuda/modules.h"
#include "../cuda/source.h"
#include "attributes.h"
#include "gpu.h"
#include "program.h"

namespace nb = nanobind;

namespace wengert {

cuda::CudaDevice* as_gpu(DeviceId device) {
  return device == kCpu ? nullptr : dynamic_cast<cuda::CudaDevice*>(&device_at(device));
}

cuda::CudaDevice& gpu_at(int number) {
  return *guarded([&] {
    cuda::CudaDevice* gpu = number > kCpu && has_device(number) ? as_gpu(static_cast<DeviceId>(number)) : nullptr;
    if (!gpu) fail(ErrorKind::device, "cuda", "device " + std::to_string(number) + " is no GPU that was opened");
    return gpu;
  });
}

namespace {

Reduction reduction_from(const std::string& name) {
  if (const Op* op = find_op(name); op && op->reduction != Reduction::count) return op->reduction;
  throw Error(ErrorKind::value, "no reduction is named '" + name + "'");
}

// Registers: (dtype, row, "input" | "output" | "constant" | "", bytes of a constant). Code: (kind, name of the op or
// reduction, operands, result).
cuda::Chain chain_from(nb::list registers, nb::list code, int row_axes) {
  cuda::Chain chain;
  chain.rows = row_axes != 0;
  for (nb::handle h : registers) {
    const auto t = nb::cast<nb::tuple>(h);
    cuda::Chain::Register r{dtype_from(nb::cast<int>(t[0])), nb::cast<bool>(t[1])};
    const auto role = nb::cast<std::string>(t[2]);
    r.input = role == "input";
    r.output = role == "output";
    r.constant = role == "constant";
    const auto bytes = nb::cast<nb::bytes>(t[3]);
    std::memcpy(r.bytes, bytes.c_str(), std::min<size_t>(bytes.size(), sizeof(r.bytes)));
    chain.registers.push_back(r);
  }
  for (nb::handle h : code) {
    const auto t = nb::cast<nb::tuple>(h);
    const auto kind = nb::cast<std::string>(t[0]), name = nb::cast<std::string>(t[1]);
    const auto in = nb::cast<std::vector<int>>(t[2]);
    using Kind = cuda::Chain::Instruction::Kind;
    cuda::Chain::Instruction i{kind == "map"      ? Kind::map
                               : kind == "cast"   ? Kind::cast
                               : kind == "reduce" ? Kind::reduce
                                                  : Kind::expand};
    if (i.kind == Kind::map) i.op = find_op(name)->kernel;
    if (i.kind == Kind::reduce) i.reduction = reduction_from(name);
    i.n_in = static_cast<uint8_t>(in.size());
    std::copy(in.begin(), in.end(), i.in);
    i.out = static_cast<int16_t>(nb::cast<int>(t[3]));
    chain.code.push_back(i);
  }
  return chain;
}

// How a chain would be launched: {source, words, grid, block}. Inputs: (address, strides); outputs: addresses.
nb::dict cuda_kernel(nb::list registers, nb::list code, int row_axes, std::vector<int64_t> shape, nb::list inputs,
                     std::vector<int64_t> outputs) {
  return guarded([&] {
    const cuda::Chain chain = chain_from(registers, code, row_axes);
    std::vector<std::vector<int64_t>> strides;
    std::vector<cuda::Operand> operands;
    for (nb::handle h : inputs) strides.push_back(nb::cast<std::vector<int64_t>>(nb::cast<nb::tuple>(h)[1]));
    for (size_t k = 0; k < strides.size(); ++k)
      operands.push_back(
          {reinterpret_cast<void*>(nb::cast<int64_t>(nb::cast<nb::tuple>(inputs[k])[0])), strides[k].data()});
    std::vector<void*> out;
    for (int64_t address : outputs) out.push_back(reinterpret_cast<void*>(address));
    const cuda::Launch launch =
        cuda::plan(chain, {static_cast<int>(shape.size()), shape.data(), row_axes}, operands.data(), out.data());
    nb::dict d;
    d["source"] = cuda::source(chain, launch.form);
    d["words"] = launch.words;
    d["grid"] = launch.grid;
    d["block"] = launch.block;
    return d;
  });
}

nb::bytes machine_code(const std::string& source, int architecture) {
  return guarded([&] {
    const std::string code = cuda::machine_code(source, architecture);
    return nb::bytes(code.data(), code.size());
  });
}

nb::dict memory_of(int number) {
  return guarded([&] {
    cuda::CudaDevice& gpu = gpu_at(number);
    const cuda::PoolStats stats = gpu.pool_stats();
    const auto [available, total] = gpu.free_memory();
    nb::dict d;
    d["live_bytes"] = gpu.live_bytes;
    d["peak_bytes"] = gpu.peak_bytes;
    d["reserved_bytes"] = stats.reserved_bytes;
    d["peak_reserved_bytes"] = stats.peak_reserved_bytes;
    d["allocations"] = stats.allocations;
    d["system_requests"] = stats.system_requests;
    d["free_bytes"] = available;
    d["total_bytes"] = total;
    d["host_live_bytes"] = cuda::host_memory_stats().live_bytes;
    d["host_reserved_bytes"] = cuda::host_memory_stats().reserved_bytes;
    return d;
  });
}

// A copy in page-locked memory, which a GPU copies from and to in the background; the tensor itself if it is there.
nb::object page_locked(nb::handle tensor, int number) {
  return guarded([&] {
    Value* v = value_from(tensor, "pin_memory");
    const DeviceId gpu = gpu_at(number).id;
    if (v->device != kCpu)
      fail(ErrorKind::device, "pin_memory",
           "the tensor is on " + device_name(v->device) + "; only the CPU's memory can be");
    if (cuda::is_page_locked(v->buffer)) return nb::borrow(tensor);
    Ref made(empty_on_host(v->dtype, v->dims(), gpu));
    copy_into(v, made.v);
    return to_python(made.take());
  });
}

nb::dict counters_of(int number) {
  const cuda::LaunchCounters& c = gpu_at(number).counters;
  nb::dict d;
  d["kernels"] = c.kernels;
  d["copies"] = c.copies;
  d["graphs"] = c.graphs;
  d["waits"] = c.waits;
  return d;
}

// Seconds of one launch of a kernel that does nothing, of n in a row: what an op cannot be faster than.
double time_launches(int number, int n) {
  return guarded([&] {
    cuda::CudaDevice& gpu = gpu_at(number);
    cuda::BodyKernel nothing{{"nothing", "device_group.h", "{}\n", 1, 32}};
    gpu.synchronise();  // this thread's GPU from here on
    const cuda::Function f = gpu.function(nothing);
    const std::vector<int64_t> words = {0};
    const auto run = [&](int count) {
      for (int k = 0; k < count; ++k) gpu.launch(f, 1, 32, words);
    };
    run(n);  // the first ones take longer
    gpu.synchronise();
    const auto start = std::chrono::steady_clock::now();
    run(n);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    gpu.synchronise();
    return taken.count() / n;
  });
}

// Whether an op that is not elementwise has a kernel. Ops that hold programs are known only to Python.
bool has_kernel(const std::string& name) {
  const Op* op = find_op(name);
  return op && cuda::find_kernel(*op);
}

// {op: kernel}, and what calls one: run(name, operands, outputs, attributes).
PyObject *kernels_of_library = nullptr, *run_of_library = nullptr;

bool library_serves(const Op& op) {
  return kernels_of_library && PyDict_GetItemString(kernels_of_library, op.name.c_str());
}

void run_by_library(const Op& op, Value* const* in, int n_in, const Attrs& attrs, Value** out) {
  try {
    nb::list operands, outputs, attributes;
    for (int i = 0; i < n_in; ++i) operands.append(to_python(alias(in[i])));
    for (int i = 0; i < op.n_outputs; ++i) outputs.append(to_python(alias(out[i])));
    for (size_t k = 0; k < op.attrs.size(); ++k)
      attributes.append(nb::steal(attr_to_python(attrs[static_cast<int>(k)])));
    nb::borrow(run_of_library)(op.name, operands, outputs, attributes);
  } catch (nb::python_error& e) {
    e.restore();
    throw Error(ErrorKind::python, "");
  }
}

void set_library_kernels(const nb::dict& kernels, const nb::object& run) {
  Py_XDECREF(std::exchange(kernels_of_library, kernels.inc_ref().ptr()));
  Py_XDECREF(std::exchange(run_of_library, run.inc_ref().ptr()));
  cuda::library_kernels = {library_serves, run_by_library};
}

}  // namespace

void init_cuda(nb::module_& m) {
  // Device numbers here are those of the core.
  m.def("cuda_open_device",
        [](int ordinal) { return guarded([&] { return static_cast<int>(cuda::open_device(ordinal)); }); });
  m.def("cuda_memory", &memory_of);
  m.def("cuda_counters", &counters_of);
  m.def("page_locked", &page_locked);
  m.def("is_page_locked", [](nb::handle tensor) {
    return guarded([&] { return cuda::is_page_locked(value_from(tensor, "is_pinned")->buffer); });
  });
  m.def("cuda_has_kernel", &has_kernel);
  m.def("cuda_set_library_kernels", &set_library_kernels);
  m.def("cuda_time_launches", &time_launches);
  m.def("cuda_description", [](int number) { return guarded([&] { return gpu_at(number).description(); }); });
  m.def("cuda_attribute",
        [](int number, int which) { return guarded([&] { return gpu_at(number).attribute(which); }); });
  m.def("cuda_free_memory", [](int number) { return guarded([&] { return gpu_at(number).free_memory(); }); });
  m.def("cuda_fix_algorithms", [](bool on) { return std::exchange(cuda::fixed_algorithms, on); });
  m.def("cuda_wait_for_ops", [](bool on) { cuda::waits_for_ops += on ? 1 : -1; });
  m.def("cuda_reset_peak", [](int number) { guarded([&] { gpu_at(number).reset_peak(); }); });
  m.def("cuda_tf32", [](int number) { return guarded([&] { return gpu_at(number).tf32; }); });
  m.def("cuda_empty_pool", [](int number) { guarded([&] { gpu_at(number).empty_pool(); }); });
  m.def("cuda_set_graphs", [](int number, bool on) { guarded([&] { gpu_at(number).graphs = on; }); });
  m.def("cuda_set_tf32", [](int number, bool on) { guarded([&] { gpu_at(number).tf32 = on; }); });

  m.def("cuda_set_library_folders", &cuda::set_library_folders);
  m.def("cuda_why_unavailable", &cuda::why_unavailable);
  m.def("cuda_device_count", &cuda::device_count);
  m.def("cuda_kernel", &cuda_kernel);
  m.def("cuda_machine_code", &machine_code);
  m.def("cuda_compiler_version", [] { return guarded([] { return cuda::compiler().version; }); });
  m.def("cuda_code_counters", [] { return nb::make_tuple(cuda::code_counters.compiled, cuda::code_counters.read); });
}

}  // namespace wengert
