"""wengert: automatic differentiation for Python, exact in every mode.

>>> import wengert as wg
>>> x = wg.tensor([1.0, 2.0], requires_grad=True)
>>> loss = (x * x).sum()
>>> loss.backward()[x].tolist()
[2.0, 4.0]
"""

from math import e, inf, nan, pi
from typing import Any

import wengert.ops  # joins rules and kernels; must come before anything that uses an op
from wengert import _hooks

_hooks.install()

from wengert import autograd, functional, tree
from wengert._core import Tensor
from wengert.autograd import reverse
from wengert.autograd.context import AutogradContext, AutogradEngine
from wengert.autograd.custom import CustomOp, custom_op
from wengert.autograd.gradient_map import GradientMap
from wengert.autograd.reverse import grad_of, stop_gradient
from wengert.compiling.compile import compile
from wengert.dtypes import (
    DType,
    bfloat16,
    bool_,
    can_cast,
    complex64,
    complex128,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    result_type,
    uint8,
    uint16,
    uint32,
    uint64,
)
from wengert.errors import (
    AnomalyError,
    ArgumentError,
    AxisError,
    BudgetError,
    CustomOpError,
    DeterminismError,
    DeviceError,
    DTypeError,
    GradientError,
    IndexRangeError,
    InPlaceError,
    LinAlgError,
    LoadError,
    NumberRangeError,
    ShapeError,
    SolverError,
    SparsityError,
    TapeConsumedError,
    TraceError,
    WengertError,
    WorkerError,
)
from wengert.foreign_names import MissingName
from wengert.functional import *
from wengert.interop.array_api import VERSION as __array_api_version__
from wengert.interop.array_api import namespace_info as __array_namespace_info__
from wengert.memory.statistics import MemoryStats, empty_pool, memory_stats, reset_peak
from wengert.methods import attach
from wengert.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from wengert.tensors.conversion import asarray, from_dlpack, tensor
from wengert.tensors.creation import (
    arange,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    geomspace,
    linspace,
    logspace,
    meshgrid,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from wengert.tensors.determinism import DeterministicConfig
from wengert.tensors.dual import DualTensor, ForwardADContext, dual
from wengert.tensors.random import (
    Generator,
    bernoulli,
    default_generator,
    manual_seed,
    normal,
    permutation,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    uniform,
)
from wengert.threads import get_num_threads, set_num_threads
from wengert.transforms.functional import grad, hvp, jvp, linearize, value_and_grad, vjp
from wengert.version import VERSION as __version__

# What the array API standard asks of a namespace besides.
_STANDARD = ("bool", "e", "inf", "nan", "newaxis", "pi")
bool = bool_
newaxis = None

attach.install()
reverse.attach()

# No program needs them all: these are imported when they are first used.
_LAZY = {
    **{name: f"wengert.autograd.tape:{name}" for name in ("GradientTape", "Tape")},
    **{name: f"wengert.transforms.jacobian:{name}" for name in ("hessian", "jacfwd", "jacobian", "jacrev")},
    "SchedulerConfig": "wengert.transforms.schedule:SchedulerConfig",
    "HybridScheduler": "wengert.transforms.scheduler:HybridScheduler",
    **{name: f"wengert.memory.checkpoint:{name}" for name in ("checkpoint", "checkpoint_sequential")},
    **{name: f"wengert.transforms.branches:{name}" for name in ("cond", "switch")},
    **{name: f"wengert.transforms.loops:{name}" for name in ("fori_loop", "scan")},
    **{name: f"wengert.transforms.vmap:{name}" for name in ("per_sample_grad", "vmap")},
    "explain": "wengert.debug.explain:explain",
    "show_config": "wengert.debug.config:show_config",
    "deterministic": "wengert.autograd.deterministic:deterministic",
    "cuda": "wengert.cuda",
    "amp": "wengert.amp",
    **{name: f"wengert.amp:{name}" for name in ("AmpConfig", "autocast", "autocast_dtype", "no_autocast")},
    "linalg": "wengert.linalg",
    "fft": "wengert.fft",
    "random": "wengert.random",
    "stats": "wengert.stats",
    "nn": "wengert.nn",
    "optim": "wengert.optim",
    "data": "wengert.data",
    "ode": "wengert.ode",
    "optimize": "wengert.optimize",
    "implicit": "wengert.implicit",
    "scipy": "wengert.interop.scipy",
    "Parameter": "wengert.nn.parameter:Parameter",
    "ParameterDict": "wengert.nn.parameter:ParameterDict",
    "AdamConfig": "wengert.optim.adam:AdamConfig",
    **{name: f"wengert.transforms.colouring:{name}" for name in ("Colouring", "Sparsity", "colour")},
    **{name: f"wengert.transforms.sparse:{name}" for name in ("hessian_sparsity", "jacobian_sparsity")},
    **{
        name: f"wengert.optim.clip:{name}"
        for name in ("GradientClipper", "clip_by_global_norm", "clip_by_value", "clip_grad_norm", "clip_grad_value")
    },
    **{name: f"wengert.optim.scaler:{name}" for name in ("DynamicLossScaler", "GradScaler", "StaticLossScaler")},
    **{
        name: f"wengert.stats.draws:{name}"
        for name in ("binomial", "exponential", "multinomial", "poisson", "truncated_normal")
    },
    **{name: f"wengert.graph:{name}" for name in ("Graph", "Placeholder", "Variable", "export", "load_program")},
    **{
        name: f"wengert.transforms.curvature:{name}"
        for name in (
            "empirical_fisher_vp",
            "estimate_hessian_diagonal",
            "estimate_hessian_trace",
            "ggnvp",
            "hessian_blocks",
            "hessian_diagonal",
            "hessian_trace",
        )
    },
    "fisher_vp": "wengert.stats.fisher:fisher_vp",
    "taylor": "wengert.transforms.taylor:taylor",
    "associative_scan": "wengert.transforms.associative_scan:associative_scan",
    "while_loop": "wengert.transforms.while_loops:while_loop",
    "psum": "wengert.transforms.collectives:psum",
    "pmean": "wengert.transforms.collectives:pmean",
    **{name: f"wengert.debug.gradient_check:{name}" for name in ("NumericalChecker", "check_gradients")},
    **{name: f"wengert.profiling:{name}" for name in ("Profile", "profile")},
    "check_custom_op": "wengert.debug.custom_op_check:check_custom_op",
    **{name: f"wengert.debug.benchmark:{name}" for name in ("BenchmarkConfig", "PerformanceBenchmark")},
    "detect_anomaly": "wengert.debug.anomaly:detect_anomaly",
    "draw": "wengert.debug.drawing:draw",
    "fingerprint": "wengert.debug.fingerprint:fingerprint",
    "compare_runs": "wengert.debug.compare_runs:compare_runs",
    **{
        name: f"wengert.memory.strategies:{name}"
        for name in ("CheckpointConfig", "checkpointing", "memory_budget", "set_checkpointing")
    },
    "GradientMemoryProfiler": "wengert.memory.profiler:GradientMemoryProfiler",
    "save": "wengert.interop.safetensors:save",
    "load": "wengert.interop.safetensors:load",
    "Checkpointer": "wengert.interop.checkpointer:Checkpointer",
}

__all__ = [
    "AnomalyError",
    "ArgumentError", "AutogradContext", "AutogradEngine", "AxisError", "BudgetError", "CustomOp", "CustomOpError",
    "DType", "DTypeError", "DeterminismError", "DeterministicConfig", "DeviceError",
    "DualTensor", "ForwardADContext", "Generator", "GradientError",
    "GradientMap", "InPlaceError", "IndexRangeError", "LinAlgError", "LoadError",
    "MemoryStats",
    "NumberRangeError", "ShapeError", "SolverError", "SparsityError", "TapeConsumedError",
    "Tensor", "TraceError",
    "WengertError", "WorkerError", "arange", "asarray", "autograd", "bernoulli", "bfloat16", "bool_", "can_cast",
    "compile", "complex128", "complex64", "custom_op", "default_generator",
    "dual", "empty", "empty_like",
    "empty_pool", "enable_grad", "eye", "finfo", "float16", "float32", "float64", "from_dlpack",
    "full", "full_like", "functional", "geomspace", "get_num_threads", "grad", "grad_of", "hvp", "iinfo", "int16",
    "int32", "int64", "int8", "is_grad_enabled", "isdtype", "jvp", "linearize",
    "linspace", "logspace", "manual_seed", "memory_stats", "meshgrid", "no_grad", "normal", "ones", "ones_like",
    "permutation", "rand", "rand_like", "randint", "randn", "randn_like", "reset_peak",
    "result_type", "set_grad_enabled", "set_num_threads", "stop_gradient", "tensor", "tree",
    "uint16", "uint32", "uint64", "uint8", "uniform", "value_and_grad", "vjp", "zeros", "zeros_like", *_LAZY,
    *functional.__all__,
]  # fmt: skip


def __dir__() -> list[str]:
    return [*__all__, *_STANDARD, *(n for n in globals() if n.startswith("__"))]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        path, _, attribute = _LAZY[name].partition(":")
        module = importlib.import_module(path)
        value = getattr(module, attribute) if attribute else module
        globals()[name] = value
        return value
    raise MissingName(__name__, name)
