"""Every public name: found by following `__all__` from `wengert` on, and put on a page by the module that defines it."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import wengert
import wengert.ops

# Pages of the reference: file name, title, and the modules below `wengert` whose names they hold. A module that is not
# listed goes to the page of the longest listed name that it begins with, and otherwise to the last page.
PAGES: tuple[tuple[str, str, str], ...] = (
    ("tensor", "Tensor", "_core"),
    ("creation", "Making tensors", "tensors.conversion tensors.creation"),
    ("dtypes", "Element types", "dtypes"),
    ("random", "Random numbers", "tensors.random stats.draws random ops.random ops.distributions"),
    ("elementwise", "Elementwise functions", "functional.elementwise ops.arithmetic ops.transcendental ops.tangents"),
    ("predicates", "Comparisons, logic and bits", "ops.predicates"),
    ("special", "Special functions",
     "functional.special functional.bessel ops.special ops.bessel ops.incomplete ops.angles"),
    ("shapes", "Shapes", "functional.shapes functional.joining functional.padding functional.diagonals ops.shape"),
    ("indexing", "Indexing, gathering, scattering",
     "functional.gather functional.indexing functional.embedding_bags functional.segments functional.scatter_reduce "
     "functional.at ops.index"),
    ("reductions", "Reductions and statistics",
     "functional.reductions functional.statistics functional.nan_functions functional.distances ops.reduce"),
    ("scans", "Cumulative functions", "functional.scanning ops.scan"),
    ("sorting", "Sorting and searching", "functional.sorting ops.sort"),
    ("products", "Products", "functional.linear functional.products functional.einsum ops.matmul"),
    ("sampled", "Sampled functions", "functional.sampled_functions functional.windows"),
    ("linalg", "Linear algebra", "linalg functional.linalg ops.linalg ops.spectral"),
    ("fft", "Fourier transforms", "fft functional.fft ops.fft"),
    ("activations", "Activations",
     "functional.activations functional.random_activations functional.dropout ops.activations ops.softmax"),
    ("losses", "Losses",
     "functional.losses functional.class_losses functional.margin_losses functional.likelihood_losses"),
    ("convolution", "Convolution, pooling, resampling",
     "functional.convolution functional.pooling functional.adaptive_pooling functional.patches functional.resampling "
     "functional.grid_sampling ops.conv ops.pool ops.resample"),
    ("layers", "Normalisation, attention, recurrence",
     "functional.normalisation functional.attention functional.recurrent ops.rows ops.attention ops.recurrent"),
    ("reverse", "Reverse mode and tapes", "autograd modes"),
    ("forward", "Forward mode", "tensors.dual"),
    ("custom", "Custom operations", "autograd.custom debug.custom_op_check"),
    ("transforms", "Function transformations", "transforms"),
    ("curvature", "Curvature and Taylor series", "transforms.curvature stats.fisher transforms.taylor"),
    ("sparse", "Sparse derivatives", "transforms.sparse transforms.colouring transforms.sparsity"),
    ("implicit", "Implicit functions", "implicit numerics"),
    ("compile", "Compiling and control flow", "compiling transforms.branches transforms.loops transforms.while_loops"),
    ("graphs", "Static graphs and program files", "graph"),
    ("memory", "Memory", "memory"),
    ("precision", "Mixed precision", "amp optim.scaler"),
    ("debugging", "Checking, explaining, measuring", "debug threads"),
    ("determinism", "Determinism", "tensors.determinism autograd.deterministic debug.fingerprint debug.compare_runs"),
    ("profiling", "Profiling and timing", "profiling debug.benchmark"),
    ("cuda", "CUDA", "cuda"),
    ("errors", "Errors", "errors"),
    ("tree", "Trees", "tree"),
    ("files", "Files", "interop.safetensors interop.checkpointer interop"),
    ("nn", "Modules and containers", "nn nn.module nn.parameter nn.containers"),
    ("nn-layers", "Layers",
     "nn.layers nn.convolution nn.pooling nn.patches nn.padding nn.normalisation nn.dropout nn.embedding nn.activations"),
    ("nn-sequences", "Recurrence, attention, transformers", "nn.recurrent nn.attention nn.transformer"),
    ("nn-losses", "Losses as modules", "nn.losses nn.adaptive_softmax"),
    ("nn-weights", "Initialisation, parametrisations, LoRA", "nn.init nn.parametrize nn.lora"),
    ("optim", "Optimizers", "optim"),
    ("schedules", "Learning rate schedules", "optim.schedules"),
    ("gradients", "Clipping and gradient transforms", "optim.clip optim.transforms optim.statistics optim.accumulate "
     "autograd.gradient_norm"),
    ("data", "Data", "data"),
    ("stats", "Distributions", "stats"),
    ("stats-transforms", "Transforms of distributions", "stats.transforms"),
    ("ode", "Differential equations", "ode"),
    ("optimize", "Minima, roots, least squares", "optimize"),
    ("scipy", "SciPy", "interop.scipy tensors.scipy_distributions"),
    ("other", "Other names", ""),
)  # fmt: skip
# The groups of pages, by the first page of each.
GROUPS = {
    "tensor": "Tensors",
    "elementwise": "Functions",
    "activations": "Functions of networks",
    "reverse": "Derivatives",
    "compile": "Programs",
    "memory": "Instruments",
    "nn": "Networks and training",
    "stats": "Statistics and solvers",
    "other": "Other",
}
TITLES = {page: title for page, title, _ in PAGES}
_PAGE_OF = {module: page for page, _, modules in PAGES for module in modules.split()}


@dataclass
class Name:
    """A public object: where people find it, where it is explained."""

    path: str  # with the prefix that people type: wg.nn.Linear
    value: Any
    module: str  # that defines it
    aliases: list[str] = field(default_factory=list)  # its other paths

    @property
    def page(self) -> str:
        """The page of the reference that explains it."""
        return page_of(self.module)


def page_of(module: str) -> str:
    """The page for the names of a module.

    >>> page_of("wengert.functional.losses"), page_of("wengert.nn.embedding"), page_of("wengert.memory.budget")
    ('losses', 'nn-layers', 'memory')
    """
    parts = module.split(".")[1:]
    while parts:
        if page := _PAGE_OF.get(".".join(parts)):
            return page
        parts.pop()
    return "other"


@functools.cache
def public_names() -> tuple[Name, ...]:
    """All of them, once each, under the shortest path."""
    found: dict[tuple[int, str], Name] = {}
    for path, value in sorted(_walk("wg", wengert, set()), key=lambda entry: (entry[0].count("."), entry[0])):
        key = id(value), path.rpartition(".")[2]
        if key in found:
            found[key].aliases.append(path)
        else:
            found[key] = Name(path, value, _module_of(path, value))
    return tuple(found.values())


@functools.cache
def by_path() -> dict[str, Name]:
    """Public objects by each of their paths."""
    return {path: name for name in public_names() for path in (name.path, *name.aliases)}


def _walk(prefix: str, module: types.ModuleType, seen: set[str]) -> Iterator[tuple[str, Any]]:
    """Paths and objects; modules with an `__all__` are opened, others are not public."""
    seen.add(module.__name__)
    for attribute in getattr(module, "__all__", ()):
        value = getattr(module, attribute)
        path = f"{prefix}.{attribute}"
        if not isinstance(value, types.ModuleType):
            yield path, value
        elif value.__name__ not in seen and value is not wengert.functional:  # its names are those of wengert
            yield from _walk(path, value, seen)


@functools.cache
def _modules_of_ops() -> dict[str, str]:
    """The module of each op's record, by the call of `define` in its source."""
    made = {}
    for info in pkgutil.iter_modules(wengert.ops.__path__, "wengert.ops."):
        source = inspect.getsource(importlib.import_module(info.name))
        made |= dict.fromkeys(re.findall(r'^(?:\w+(?:: Op)? = )?\w+\(\s*"(\w+)"', source, re.MULTILINE), info.name)
    return made


def _module_of(path: str, value: Any) -> str:
    if isinstance(value, wengert.Tensor | type) and getattr(value, "__module__", "") == "wengert":
        return "wengert._core"
    if type(value).__name__ == "Op":
        return _modules_of_ops().get(value.__name__, "wengert.functional.elementwise")
    module = str(getattr(value, "__module__", None) or type(value).__module__)
    return module if module.startswith("wengert.") else _package_of(path)


def _package_of(path: str) -> str:
    """The module behind the first part of a path: wg.optim.schedules.Schedule → wengert.optim.schedules."""
    module = functools.reduce(getattr, path.split(".")[1:-1], wengert)
    return module.__name__
